"""Recognises the tones of telephone networks by frequency and cadence (ITU-T E.180 and its supplement 2:
North America, Europe, the Gulf, the United Kingdom)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class Tone(Enum):
    """The kind of a tone by its frequencies alone."""

    RING_PAIR = auto()  # 440+480 or 400+450 Hz: always ring-back
    BUSY_PAIR = auto()  # 480+620 Hz: busy or congestion
    DIAL_PAIR = auto()  # 350+440 Hz
    PROGRESS = auto()  # one tone of 380 to 500 Hz: ring-back, busy, congestion or dial tone by its cadence
    SIT_LOW = auto()  # the three tones of the special information tone
    SIT_MIDDLE = auto()
    SIT_HIGH = auto()
    OTHER = auto()  # such as a beep


class Progress(Enum):
    """A call progress signal of the telephone network (ITU-T E.180)."""

    RINGBACK = auto()
    BUSY = auto()
    CONGESTION = auto()
    DIAL_TONE = auto()
    SIT = auto()


@dataclass(frozen=True, slots=True)
class Stretch:
    """A continuous tone, from its beginning to its end or to now. `unsteady_hz`: range of its strongest
    frequency, which moves where two tones are too close for the analysis to separate."""

    low_hz: float
    high_hz: float
    unsteady_hz: float
    duration_ms: int


_PAIRS: Final = ((480.0, 620.0, Tone.BUSY_PAIR), (350.0, 440.0, Tone.DIAL_PAIR))
_SIT: Final = (
    (900.0, 1000.0, Tone.SIT_LOW),
    (1360.0, 1440.0, Tone.SIT_MIDDLE),
    (1760.0, 1820.0, Tone.SIT_HIGH),
)
_OFF_HZ: Final = 12.0
_UNSTEADY_HZ: Final = 4.0


def tone_of(stretch: Stretch) -> Tone:
    """Gives the kind of the tone by its frequencies."""
    low, high = stretch.low_hz, stretch.high_hz
    for first, second, tone in _PAIRS:
        if abs(low - first) < _OFF_HZ and abs(high - second) < _OFF_HZ:
            return tone
    if low > 380.0 and high < 500.0:
        return Tone.RING_PAIR if stretch.unsteady_hz > _UNSTEADY_HZ else Tone.PROGRESS
    for least, most, tone in _SIT:
        if least <= low <= most and high <= most:
            return tone
    return Tone.OTHER


@dataclass(frozen=True, slots=True)
class _Past:
    tone: Tone
    duration_ms: int


RING_PAIR_MS: Final = 300
RING_MS: Final = 700  # a busy tone lasts 0.5 s at most
DIAL_MS: Final = 2600  # a ring is shorter
_CYCLES: Final = 2


class Cadence:
    """Recognises call progress signals in the tones of one line, taken in order."""

    def __init__(self) -> None:
        self._past: deque[_Past] = deque(maxlen=4)

    def under_way(self, stretch: Stretch) -> Progress | None:
        """Gives the signal of a tone that has not ended, as soon as certain, else None."""
        tone, long_ms = tone_of(stretch), stretch.duration_ms
        if tone is Tone.RING_PAIR:
            return Progress.RINGBACK if long_ms >= RING_PAIR_MS else None
        if tone is Tone.DIAL_PAIR:
            return Progress.DIAL_TONE if long_ms >= DIAL_MS else None
        if tone is not Tone.PROGRESS:
            return None
        if long_ms >= DIAL_MS:
            return Progress.DIAL_TONE
        return Progress.RINGBACK if long_ms >= RING_MS else None

    def ended(self, stretch: Stretch) -> Progress | None:
        """Takes a tone that ended; gives the signal of that tone and those before, else None."""
        past = self._past
        past.append(_Past(tone_of(stretch), stretch.duration_ms))
        tones = [each.tone for each in past]
        if tones[-3:] == [Tone.SIT_LOW, Tone.SIT_MIDDLE, Tone.SIT_HIGH]:
            return Progress.SIT
        if tones[-1] not in (Tone.PROGRESS, Tone.BUSY_PAIR):
            return None
        recent = [each.duration_ms for each in past if each.tone is tones[-1]][-_CYCLES:]
        if len(recent) < _CYCLES or max(recent) - min(recent) > 80:
            return None
        if 120 <= recent[-1] <= 310:
            return Progress.CONGESTION
        return Progress.BUSY if recent[-1] <= 650 else None
