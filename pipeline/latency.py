"""The media clock, and the parts of one turn's latency as the caller hears it.

A frame's arrival time says when a packet got through, not when it was spoken: jitter, reordering and a busy
loop move it. The frame's position on the far end's media clock is exact but counts from an unknown moment.
The network can only delay, so the least of (arrival - position/rate) over many frames is the mapping between
the two (the filter of NTP, RFC 5905 section 10, and of RTP playout, Ramjee et al. 1994).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_WINDOW_S: Final = 10.0  # crystals differ by up to 100 ppm: two windows of drift are 2 ms, below one frame
_REBASE_S: Final = 1.0  # no packet is so late and still of use


class MediaClock:
    """Maps sample positions of one incoming stream to the loop's time.

    The minimum is taken over the current window and the one before, so that it follows a drifting clock
    both ways and survives a burst of late packets of up to a window. A packet that is later than any jitter
    (the far end paused its clock: a hold, a transfer) begins anew."""

    __slots__ = ("_base", "_current", "_period", "_previous", "_window", "_window_end")

    def __init__(self, rate_hz: int) -> None:
        self._period = 1.0 / rate_hz
        self._window = int(rate_hz * _WINDOW_S)
        self._window_end = 0
        self._base = self._current = self._previous = float("inf")

    def observe(self, position: int, now: float) -> None:
        """Notes that audio up to `position` had arrived by `now`. `position` is that after a frame's last
        sample: counted from the first sample, every end-point would come 20 ms late."""
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

    def time_of(self, position: int) -> float:
        """Gives the loop time at which `position` arrived, or would have without jitter; infinity before any
        frame."""
        return self._base + position * self._period


@dataclass(frozen=True, slots=True)
class TurnLatency:
    """From the caller's last voiced sample to the agent's first sample handed to the wire, and its parts.

    `endpoint_ms`: silence waited for on purpose. `stt_ms`: beyond that, until the words were there (0 when
    they were decoded during the silence). `agent_ms`: until the agent's first words; `tts_ms`: until their
    first sound (of both only what was not done during that silence); `server_ms`: all the rest, which is
    ours. The parts add up to `voice_to_voice_ms`."""

    voice_to_voice_ms: float
    endpoint_ms: float
    stt_ms: float
    agent_ms: float
    tts_ms: float
    server_ms: float


@dataclass(slots=True)
class TurnClock:
    """The moments of one turn, in loop time, as they happen; durations of the engines in seconds.
    `agent_asked`: when the agent was asked, which may be before the end-point; 0: as soon as turn and words
    were there."""

    voice_ended: float
    endpoint_due: float
    words_known: float
    agent_asked: float = 0.0
    agent_s: float = 0.0
    tts_s: float = 0.0

    def latency(self, first_sent: float) -> TurnLatency:
        """The parts, given when the first frame of the answer left."""
        total = first_sent - self.voice_ended
        endpoint = self.endpoint_due - self.voice_ended
        known = max(self.endpoint_due, self.words_known)
        asked = self.agent_asked or known
        answered = max(known, asked + self.agent_s)
        spoken = max(answered, asked + self.agent_s + self.tts_s)
        parts = (endpoint, known - self.endpoint_due, answered - known, spoken - answered)
        return TurnLatency(*(round(part * 1000, 2) for part in (total, *parts, total - sum(parts))))


WAIT_BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 2.0, 5.0)

"""Upper bounds of the waits for a decoder that are counted apart, in seconds."""


@dataclass(frozen=True, slots=True)
class DecoderWaits:
    """How long callers have waited for a decoder: `counts[n]` waits up to `WAIT_BOUNDS_S[n]`, the last of
    them longer ones."""

    counts: tuple[int, ...]
    sum_s: float
