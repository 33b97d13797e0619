"""Follows the agent's words while they are heard, for observers that show them one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

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
    (`pipeline.transcript.placed_words`)."""

    def __init__(self, playout: Playout, tell: Callable[[str, float], None]) -> None:
        self._playout = playout
        self._tell = tell
        self._utterance: Utterance | None = None
        self._begun = 0  # words told
        self._next = 0.0  # sample at which there may be more

    def played(self, now: float) -> None:
        """Notes that the leg sent a frame of the playout at `now`."""
        heard = self._playout.heard()
        if heard is None:
            return
        if heard.utterance is not self._utterance:
            self._utterance, self._begun, self._next = heard.utterance, 0, 0.0
        if heard.samples >= self._next:
            self._advance(heard, now)

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
