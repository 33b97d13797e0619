"""Follows the agent's words while they are heard, for observers that show them one by one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from pipeline.audio import FRAME_MS
from pipeline.media.playout import Heard, Playout
from pipeline.media.utterance import Utterance

HEARD_LATER_MS: Final = 60
"""Milliseconds after which a frame that was sent is heard at the earliest, by the shortest jitter buffers;
text has none."""

LOOK_MS: Final = 100
"""How often the words of an utterance that is still being written are placed anew, in milliseconds."""


class WordClock:
    """Tells the words of the utterance in `playout` that have begun to be heard, each time when there are
    more. `tell`: takes these words and the loop time. Word times are those of the voice, or estimated
    (`pipeline.transcript.placed_words`).

    A line tells of the frames that left many at once, so the clock looks by itself when the next word may
    begin."""

    def __init__(self, playout: Playout, tell: Callable[[str, float], None]) -> None:
        self._playout = playout
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self._utterance: Utterance | None = None
        self._begun = 0  # words told
        self._next = 0.0  # sample at which there may be more

    def played(self) -> None:
        """Notes that frames of the playout left; looks at its place on the loop's next turn."""
        if self._timer is None:
            self._timer = self._loop.call_soon(self._look)

    def close(self) -> None:
        """Tells nothing from now on. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        heard = (
            self._playout.heard()
        )  # counts frames that left, of which `played` is told: this look is theirs
        self._timer = None
        if heard is None:
            return
        if heard.utterance is not self._utterance:
            self._utterance, self._begun, self._next = heard.utterance, 0, 0.0
        if heard.samples >= self._next:
            self._advance(heard, self._loop.time())
        if math.isfinite(self._next):
            left_s = (self._next - heard.samples) / heard.utterance.rate_hz
            self._timer = self._loop.call_later(max(left_s, FRAME_MS / 1000), self._look)

    def _advance(self, heard: Heard, now: float) -> None:
        utterance = heard.utterance
        words = utterance.words()
        later = utterance.rate_hz * HEARD_LATER_MS // 1000
        begun = sum(word.start + later < heard.samples for word in words)
        self._next = words[begun].start + later + 1 if begun < len(words) else float("inf")
        if not utterance.ended:
            self._next = min(self._next, heard.samples + utterance.rate_hz * LOOK_MS // 1000)
        if begun > self._begun:
            self._begun = begun
            self._tell(" ".join(word.text for word in words[:begun]), now)
