"""How a conversation ends: the effects of farewells, which a caller may take back, and of last words."""

from __future__ import annotations

from abc import ABC
from typing import Final

from pipeline.result import EndReason
from pipeline.turns.events import CallConcluded, EndCall, Event, Inner, SayLastWords
from pipeline.turns.overlap import Overlaps

CLOSING_LIMIT_S: Final = 30.0  # the longest farewell; a leg that pulls no audio (on hold) ends here too


class Farewells(Overlaps, ABC):
    """The end of a conversation."""

    # A farewell ---------------------------------------------------------------------------------------------

    def _part(self, event: Event | None, now: float) -> None:
        """The agent has said its last words, which are on their way to the caller."""
        assert isinstance(event, CallConcluded)
        self._take_leave_for(event.reason, now)

    def _take_leave(self, event: Event | None, now: float) -> None:
        """Nobody answers, so we say goodbye."""
        self._silences += 1
        self._answered = ""
        self._next_turn()
        self._take_leave_for(EndReason.SILENCE, now)
        self._actions.append(SayLastWords(self.turn, EndReason.SILENCE, final=False))

    def _take_leave_for(self, reason: EndReason, now: float) -> None:
        self._end_reason = reason
        self._farewell.under_way, self._farewell.until = True, now + CLOSING_LIMIT_S

    def _linger(self, event: Event | None, now: float) -> None:
        self._arm(now + self._settings.linger_ms / 1000, Inner.CLOSING_ENDED)

    def _await_words(self, event: Event | None, now: float) -> None:
        """Something was said over the last words: what it was may not be known yet."""
        settings = self._settings
        known_at = self._silent_since + settings.overlap_ms / 1000
        if self._words is None:  # they were asked for
            known_at = max(known_at, self._overdue_at)
        self._arm(max(now + settings.linger_ms / 1000, known_at), Inner.CLOSING_ENDED)

    # Last words ---------------------------------------------------------------------------------------------

    def _conclude(self, event: Event | None, now: float) -> None:
        assert isinstance(event, CallConcluded)
        self._end_reason = event.reason
        self._arm(now + CLOSING_LIMIT_S, Inner.CLOSING_ENDED)

    def _close(self, reason: EndReason, now: float) -> None:
        self._next_turn()
        self._end_reason = reason
        self._actions.append(SayLastWords(self.turn, reason))
        self._arm(now + CLOSING_LIMIT_S, Inner.CLOSING_ENDED)

    def _apologise(self, event: Event | None, now: float) -> None:
        self._close(EndReason.ENGINE_ERROR, now)

    def _say_goodbye(self, event: Event | None, now: float) -> None:
        self._close(EndReason.SILENCE, now)

    def _time_out(self, event: Event | None, now: float) -> None:
        self._close(EndReason.MAX_DURATION, now)

    # The end ------------------------------------------------------------------------------------------------

    def _end(self, event: Event | None, now: float) -> None:
        self._actions.append(EndCall(self._end_reason))

    def _break_off(self, event: Event | None, now: float) -> None:
        self._end_reason = EndReason.FAR_END
        self._end(event, now)
