"""How a conversation ends: the farewell, which the caller may stop, and the reason for the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.result import EndReason

CLOSING_LIMIT_S: Final = 30.0  # the longest farewell; a leg that pulls no audio (on hold) ends here too

MAX_RETRACTED: Final = 2
"""Farewells that a caller may stop in one call: nobody is held for ever."""


@dataclass(slots=True)
class Farewell:
    """The agent's last words, which end the conversation unless the caller stops them."""

    under_way: bool = False
    """The agent's words are its last."""
    until: float = 0.0
    """Loop time until which the farewell is waited for."""
    retracted: int = 0
    """Farewells that the caller has stopped."""
    reason: EndReason = EndReason.FAR_END
    """Why the conversation ends."""

    @property
    def may_be_retracted(self) -> bool:
        """The caller has not stopped too many farewells."""
        return self.retracted < MAX_RETRACTED

    def begin(self, reason: EndReason, now: float) -> None:
        """The agent says its last words."""
        self.reason = reason
        self.under_way, self.until = True, now + CLOSING_LIMIT_S

    def retract(self, *, heard: bool) -> None:
        """The conversation goes on. A farewell counts as stopped only where the caller has `heard` some of
        it."""
        self.retracted += self.under_way and heard
        self.under_way = False
