"""What each piece of `pipeline.stt.sphinx.evidence` weighs: odds as natural logarithms.

Made by `python -m bench embedded-stt-weights`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "prior": -13.850,
        "fit": 1.471,
        "beside": -0.371,
        "length": 1.618,
        "words": -1.223,
        "choices": -0.587,
        "phone_gap": 1.130,
        "loop": 0.106,
        "plain": 0.706,
        "yes_no": 1.850,
        "digits": 0.564,
        "date": 1.798,
    }
)
