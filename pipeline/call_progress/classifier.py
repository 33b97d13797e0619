"""Classifies the far end of a call: network tones, music, a machine's greeting and beep, or a person who says
"hello?" and waits.

A pure tone is a tone of the network, identified by its cadence. Sound without the pauses of speech, with
notes of constant pitch, is music. A person who picks up says a word or two and waits, while a machine speaks
on. The classifier has no clock and keeps no audio: it takes frames and gives `CallProgressEvent`s, in about
8 µs a frame."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from pipeline.audio import FRAME_MS, LINE_RATES_HZ, Pcm, kernels
from pipeline.audio.vad import EnergyVad, VadSettings
from pipeline.call_progress.tones import Cadence, Progress, Stretch


class CallProgressKind(Enum):
    """A kind of line; its value is the name in records."""

    RINGBACK = "ringback"
    BUSY = "busy"
    CONGESTION = "congestion"
    DIAL_TONE = "dial_tone"
    SIT = "special_information_tone"
    MUSIC = "music"
    HUMAN = "human"  # a short word, then silence
    MACHINE = "machine"  # speech that goes on: a greeting, an announcement
    MACHINE_ENDED = "machine_ended"  # the end of that speech, without a beep so far
    BEEP = "beep"
    QUIET = "quiet"  # no sound for two seconds


@dataclass(frozen=True, slots=True)
class CallProgressEvent:
    """A recognised kind of line. `at`: loop time of the frame that made the kind certain."""

    kind: CallProgressKind
    at: float


_PROGRESS: Final = {
    Progress.RINGBACK: CallProgressKind.RINGBACK,
    Progress.BUSY: CallProgressKind.BUSY,
    Progress.CONGESTION: CallProgressKind.CONGESTION,
    Progress.DIAL_TONE: CallProgressKind.DIAL_TONE,
    Progress.SIT: CallProgressKind.SIT,
}

MACHINE_MS: Final = 3000
"""Length of speech without a pause from which a machine speaks: a person who picks up says less."""

MACHINE_GAP_MS: Final = 450
"""Longest pause within a machine's greeting; the pause after "hello?" is longer."""

HUMAN_SILENCE_MS: Final = 600
"""Silence after short speech from which a person waits."""

QUIET_MS: Final = 2000
RING_SILENCE_MS: Final = 6500  # longest silence between two rings
_TONE_TAIL_MS: Final = 300  # the voice detector's hang-over after a tone
MACHINE_OVER_MS: Final = 1500
_MUSIC_FRAMES: Final = 130
_MUSIC_EVERY: Final = 10
_DIP_DB: Final = 12.0
_QUIET_DB: Final = 40.0  # in sample steps (-50 dBov); sound below is silence
_FORGET_DB: Final = 0.05  # decay of the highest level per frame
_DIPS_AT_MOST: Final = 0.06  # synthetic voices: 0.07 to 0.29; music without a voice: 0.00
_STANDING_AT_LEAST: Final = 0.36  # frames on the note of 80 ms before: voices 0.08 to 0.35, music from 0.37
_STANDING_FRAMES: Final = 4
_NARROW: Final = 0.93  # least share of energy near one or two tones; a voice has it for two frames at most
_QUIETEST: Final = 80.0  # least level of a tone: -52 dBov
_TONE_FRAMES: Final = 3
_BEEP_MS: Final = (120, 1600)
_STABLE_HZ: Final = 45.0


def _tables() -> tuple[kernels.Floats, kernels.Floats]:
    n = np.arange(kernels.LINE_WINDOW)
    taper = np.hanning(kernels.LINE_WINDOW + 1)[:-1]
    bins_hz = kernels.LINE_FIRST_HZ + kernels.LINE_STEP_HZ * np.arange(kernels.LINE_BINS)
    turns = 2 * np.pi * bins_hz[:, np.newaxis] * n / kernels.LINE_HZ
    cosines = np.vstack((taper, taper * np.cos(turns)))
    sines = np.vstack((np.zeros_like(taper), taper * np.sin(turns)))
    return np.ascontiguousarray(cosines, np.float32), np.ascontiguousarray(sines, np.float32)


