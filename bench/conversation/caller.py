"""A scripted caller, whose cues depend only on the audio that it hears, and the recording of the call.

The same caller talks to a session on a virtual clock and to a server over RTP."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.conversation.echo import Echo
from bench.conversation.sounds import RATE_HZ, Sound
from pipeline.audio import Pcm

FRAME: Final = RATE_HZ // 50
LOUD: Final = 120.0
"""RMS above which a frame of the agent counts as sound: -49 dBov."""

SILENT: Final = 12
"""Largest sample of a frame of silence, in any codec: -69 dBov."""

PAUSE_FRAMES: Final = 15
"""Frames; no voice pauses longer within words, and no answer follows sooner."""

QUIET_S: Final = 0.7
"""Seconds of silence after which the agent has finished: no voice pauses that long within a sentence."""


class Anchor(Enum):
    """The event from which a cue's delay counts."""

    AGENT_BEGAN = auto()  # the agent's first sound of the call
    AGENT_DONE = auto()  # the agent has spoken since the last cue, and is silent
    AGENT_AGAIN = auto()  # the agent's first sound after the last cue
    CUE_ENDED = auto()  # the end of the previous cue


class Ending(Enum):
    """When the caller hangs up, after the last cue."""

    ANSWERED = auto()  # new sound was heard after the last cue
    FINISHED = auto()  # as ANSWERED, and the agent has finished
    NEVER = auto()  # the agent hangs up


@dataclass(frozen=True, slots=True)
class Cue:
    """An action of the caller: says `sound`, or presses `keys`."""

    anchor: Anchor
    delay_s: float
    sound: Sound | None = None
    keys: str = ""


@dataclass(slots=True)
class Truth:
    """The words spoken with their times, on the clock of both sides; the recogniser's stub reads it."""

    words: list[tuple[str, float, float, float]] = field(default_factory=list)

    def add(self, sound: Sound, at: float) -> None:
        """Adds the words of `sound`, which begins at `at`."""
        self.words += [
            (word.text, at + word.start_s, at + word.end_s, sound.confidence) for word in sound.words
        ]

    def between(self, since: float, until: float) -> list[tuple[str, float]]:
        """Returns words that began after `since` and ended by `until`, each with its confidence."""
        return [(text, sure) for text, start, end, sure in self.words if start >= since and end <= until]


@dataclass(slots=True)
class Placed:
    """Position of a cue, in seconds of the recording."""

    cue: Cue
    start_s: float
    end_s: float


