"""How long a silence lasts before somebody says something: reprompts to the caller, fillers for the agent."""

from __future__ import annotations

from pipeline.settings import SessionSettings
from pipeline.turns.events import Inner


class Prompting:
    """Counts what has been said into silences."""

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
        """Loop time until which the caller may be silent."""
        self.reply_heard = False
        """The caller has heard something of the reply under way."""

    def judge_silence(self, *, may_retract: bool) -> Inner:
        """What follows a caller's silence. `may_retract`: the caller may still stop a farewell."""
        if self.silences < self._max_reprompts:
            return Inner.SILENCE_NOTED
        return Inner.PATIENCE_ENDED if may_retract else Inner.PATIENCE_SPENT

    def judge_dead_air(self) -> Inner:
        """What follows an agent's silence."""
        return Inner.DEAD_AIR_REPEATED if self.fillers >= self._max_fillers else Inner.DEAD_AIR_NOTED

    def watch(self) -> None:
        """The agent owes an answer."""
        self.fillers, self._filling = 0, False

    def fill(self) -> None:
        """Counts a filler; the next sound that is heard is part of it."""
        self.fillers += 1
        self._filling = True

    def speak(self) -> None:
        """Sound of the reply, or of a filler, waits to be heard."""
        self.reply_heard = True
        if not self._filling:
            self.fillers = 0
        self._filling = False
