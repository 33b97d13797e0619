"""Splits one turn's latency, as the caller hears it, into parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class TurnLatency:
    """The latency of one turn in milliseconds. `voice_to_voice_ms`: from the caller's last voiced sample to
    the agent's first sample that the leg sent; the sum of the parts.

    `endpoint_ms`: silence waited for on purpose. `stt_ms`: from the end-point to the words, 0 when the words
    were decoded during that silence. `agent_ms`: from there to the agent's first words. `tts_ms`: from there
    to the words' first sound. `server_ms`: the rest, spent in the server itself. Work that was done during
    the end-point's silence counts in no part."""

    voice_to_voice_ms: float
    endpoint_ms: float
    stt_ms: float
    agent_ms: float
    tts_ms: float
    server_ms: float


@dataclass(slots=True)
class TurnClock:
    """The moments of one turn: `voice_ended`, `endpoint_due`, `words_known` and `agent_asked` in loop time,
    `agent_s` and `tts_s` as durations in seconds. `agent_asked` may be before the end-point; 0: the later of
    end-point and words."""

    voice_ended: float
    endpoint_due: float
    words_known: float
    agent_asked: float = 0.0
    agent_s: float = 0.0
    tts_s: float = 0.0

    def latency(self, first_sent: float) -> TurnLatency:
        """Computes the latency; `first_sent`: loop time at which the answer's first frame was sent."""
        total = first_sent - self.voice_ended
        endpoint = self.endpoint_due - self.voice_ended
        known = max(self.endpoint_due, self.words_known)
        asked = self.agent_asked or known
        answered = max(known, asked + self.agent_s)
        spoken = max(answered, asked + self.agent_s + self.tts_s)
        parts = (endpoint, known - self.endpoint_due, answered - known, spoken - answered)
        return TurnLatency(*(round(part * 1000, 2) for part in (total, *parts, total - sum(parts))))


WAIT_BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 2.0, 5.0)

"""Upper bounds of the histogram of waits for a decoder, in seconds."""


@dataclass(frozen=True, slots=True)
class DecoderWaits:
    """The histogram of waits for a decoder: `counts[n]` waits of up to `WAIT_BOUNDS_S[n]`, in the last count
    longer ones; `sum_s`: all waits in seconds."""

    counts: tuple[int, ...]
    sum_s: float