class Caller:
    """Makes a frame every 20 ms and takes every received one. Times are seconds since the answer; `origin` is
    the time of the answer on the clock of `truth`."""

    def __init__(self, cues: tuple[Cue, ...], truth: Truth, *, origin: float) -> None:
        self.placed: list[Placed] = []
        self.sent: list[Pcm] = []
        self.heard: list[tuple[float, Pcm]] = []
        self.began_s: float | None = None
        self.last_loud_s = 0.0
        self.onset_s = 0.0
        """When the agent's current, or last, stretch of sound began."""
        self.background: Pcm | None = None
        self.echo: Echo | None = None
        self._cues = list(cues)
        self._truth = truth
        self._origin = origin
        self._current: Placed | None = None
        self._frames = 0
        self._keys: list[tuple[float, str]] = []
        self._noise_from_s = 0.0
        """The background restarts with the agent's first sound and with every cue: the same call has the same
        noise under the same words, however fast it was answered."""

    # Received audio -----------------------------------------------------------------------------------------

    def hears(self, frame: Pcm, now_s: float, *, place_s: float | None = None) -> None:
        """Takes a frame of the agent. `place_s`: its time by RTP timestamp, without jitter."""
        self.heard.append((now_s if place_s is None else place_s, frame))
        if float(np.sqrt(np.mean(frame.astype(np.float32) ** 2))) < LOUD:
            return
        if self.began_s is None:
            self.began_s = self.onset_s = self._noise_from_s = now_s
        elif now_s - self.last_loud_s > QUIET_S:
            self.onset_s = now_s
        self.last_loud_s = now_s

    # Sent audio ---------------------------------------------------------------------------------------------

    def frame(self, now_s: float) -> Pcm:
        """Returns the next 20 ms, spoken from `now_s` on."""
        self._begin_cue(now_s)
        frame = np.zeros(FRAME, np.float64)
        current = self._current
        if current is not None and current.cue.sound is not None:
            offset = self._frames * FRAME
            piece = current.cue.sound.samples[offset : offset + FRAME]
            frame[: piece.size] = piece
            self._frames += 1
            if offset + FRAME >= current.cue.sound.samples.size:
                self._current = None
        if self.background is not None:
            at = round((now_s - self._noise_from_s) * RATE_HZ)
            frame += self.background[np.arange(at, at + FRAME) % self.background.size]
        if self.echo is not None:
            frame += self._echoed(self.echo, now_s)
        self.sent.append(np.clip(frame, -32768, 32767).astype(np.int16))
        return self.sent[-1]

    def pressed(self, now_s: float) -> str:
        """Returns the key that is due now, "" for none."""
        if self._keys and self._keys[0][0] <= now_s:
            return self._keys.pop(0)[1]
        return ""

    def finished(self, now_s: float, ending: Ending, limit_s: float) -> bool:
        """Whether the caller has nothing left to wait for."""
        if now_s > limit_s:
            return True
        if ending is Ending.NEVER or self._cues or self._current is not None or self._keys:
            return False
        if not self.placed and now_s < limit_s / 2:
            return False  # the agent speaks first
        end_s = self.placed[-1].end_s if self.placed else 0.0
        silent_s = now_s - self.last_loud_s
        if ending is Ending.ANSWERED:
            return self.onset_s >= end_s and now_s - self.onset_s > 0.4
        return silent_s > 2 * QUIET_S and self.last_loud_s > end_s

    def _begin_cue(self, now_s: float) -> None:
        if self._current is not None or not self._cues:
            return
        cue = self._cues[0]
        at = self._due(cue.anchor)
        if at is None or now_s < at + cue.delay_s:
            return
        del self._cues[0]
        self._noise_from_s = now_s
        seconds = cue.sound.seconds if cue.sound is not None else 0.25 * len(cue.keys)
        self.placed.append(Placed(cue, now_s, now_s + seconds))
        self._keys = [(now_s + 0.25 * index, key) for index, key in enumerate(cue.keys)]
        if cue.sound is not None:
            self._current, self._frames = self.placed[-1], 0
            self._truth.add(cue.sound, self._origin + now_s)

    def _due(self, anchor: Anchor) -> float | None:
        ended_s = self.placed[-1].end_s if self.placed else -1.0
        if anchor is Anchor.CUE_ENDED:
            return ended_s
        if self.began_s is None or anchor is Anchor.AGENT_BEGAN:
            return self.began_s
        if anchor is Anchor.AGENT_AGAIN:
            return self.onset_s if self.onset_s > ended_s else None
        return self.last_loud_s + QUIET_S if self.last_loud_s > ended_s else None

    def _echoed(self, echo: Echo, now_s: float) -> npt.NDArray[np.float64]:
        """Returns the echo of the agent's voice within the 20 ms from `now_s` on."""
        size = FRAME + echo.taps.size - 1
        from_s = now_s - echo.delay_s - (echo.taps.size - 1) / RATE_HZ
        far = np.zeros(size)
        for arrived_s, heard in reversed(self.heard):
            offset = round((arrived_s - from_s) * RATE_HZ)
            if offset <= -FRAME:
                break
            first, last = max(0, offset), min(size, offset + FRAME)
            if first < last:
                far[first:last] = heard[first - offset : last - offset]
        return np.convolve(far, echo.taps, "valid")


def recording(heard: list[tuple[float, Pcm]], seconds: float) -> Pcm:
    """Returns the heard frames at their arrival times. Frames that arrive in a burst follow each other, also
    across a short pause. After a longer silence a frame begins when it arrived, since its packet may be ahead
    of the sender's clock."""
    samples = np.zeros(round((seconds + 0.1) * RATE_HZ), np.int16)
    behind, silent = 0, PAUSE_FRAMES
    for at_s, frame in heard:
        if int(np.abs(frame).max()) < SILENT:
            behind, silent = behind + FRAME, silent + 1
            continue
        place = round(at_s * RATE_HZ)
        if silent < PAUSE_FRAMES and place < behind + FRAME // 2:
            place = behind
        piece = frame[: max(0, samples.size - place)]
        samples[place : place + piece.size] = piece
        behind, silent = place + FRAME, 0
    return samples
