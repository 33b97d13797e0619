"""The line of a caller with what lines add: loss, jitter, echo of the agent's voice, and silence that is not
sent (DTX)."""

from __future__ import annotations

import random
from collections import deque
from functools import cache
from typing import Final

import numpy as np

LOSS: Final = 0.02
"""Share of the caller's packets that are lost."""

JITTER_NS: Final = 30_000_000
"""Each packet leaves up to so much later than it is due, uniformly; packets keep their order."""

ECHO_FRAMES: Final = 6
ECHO_DB: Final = 25.0
"""The agent's voice comes back 120 ms later and 25 dB lower, as from a hybrid."""

DTX_AFTER: Final = 5
"""Silent frames in a row that are sent before DTX: 100 ms."""

_SILENT: Final = 0xFF
_SILENCE: Final = bytes([_SILENT]) * 160


@cache
def linear() -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Returns the linear value of each code of µ-law, by its definition (ITU-T G.711, table 2a)."""
    codes = ~np.arange(256, dtype=np.int32) & 0xFF
    magnitude = ((((codes & 0x0F) << 3) + 132) << ((codes & 0x70) >> 4)) - 132
    return np.asarray(np.where(codes & 0x80, -magnitude, magnitude), np.int32)


@cache
def lowered() -> bytes:
    """Returns for each code of µ-law the code that is `ECHO_DB` lower, for `bytes.translate`."""
    wanted = linear() * 10 ** (-ECHO_DB / 20)
    nearest = np.abs(wanted[:, None] - linear()[None, :]).argmin(axis=1)
    return bytes(np.where(np.abs(wanted) < 4, _SILENT, nearest).astype(np.uint8))


class ImpairedLine:
    """The impairments of one caller's line. Raises nothing; `rng`: decides what is lost and late."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._heard: deque[bytes] = deque(maxlen=4 * ECHO_FRAMES)
        self._last_due_ns = 0
        self._silent = 0
        self.suppressed = False
        """Whether the last packet was not sent because of DTX, so that the next one begins a talkspurt."""

    def hear(self, payload: bytes) -> None:
        """Takes the payload of a received packet, for its echo."""
        self._heard.append(payload)

    def due_ns(self, regular_ns: int) -> int:
        """Returns when the packet leaves that is due at `regular_ns`."""
        late_ns = self._rng.randrange(JITTER_NS)
        self._last_due_ns = max(self._last_due_ns, regular_ns + late_ns)
        return self._last_due_ns

    def carry(self, payload: bytes) -> bytes | None:
        """Returns the payload that is sent for the caller's `payload`; None: lost, or silence that is not
        sent."""
        carried = self._with_echo(payload)
        self._silent = self._silent + 1 if carried == _SILENCE else 0
        self.suppressed = self._silent > DTX_AFTER
        if self.suppressed or self._rng.random() < LOSS:
            return None
        return carried

    def _with_echo(self, payload: bytes) -> bytes:
        if len(self._heard) <= ECHO_FRAMES:
            return payload
        echo = self._heard.popleft().translate(lowered())
        if len(echo) != len(payload) or echo == _SILENCE:
            return payload
        if payload == _SILENCE:
            return echo
        own, added = (linear()[np.frombuffer(each, np.uint8)] for each in (payload, echo))
        return bytes(_codes()[np.clip(own + added, -32768, 32767) + 32768])


@cache
def _codes() -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Returns the µ-law code of each value from -32768 to 32767: that of the nearest linear value."""
    order = np.argsort(linear(), kind="stable")
    values = linear()[order]
    edges = (values[1:] + values[:-1]) / 2
    return np.asarray(order[np.searchsorted(edges, np.arange(-32768, 32768))], np.uint8)
