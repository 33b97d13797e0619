"""The weights of the evidence for the end of a turn: odds as natural logarithms.

Made by `python -m bench turn-weights`; the names are those of `pipeline.endpointing.scorer`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Terms:
    """The evidence at a pause. `cues`: the values of the cues found; `measures`: numbers by name."""

    cues: frozenset[str]
    measures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """The odds of a measure as a function of its value: linear between points, constant outside them."""

    at: tuple[float, ...]
    odds: tuple[float, ...]

    def of(self, value: float) -> float:
        """Gives the odds at `value`, as a natural logarithm, interpolated between the points."""
        after = bisect_right(self.at, value)
        if after == 0 or after == len(self.at):
            return self.odds[min(after, len(self.at) - 1)]
        below, odds = self.at[after - 1], self.odds[after - 1]
        return odds + (self.odds[after] - odds) / (self.at[after] - below) * (value - below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """One table of weights. `prior`: the odds before any evidence; `unheard`: the same where no words are
    known. `cues`, `curves`: the odds of each cue and each measure, by name."""

    prior: float
    unheard: float
    cues: Mapping[str, float]
    curves: Mapping[str, Curve]

    def p(self, terms: Terms, *, heard: bool = True) -> float:
        """Gives the probability that the turn is over. `heard`: words are known. Names that this table lacks
        are ignored."""
        odds = self.prior if heard else self.unheard
        odds += sum(self.cues.get(name, 0.0) for name in terms.cues)
        for name, value in terms.measures.items():
            curve = self.curves.get(name)
            if curve is not None:
                odds += curve.of(value)
        return 1.0 / (1.0 + math.exp(-odds))


ENGLISH: Final = Odds(
    prior=-1.63,
    unheard=-0.44,
    cues=MappingProxyType(
        {
            "address_part": -0.54,
            "address_whole": -0.56,
            "all_digits": -0.34,
            "closing": 0.88,
            "condition": -0.83,
            "count_given": 0.47,
            "dangling": -0.16,
            "few_digits": -0.31,
            "few_letters": -0.41,
            "letter": 2.14,
            "light_word": -0.97,
            "lone_word": 0.62,
            "mail_part": -0.76,
            "no_letters": -1.55,
            "no_year": -1.78,
            "number": 0.08,
            "question": 0.45,
            "question_begun": 0.15,
            "some_digits": -0.03,
            "to_address": 1.44,
            "to_count": -0.16,
            "to_digits": 0.32,
            "to_help": 0.12,
            "to_letters": 0.20,
            "to_name": 0.58,
            "to_place": 0.39,
            "to_time": 0.31,
            "to_yes_no": -0.05,
            "wanting": 0.14,
            "yes_alone": 1.48,
            "yes_first": 0.71,
        }
    ),
    curves=MappingProxyType(
        {
            "asking_down_st": Curve((0.51, 1.57, 2.14, 2.84, 4.37), (-0.33, -0.15, -0.04, 0.13, 0.40)),
            "asking_drop_db": Curve((-1.06, -0.02, 0.09, 0.70, 2.27), (-0.28, -0.08, 0.03, 0.13, 0.19)),
            "asking_fade_db": Curve((3.66, 7.54, 9.98, 13.02, 22.94), (-0.50, -0.29, 0.05, 0.34, 0.38)),
            "asking_fall_st": Curve((-2.22, -0.25, 0.55, 1.30, 4.03), (-0.31, -0.07, -0.01, 0.07, 0.32)),
            "asking_floor_st": Curve((-3.82, -2.04, -0.86, -0.12, 2.03), (-0.59, -0.39, -0.19, 0.29, 1.12)),
            "asking_held_ms": Curve(
                (10.00, 150.00, 240.00, 360.00, 750.00), (0.66, 0.24, -0.05, -0.29, -0.55)
            ),
            "asking_higher": Curve((0.03, 0.42, 0.65, 0.87, 1.00), (0.17, 0.04, -0.15, -0.17, 0.12)),
            "asking_last_st": Curve((-2.22, -0.41, 0.50, 1.39, 4.46), (0.45, 0.18, -0.02, -0.26, -0.30)),
            "asking_late_fall_st": Curve((-0.14, 0.65, 1.23, 2.02, 4.98), (0.79, 0.37, -0.03, -0.48, -0.71)),
            "asking_late_high_st": Curve((0.19, 1.01, 1.77, 2.96, 7.97), (-0.23, -0.06, 0.08, 0.13, 0.02)),
            "asking_over_floor_st": Curve((-0.58, 0.48, 1.39, 2.66, 4.82), (1.15, 0.36, -0.28, -0.54, -0.54)),
            "asking_peak_fall_st": Curve((0.00, 0.53, 1.09, 1.98, 6.64), (0.23, 0.07, -0.08, -0.10, -0.12)),
            "asking_since_peak_ms": Curve(
                (10.00, 20.00, 110.00, 230.00, 580.00), (0.61, 0.03, -0.33, -0.31, -0.17)
            ),
            "asking_stretch_fall_st": Curve(
                (-5.09, -0.61, 0.26, 1.24, 5.39), (-0.02, -0.04, -0.07, 0.02, 0.19)
            ),
            "asking_stretch_high_st": Curve(
                (-2.21, 0.40, 0.98, 2.02, 7.18), (-0.26, -0.07, 0.03, 0.13, 0.10)
            ),
            "asking_stretch_low_st": Curve(
                (-5.39, -2.67, -1.69, -0.80, 2.11), (1.01, 0.53, 0.10, -0.52, -1.29)
            ),
            "asking_up_st": Curve((0.59, 1.43, 1.96, 2.46, 3.53), (-0.46, -0.07, 0.15, 0.20, 0.08)),
            "asking_voiced_ms": Curve(
                (340.00, 720.00, 1060.00, 1530.00, 2760.00), (-0.34, -0.01, 0.14, 0.12, 0.02)
            ),
            "down_st": Curve(
                (0.67, 1.33, 1.74, 2.44, 3.36, 4.17, 5.56), (0.22, 0.42, 0.21, -0.16, -0.13, -0.17, -0.49)
            ),
            "drop_db": Curve(
                (-1.52, -0.52, -0.04, 0.06, 0.68, 1.38, 2.63), (-0.19, -0.09, 0.00, 0.04, -0.00, 0.05, 0.20)
            ),
            "ends": Curve(
                (-5.50, -4.68, -3.45, -2.33, -1.72, -1.44, -1.04),
                (-2.14, -0.96, 0.04, 0.36, 0.52, 0.54, 0.90),
            ),
            "ends_last": Curve(
                (-5.14, -4.52, -3.26, -2.39, -1.84, -1.58, -1.33),
                (0.34, 0.23, 0.11, -0.06, -0.10, -0.18, -0.31),
            ),
            "fade_db": Curve(
                (3.31, 6.10, 8.11, 10.53, 13.30, 17.15, 23.83), (-0.73, -0.32, -0.05, 0.11, 0.31, 0.33, -0.04)
            ),
            "fall_st": Curve(
                (-2.46, -0.49, 0.26, 0.98, 1.86, 3.64, 5.32), (-1.40, -0.32, -0.02, -0.10, -0.07, 0.64, 1.30)
            ),
            "floor_st": Curve(
                (-4.82, -2.79, -1.55, -0.44, 0.36, 1.32, 3.01), (-1.23, -0.88, -0.66, 0.00, 0.64, 0.94, 1.07)
            ),
            "held_ms": Curve(
                (10.00, 90.00, 160.00, 250.00, 370.00, 530.00, 930.00),
                (0.49, 0.03, -0.17, 0.02, 0.17, -0.11, -0.44),
            ),
            "higher": Curve((0.07, 0.36, 0.58, 0.80, 0.96, 1.00), (0.58, 0.37, 0.03, -0.15, -0.07, -0.26)),
            "last_st": Curve(
                (-2.43, -0.61, 0.28, 1.08, 2.00, 4.15, 5.84), (0.27, -0.05, -0.31, -0.32, -0.24, 0.54, 0.93)
            ),
            "late_fall_st": Curve(
                (-0.13, 0.50, 1.00, 1.57, 2.67, 4.52, 6.50), (0.18, 0.24, 0.14, -0.20, -0.24, 0.06, 0.02)
            ),
            "late_high_st": Curve(
                (-0.16, 0.42, 0.85, 1.45, 2.57, 4.17, 8.48), (-0.34, -0.23, -0.06, 0.12, 0.16, 0.15, 0.02)
            ),
            "over_floor_st": Curve(
                (-1.24, -0.26, 0.13, 0.83, 2.16, 3.50, 5.64), (0.64, 0.54, 0.61, 0.24, -0.67, -0.87, -0.69)
            ),
            "peak_fall_st": Curve(
                (0.00, 0.29, 0.71, 1.36, 2.64, 4.92, 8.40), (0.13, 0.39, 0.05, -0.05, 0.00, -0.09, -0.65)
            ),
            "since_peak_ms": Curve(
                (10.00, 70.00, 150.00, 280.00, 410.00, 750.00), (0.19, -0.05, -0.10, -0.19, -0.06, 0.35)
            ),
            "stretch_fall_st": Curve(
                (-5.65, -1.34, 0.00, 0.76, 1.80, 4.01, 7.11), (0.04, 0.26, 0.20, -0.01, -0.24, -0.15, -0.16)
            ),
            "stretch_high_st": Curve(
                (-3.66, -0.80, 0.10, 0.79, 1.65, 3.28, 8.05), (-0.09, -0.42, -0.24, 0.04, 0.15, 0.30, 0.46)
            ),
            "stretch_low_st": Curve(
                (-6.72, -4.84, -3.13, -1.87, -1.09, -0.25, 2.37),
                (0.65, 0.79, 0.40, -0.03, -0.30, -0.66, -0.98),
            ),
            "up_st": Curve(
                (0.57, 1.08, 1.49, 2.02, 2.56, 3.10, 4.01), (-1.05, -0.54, -0.21, 0.18, 0.47, 0.46, 0.15)
            ),
            "voiced_ms": Curve(
                (290.00, 520.00, 770.00, 1170.00, 1740.00, 2360.00, 2980.00),
                (-0.19, -0.39, -0.38, -0.06, 0.28, 0.43, 0.52),
            ),
            "wording": Curve(
                (-5.92, -3.16, -1.59, -0.38, 0.76, 1.79, 3.39), (-3.25, -2.04, -0.76, 0.34, 1.11, 1.49, 2.43)
            ),
            "words": Curve(
                (1.00, 2.00, 3.00, 4.00, 6.00, 9.00, 13.00, 18.00),
                (-0.49, -0.25, 0.09, 0.11, 0.08, -0.19, 0.06, 0.35),
            ),
        }
    ),
)
OTHERS: Final = Odds(
    prior=-0.66,
    unheard=-0.49,
    cues=MappingProxyType(
        {
            "address_part": -0.89,
            "address_whole": -0.28,
            "all_digits": -0.15,
            "closing": 1.35,
            "condition": -0.77,
            "count_given": 0.46,
            "dangling": -1.83,
            "few_digits": -0.17,
            "few_letters": -0.82,
            "letter": 1.88,
            "light_word": -1.35,
            "lone_word": 0.81,
            "mail_part": -1.32,
            "no_letters": -1.61,
            "no_year": -1.21,
            "number": -0.22,
            "question": 0.54,
            "question_begun": 0.21,
            "some_digits": -0.05,
            "to_address": 0.39,
            "to_count": -0.02,
            "to_digits": 0.06,
            "to_help": -0.22,
            "to_letters": 0.22,
            "to_name": 0.66,
            "to_place": 0.39,
            "to_time": 0.29,
            "to_yes_no": 0.30,
            "wanting": -0.34,
            "yes_alone": 1.03,
            "yes_first": 0.94,
        }
    ),
    curves=MappingProxyType(
        {
            "asking_down_st": Curve((0.51, 1.57, 2.14, 2.84, 4.37), (-0.32, -0.09, -0.01, 0.09, 0.32)),
            "asking_drop_db": Curve((-1.06, -0.02, 0.09, 0.70, 2.27), (-0.23, -0.09, 0.00, 0.11, 0.21)),
            "asking_fade_db": Curve((3.66, 7.54, 9.98, 13.02, 22.94), (-0.41, -0.24, 0.11, 0.32, 0.15)),
            "asking_fall_st": Curve((-2.22, -0.25, 0.55, 1.30, 4.03), (-0.48, -0.13, 0.01, 0.14, 0.43)),
            "asking_floor_st": Curve((-3.82, -2.04, -0.86, -0.12, 2.03), (-0.54, -0.32, -0.19, 0.25, 1.03)),
            "asking_held_ms": Curve(
                (10.00, 150.00, 240.00, 360.00, 750.00), (0.75, 0.25, -0.02, -0.30, -0.70)
            ),
            "asking_higher": Curve((0.03, 0.42, 0.65, 0.87, 1.00), (0.09, 0.00, -0.18, -0.14, 0.22)),
            "asking_last_st": Curve((-2.22, -0.41, 0.50, 1.39, 4.46), (0.61, 0.19, -0.04, -0.30, -0.37)),
            "asking_late_fall_st": Curve((-0.14, 0.65, 1.23, 2.02, 4.98), (0.65, 0.34, 0.00, -0.42, -0.64)),
            "asking_late_high_st": Curve((0.19, 1.01, 1.77, 2.96, 7.97), (-0.21, -0.05, 0.07, 0.11, 0.04)),
            "asking_over_floor_st": Curve((-0.58, 0.48, 1.39, 2.66, 4.82), (1.00, 0.30, -0.26, -0.47, -0.41)),
            "asking_peak_fall_st": Curve((0.00, 0.53, 1.09, 1.98, 6.64), (0.15, 0.04, -0.06, -0.06, -0.06)),
            "asking_since_peak_ms": Curve(
                (10.00, 20.00, 110.00, 230.00, 580.00), (0.64, 0.02, -0.37, -0.33, -0.15)
            ),
            "asking_stretch_fall_st": Curve(
                (-5.09, -0.61, 0.26, 1.24, 5.39), (0.02, -0.00, -0.05, -0.01, 0.09)
            ),
            "asking_stretch_high_st": Curve(
                (-2.21, 0.40, 0.98, 2.02, 7.18), (-0.34, -0.05, 0.09, 0.13, 0.03)
            ),
            "asking_stretch_low_st": Curve(
                (-5.39, -2.67, -1.69, -0.80, 2.11), (1.13, 0.55, 0.10, -0.57, -1.36)
            ),
            "asking_up_st": Curve((0.59, 1.43, 1.96, 2.46, 3.53), (-0.52, -0.05, 0.21, 0.24, -0.01)),
            "asking_voiced_ms": Curve(
                (340.00, 720.00, 1060.00, 1530.00, 2760.00), (-0.57, -0.02, 0.17, 0.16, 0.18)
            ),
            "down_st": Curve(
                (0.67, 1.33, 1.74, 2.44, 3.36, 4.17, 5.56), (0.18, 0.40, 0.18, -0.18, -0.14, -0.10, -0.36)
            ),
            "drop_db": Curve(
                (-1.52, -0.52, -0.04, 0.06, 0.68, 1.38, 2.63), (-0.14, -0.08, 0.02, 0.07, -0.03, 0.02, 0.12)
            ),
            "fade_db": Curve(
                (3.31, 6.10, 8.11, 10.53, 13.30, 17.15, 23.83), (-0.74, -0.34, -0.07, 0.14, 0.36, 0.32, -0.10)
            ),
            "fall_st": Curve(
                (-2.46, -0.49, 0.26, 0.98, 1.86, 3.64, 5.32), (-1.50, -0.26, 0.05, -0.04, -0.06, 0.55, 1.12)
            ),
            "floor_st": Curve(
                (-4.82, -2.79, -1.55, -0.44, 0.36, 1.32, 3.01), (-1.28, -0.83, -0.61, -0.03, 0.59, 0.94, 1.14)
            ),
            "held_ms": Curve(
                (10.00, 90.00, 160.00, 250.00, 370.00, 530.00, 930.00),
                (0.53, 0.01, -0.17, 0.05, 0.18, -0.14, -0.49),
            ),
            "higher": Curve((0.07, 0.36, 0.58, 0.80, 0.96, 1.00), (0.56, 0.32, -0.03, -0.16, -0.01, -0.21)),
            "last_st": Curve(
                (-2.43, -0.61, 0.28, 1.08, 2.00, 4.15, 5.84), (0.35, -0.07, -0.36, -0.35, -0.24, 0.59, 1.01)
            ),
            "late_fall_st": Curve(
                (-0.13, 0.50, 1.00, 1.57, 2.67, 4.52, 6.50), (0.09, 0.21, 0.16, -0.18, -0.24, 0.08, 0.03)
            ),
            "late_high_st": Curve(
                (-0.16, 0.42, 0.85, 1.45, 2.57, 4.17, 8.48), (-0.33, -0.25, -0.06, 0.13, 0.18, 0.14, 0.00)
            ),
            "over_floor_st": Curve(
                (-1.24, -0.26, 0.13, 0.83, 2.16, 3.50, 5.64), (0.65, 0.52, 0.62, 0.26, -0.66, -0.90, -0.69)
            ),
            "peak_fall_st": Curve(
                (0.00, 0.29, 0.71, 1.36, 2.64, 4.92, 8.40), (0.01, 0.39, 0.11, 0.00, 0.01, -0.11, -0.79)
            ),
            "since_peak_ms": Curve(
                (10.00, 70.00, 150.00, 280.00, 410.00, 750.00), (0.27, -0.11, -0.15, -0.21, -0.06, 0.41)
            ),
            "stretch_fall_st": Curve(
                (-5.65, -1.34, 0.00, 0.76, 1.80, 4.01, 7.11), (0.04, 0.25, 0.19, -0.00, -0.25, -0.12, -0.14)
            ),
            "stretch_high_st": Curve(
                (-3.66, -0.80, 0.10, 0.79, 1.65, 3.28, 8.05), (-0.09, -0.44, -0.26, 0.03, 0.16, 0.32, 0.56)
            ),
            "stretch_low_st": Curve(
                (-6.72, -4.84, -3.13, -1.87, -1.09, -0.25, 2.37),
                (0.74, 0.86, 0.44, -0.06, -0.37, -0.72, -0.93),
            ),
            "up_st": Curve(
                (0.57, 1.08, 1.49, 2.02, 2.56, 3.10, 4.01), (-1.13, -0.56, -0.23, 0.19, 0.51, 0.51, 0.13)
            ),
            "voiced_ms": Curve(
                (290.00, 520.00, 770.00, 1170.00, 1740.00, 2360.00, 2980.00),
                (-0.52, -0.56, -0.43, -0.06, 0.40, 0.62, 0.72),
            ),
            "words": Curve(
                (1.00, 2.00, 3.00, 4.00, 6.00, 9.00, 13.00, 18.00),
                (-1.08, -0.68, -0.19, -0.15, -0.08, 0.04, 0.63, 1.23),
            ),
        }
    ),
)
