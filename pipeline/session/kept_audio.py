"""What has come from the caller: the last seconds of it, when it came, and the recogniser that hears it.

The arrival time of a frame is later than the moment at which its sound was spoken, by jitter, reordering and
a busy loop. The position of a frame on the far end's media clock is exact but counts from an unknown moment.
Since the network can only delay, the minimum of (arrival - position/rate) over many frames maps one to the
other (the clock filter of NTP, RFC 5905 section 10; RTP playout, Ramjee et al. 1994).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from pipeline.audio import Pcm, frame_samples, kernels
from pipeline.plane.incoming import Frames, Told
from pipeline.plane.rows import Note
from pipeline.speech import Listening

_WINDOW_S: Final = 10.0  # clocks drift by up to 100 ppm: 2 ms in two windows, less than a frame
_REBASE_S: Final = 1.0  # later than jitter makes any packet: the far end paused its clock
_NS: Final = 1e9
_LINES_ECHO: Final = int(Note.ECHO)
_NARROW_HZ: Final = 8000
_ECHO: Final = 1
_BEHIND: Final = 2

_T = TypeVar("_T", bound=np.generic)


class MediaClock:
    """Maps sample positions of one incoming stream to the loop's time.

    The minimum is taken over the current window of 10 s and the one before, so that the mapping follows a
    clock that drifts either way and survives a window of late packets. A packet later than 1 s (the far end
    paused its clock, for a hold or a transfer) begins a new mapping."""

    __slots__ = ("_base", "_current", "_period", "_previous", "_window", "_window_end")

    def __init__(self, rate_hz: int) -> None:
        self._period = 1.0 / rate_hz
        self._window = int(rate_hz * _WINDOW_S)
        self._window_end = 0
        self._base = self._current = self._previous = float("inf")

    def observe(self, position: int, now: float) -> None:
        """Notes that a frame arrived at loop time `now`. `position`: that after the frame's last sample; the
        position of the first sample would make every end-point 20 ms late."""
        offset = now - position * self._period
        if position >= self._window_end:
            self._previous, self._current = self._current, offset
            self._window_end = position + self._window
            self._base = min(self._previous, offset)
        elif offset < self._current:
            self._current = offset
            self._base = min(self._previous, offset)
        if offset - self._base > _REBASE_S:
            self._base = self._current = self._previous = offset

    def observe_all(self, told: Sequence[Told], samples: int) -> None:
        """Notes frames of so many samples as a line has heard them, as `observe` does each."""
        period = self._period
        for position, arrived_ns, _, _, _ in told:
            end, now = position + samples, arrived_ns / _NS
            offset = now - end * period
            if end >= self._window_end or offset < self._current or offset - self._base > _REBASE_S:
                self.observe(end, now)

    def time_of(self, position: int) -> float:
        """Gives the loop time at which `position` arrived, or would have without jitter; infinity before any
        frame."""
        return self._base + position * self._period


class KeptAudio:
    """The last `frames` frames at `rate_hz`, each noted as background speech or not. Frames go to `listening`
    too, unless it is None. `end`: position after the last frame; `last_at`: loop time at which it came.

    Frames of a telephone line are kept as µ-law octets, half of their size: those that came as such exactly,
    those of A-law and made-up ones rounded. Frames at other rates are kept as they are."""

    __slots__ = (
        "_n",
        "_notes",
        "_packed",
        "_ring",
        "_slot",
        "_written",
        "clock",
        "end",
        "last_at",
        "listening",
        "silence",
    )

    def __init__(self, rate_hz: int, frames: int) -> None:
        self.clock = MediaClock(rate_hz)
        self.listening: Listening | None = None
        self.end = 0
        self.last_at = 0.0
        self._n = frame_samples(rate_hz)
        self.silence: Pcm = np.zeros(self._n, np.int16)
        self._packed = rate_hz == _NARROW_HZ
        self._ring: npt.NDArray[Any] = np.empty((frames, self._n), np.uint8 if self._packed else np.int16)
        self._notes = np.zeros(frames, np.uint8)
        self._slot = self._written = 0

    def add(self, frame: Pcm, position: int, now: float, *, echo: bool) -> None:
        """Takes a frame that came at `now`; of the agent's echo, silence."""
        self.last_at = now
        self.end = end = position + self._n
        self._keep(frame, echo=echo)
        self.clock.observe(end, now)  # a packet leaves when its last sample has been spoken, not its first

    def add_all(self, frames: Frames, told: Sequence[Told]) -> None:
        """Takes frames as a line has heard them, as `add` does each."""
        self.clock.observe_all(told, self._n)
        self.last_at, self.end = told[-1][1] / _NS, told[-1][0] + self._n
        notes = [_ECHO if each[3] & _LINES_ECHO else 0 for each in told]
        echo = any(notes)
        self._put(frames, notes if echo else None)
        if self.listening is not None:
            if echo:
                frames = frames.copy()
                frames[np.array(notes) != 0] = 0
            self.listening.push(frames.reshape(-1))

    def _keep(self, frame: Pcm, *, echo: bool) -> None:
        slot = self._slot
        if self._packed:
            kernels.ulaw_encode(frame, self._ring[slot])
        else:
            self._ring[slot] = frame
        self._notes[slot] = _ECHO if echo else 0
        self._slot = slot + 1 if slot + 1 < len(self._ring) else 0
        self._written += 1
        if self.listening is not None:
            self.listening.push(self.silence if echo else frame)  # never the agent's words

    def _put(self, frames: Frames, notes: Sequence[int] | None) -> None:
        """Writes frames into the ring, in as many pieces as it takes; `notes` None: of none of them."""
        slots, done = len(self._ring), 0
        while done < len(frames):
            first = self._slot
            last = min(slots, first + len(frames) - done)
            part = frames[done : done + last - first]
            if self._packed:
                kernels.ulaw_encode(part.reshape(-1), self._ring[first:last].reshape(-1))
            else:
                self._ring[first:last] = part
            self._notes[first:last] = 0 if notes is None else notes[done : done + last - first]
            self._slot = last % slots
            done += last - first
        self._written += done

    def set_behind(self) -> None:
        """Notes that the last frame is background speech."""
        self._notes[self._slot - 1] |= _BEHIND

    def last(self, most: int) -> Sequence[Pcm]:
        """Copies of the last frames, `most` at the most."""
        slots, count = len(self._ring), min(self._written, most)
        at = np.arange(self._slot - count, self._slot) % slots
        return list(self._frames(self._ring[at], self._notes[at] & _ECHO))

    def samples(self) -> Pcm:
        """A copy of all that is kept, the oldest first."""
        return self._frames(self._in_order(self._ring), self._in_order(self._notes) & _ECHO).reshape(-1)

    def callers_own(self) -> Pcm:
        """The same with silence for background speech."""
        return self._frames(self._in_order(self._ring), self._in_order(self._notes)).reshape(-1)

    def _frames(self, kept: npt.NDArray[Any], silent: npt.NDArray[Any]) -> Frames:
        """Frames of the ring, copied, as they were, but for those that are `silent`."""
        frames: Frames = kept
        if self._packed:
            frames = np.empty(kept.shape, np.int16)
            kernels.ulaw_decode(kept.reshape(-1), frames.reshape(-1))
        frames[silent != 0] = 0
        return frames

    def _in_order(self, ring: npt.NDArray[_T]) -> npt.NDArray[_T]:
        newest = ring[: self._slot]
        return newest.copy() if self._written < len(ring) else np.concatenate((ring[self._slot :], newest))