_COSINES, _SINES = _tables()


class _ToneRun:
    """The tone under way, with its mean frequencies."""

    __slots__ = ("frames", "high_hz", "highest_hz", "low_hz", "lowest_hz")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.frames = 0
        self.low_hz = self.high_hz = 0.0
        self.lowest_hz, self.highest_hz = 1e9, 0.0

    def fits(self, low_hz: float, high_hz: float) -> bool:
        """Whether these frequencies are those of the tone under way."""
        near = abs(low_hz - self.low_hz) < _STABLE_HZ and abs(high_hz - self.high_hz) < _STABLE_HZ
        return self.frames == 0 or near

    def add(self, low_hz: float, high_hz: float) -> None:
        self.frames += 1
        share = 1.0 / self.frames
        self.low_hz += share * (low_hz - self.low_hz)
        self.high_hz += share * (high_hz - self.high_hz)
        if self.frames > 1:  # the first frame holds the onset
            self.lowest_hz, self.highest_hz = min(self.lowest_hz, low_hz), max(self.highest_hz, low_hz)

    def stretch(self) -> Stretch:
        moved = max(0.0, self.highest_hz - self.lowest_hz)
        return Stretch(self.low_hz, self.high_hz, moved, self.frames * FRAME_MS)


class CallProgressClassifier:
    """Classifies the sound of one line; `push` takes every frame from the first early media or the answer on.
    `last`: the kind of the last event. Raises ValueError for a rate that no leg has."""

    def __init__(self, rate_hz: int) -> None:
        if rate_hz not in LINE_RATES_HZ:
            raise ValueError(f"rate_hz={rate_hz}: not one of {LINE_RATES_HZ}")
        self.rate_hz = rate_hz
        self.last: CallProgressKind | None = None
        self._vad = EnergyVad(rate_hz, VadSettings(hang_ms=200, narrow=False))
        self._buffer = np.zeros(kernels.LINE_WINDOW + kernels.LINE_BINS, np.float32)
        self._seen = np.zeros(kernels.LINE_COLUMNS, np.float32)
        self._levels_db = np.zeros(_MUSIC_FRAMES, np.float32)
        self._notes_hz = np.zeros(_MUSIC_FRAMES, np.float32)
        self._loudest_db = 0.0
        self._count = 0
        self._tone = _ToneRun()
        self._cadence = Cadence()
        self._speech_ms = 0  # length of speech so far, with short pauses
        self._silent_ms = 0
        self._after_tone_ms = _TONE_TAIL_MS
        self._machine = False

    def answered(self) -> None:
        """Notes the answer: drops the speech of early media."""
        self._speech_ms = self._silent_ms = 0
        self._machine = False
        self.last = None

    @property
    def is_spoken_on(self) -> bool:
        """Whether speech is under way, or less than `HUMAN_SILENCE_MS` ago."""
        return self._speech_ms > 0 and self._silent_ms < HUMAN_SILENCE_MS

    def push(self, frame: Pcm, now: float) -> CallProgressEvent | None:
        """Takes the next frame, 20 ms of int16 at `rate_hz`; returns the event that the frame made certain,
        else None."""
        active = self._vad.push(frame).active
        kernels.line_step(frame, self._buffer, _COSINES, _SINES, self._seen)
        self._remember()
        if self._is_tone():
            kind = self._tone_goes_on()
            self._after_tone_ms = 0
        elif self._tone.frames:
            kind = self._tone_ended()
        else:
            self._after_tone_ms += FRAME_MS
            kind = self._music() or self._speech(active)
        if kind is None or kind is self.last:
            return None
        self.last = kind
        return CallProgressEvent(kind, now)

    def _remember(self) -> None:
        slot = self._count % _MUSIC_FRAMES
        level_db = 20.0 * math.log10(self._seen[kernels.LINE_LEVEL] + 1.0)
        self._levels_db[slot] = level_db
        self._loudest_db = max(level_db, self._loudest_db - _FORGET_DB)
        self._notes_hz[slot] = self._seen[kernels.LINE_F1]
        self._count += 1

    # Network tones --------------------------------------------------------------------------------------

    def _is_tone(self) -> bool:
        seen = self._seen
        if seen[kernels.LINE_NARROW] < _NARROW or seen[kernels.LINE_LEVEL] < _QUIETEST:
            return False
        low, high = self._frequencies()
        return self._tone.fits(low, high)

    def _frequencies(self) -> tuple[float, float]:
        """The two frequencies of a pair, or twice that of a single tone."""
        seen = self._seen
        first, second = float(seen[kernels.LINE_F1]), float(seen[kernels.LINE_F2])
        pair = seen[kernels.LINE_SHARE2] > 0.25 and abs(first - second) > 75.0
        return (min(first, second), max(first, second)) if pair else (first, first)

    def _tone_goes_on(self) -> CallProgressKind | None:
        low, high = self._frequencies()
        self._tone.add(low, high)
        if self._tone.frames < _TONE_FRAMES or self._machine:
            return None
        return self._said(self._cadence.under_way(self._tone.stretch()))

    def _tone_ended(self) -> CallProgressKind | None:
        stretch = self._tone.stretch()
        self._tone.clear()
        if stretch.duration_ms < _TONE_FRAMES * FRAME_MS:
            return None
        self._speech_ms = self._silent_ms = 0
        said = self._said(self._cadence.ended(stretch))
        if said is not None and not self._machine:
            return said
        return (
            CallProgressKind.BEEP
            if _BEEP_MS[0] <= stretch.duration_ms <= _BEEP_MS[1] and self._machine
            else None
        )

    @staticmethod
    def _said(progress: Progress | None) -> CallProgressKind | None:
        return None if progress is None else _PROGRESS[progress]

    # Speech and music -----------------------------------------------------------------------------------

    def _music(self) -> CallProgressKind | None:
        if self._count < _MUSIC_FRAMES or self._count % _MUSIC_EVERY:
            return None
        order = np.roll(self._notes_hz, -(self._count % _MUSIC_FRAMES))
        loud_db = float(np.quantile(self._levels_db, 0.8))
        if loud_db < 20.0 * np.log10(_QUIETEST):
            return None
        dips = float((self._levels_db < loud_db - _DIP_DB).mean())
        standing = np.abs(order[_STANDING_FRAMES:] - order[:-_STANDING_FRAMES]) < 10.0
        if dips > _DIPS_AT_MOST or float(standing.mean()) < _STANDING_AT_LEAST:
            return None
        self._machine = False
        self._speech_ms = self._silent_ms = 0
        return CallProgressKind.MUSIC

    def _speech(self, active: bool) -> CallProgressKind | None:
        if active and self._after_tone_ms >= _TONE_TAIL_MS:
            if self._silent_ms > MACHINE_GAP_MS and not self._machine:
                self._speech_ms = 0
            self._speech_ms += FRAME_MS + (self._silent_ms if self._speech_ms else 0)
            self._silent_ms = 0
            if self._speech_ms >= MACHINE_MS and self.last is not CallProgressKind.MUSIC:
                self._machine = True
                return CallProgressKind.MACHINE
            return None
        if not self._is_quiet():
            return None  # steady sound, such as music, that the detector takes for noise
        self._silent_ms += FRAME_MS
        return self._silence()

    def _is_quiet(self) -> bool:
        level_db = float(self._levels_db[(self._count - 1) % _MUSIC_FRAMES])
        return level_db < max(self._loudest_db - _DIP_DB, _QUIET_DB)

    def _silence(self) -> CallProgressKind | None:
        if self._machine:
            return CallProgressKind.MACHINE_ENDED if self._silent_ms == MACHINE_OVER_MS else None
        if self._speech_ms and self._silent_ms == HUMAN_SILENCE_MS:
            return CallProgressKind.HUMAN
        patience_ms = RING_SILENCE_MS if self.last is CallProgressKind.RINGBACK else QUIET_MS
        return CallProgressKind.QUIET if self._silent_ms == patience_ms else None
