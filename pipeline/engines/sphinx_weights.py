"""What each piece of `pipeline.engines.sphinx_evidence` weighs: odds as natural logarithms.

Made by `python -m bench ears-weights`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "prior": -0.12,
        "fit": 1.26,
        "fit_of_many": 0.63,
        "worst": -0.54,
        "beside": -0.81,
        "words": -0.47,
        "length": 1.52,
        "drawn": -0.60,
        "choices": -0.09,
        "sibilants": 4.47,
        "fricatives": 1.64,
        "stops": -1.15,
        "nasals": -0.54,
        "glides": 0.29,
        "ratio": 0.88,
        "plain": 0.80,
    }
)
