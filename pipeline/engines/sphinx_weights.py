"""What each piece of `pipeline.engines.sphinx_evidence` weighs: odds as natural logarithms.

Made by `python -m bench ears-weights`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "prior": 10.800,
        "fit": 1.411,
        "fit_of_many": 0.110,
        "worst": -0.267,
        "beside": -0.713,
        "words": -0.979,
        "length": 2.068,
        "drawn": -2.240,
        "choices": -0.194,
        "sibilants": 5.006,
        "fricatives": 1.711,
        "stops": -1.503,
        "nasals": -0.423,
        "glides": -1.883,
        "gain": 0.751,
        "worst_gain": -0.171,
        "gap": -2.446,
        "first": 0.938,
        "third": -4.733,
        "eighth": 2.041,
        "rank": 7.460,
        "phone_gap": 0.375,
        "worst_phone": 0.049,
        "bad_phones": -0.190,
        "uneven": -0.478,
        "hasty": -8.391,
        "rhythm": -0.961,
        "plain": 0.700,
    }
)
