"""The record of a conversation's end: the farewell, which the caller may interrupt, and the end's reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.result import EndReason

CLOSING_LIMIT_S: Final = 30.0  # the longest farewell, also on a leg on hold, which pulls no audio

MAX_RETRACTED: Final = 2
"""Farewells that a caller may interrupt in one call, so that the call ends at some time."""


@dataclass(slots=True)
class Farewell:
    """The agent's last words, which end the conversation unless the caller interrupts them."""

    under_way: bool = False
    """Whether the agent's words under way are its last."""
    until: float = 0.0
    """Loop time at which the call ends even if the farewell is not heard to its end."""
    retracted: int = 0
    """Number of farewells that the caller has interrupted."""
    reason: EndReason = EndReason.FAR_END
    """The reason that the conversation ends for."""

    @property
    def may_be_retracted(self) -> bool:
        """Whether the caller may interrupt another farewell (`MAX_RETRACTED`)."""
        return self.retracted < MAX_RETRACTED

    def begin(self, reason: EndReason, now: float) -> None:
        """Begins a farewell, after which the call ends for `reason`."""
        self.reason = reason
        self.under_way, self.until = True, now + CLOSING_LIMIT_S

    def retract(self, *, heard: bool) -> None:
        """Takes the farewell back: the conversation goes on. A farewell counts as interrupted only if the
        caller has `heard` a part of it."""
        self.retracted += self.under_way and heard
        self.under_way = False
