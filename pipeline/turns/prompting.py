"""The record of silences: reprompts to a silent caller, fillers for a late agent."""

from __future__ import annotations

from pipeline.settings import SessionSettings
from pipeline.turns.events import Inner


class Prompting:
    """Counts reprompts and fillers, and chooses the inner event that follows a silence."""

    __slots__ = (
        "_filling",
        "_max_fillers",
        "_max_reprompts",
        "fillers",
        "reply_heard",
        "reprompt_at",
        "silences",
    )

    def __init__(self, settings: SessionSettings, now: float) -> None:
        self._max_reprompts = settings.max_reprompts
        self._max_fillers = settings.max_fillers
        self._filling = False  # the next sound is a filler's
        self.silences = 0
        """Reprompts in a row."""
        self.fillers = 0
        """Fillers since the agent's own words of the reply under way."""
        self.reprompt_at = now
        """Loop time of the next reprompt if the caller stays silent."""
        self.reply_heard = False
        """Whether the caller has heard a part of the reply under way."""

    def judge_silence(self, *, may_retract: bool) -> Inner:
        """Chooses the inner event that follows the caller's silence. `may_retract`: the caller may interrupt
        a farewell."""
        if self.silences < self._max_reprompts:
            return Inner.SILENCE_NOTED
        return Inner.PATIENCE_ENDED if may_retract else Inner.PATIENCE_SPENT

    def judge_dead_air(self) -> Inner:
        """Chooses the inner event that follows the agent's silence: for a filler, or after `max_fillers` for
        an apology."""
        return Inner.DEAD_AIR_REPEATED if self.fillers >= self._max_fillers else Inner.DEAD_AIR_NOTED

    def watch(self) -> None:
        """Begins the wait for an answer of the agent."""
        self.fillers, self._filling = 0, False

    def fill(self) -> None:
        """Counts a filler, to which the next sound belongs."""
        self.fillers += 1
        self._filling = True

    def speak(self) -> None:
        """Notes sound of the reply, or of a filler, on its way to the caller."""
        self.reply_heard = True
        if not self._filling:
            self.fillers = 0
        self._filling = False
