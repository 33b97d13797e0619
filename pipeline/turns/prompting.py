"""The record of silences: reprompts to a silent caller, fillers for a late agent, turns that failed."""

from __future__ import annotations

from pipeline.settings import SessionSettings
from pipeline.turns.events import Inner


class Prompting:
    """Counts reprompts, fillers and failed turns, and chooses the inner event that follows a silence."""

    __slots__ = (
        "_asks_again",
        "_filling",
        "_max_failures",
        "_max_fillers",
        "_max_reprompts",
        "failures",
        "fillers",
        "reply_heard",
        "reprompt_at",
        "silences",
    )

    def __init__(self, settings: SessionSettings, now: float) -> None:
        self._max_reprompts = settings.max_reprompts
        self._max_fillers = settings.max_fillers
        self._max_failures = settings.max_failures
        self._filling = False  # the next sound is a filler's
        self._asks_again = False  # the words under way stand for a reply that failed
        self.failures = 0
        """Failed turns in a row."""
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
        a failed turn."""
        if self.fillers < self._max_fillers:
            return Inner.DEAD_AIR_NOTED
        return Inner.TURN_FAILED if self.may_fail else Inner.DEAD_AIR_REPEATED

    @property
    def may_fail(self) -> bool:
        """Whether the call goes on after another failed turn."""
        return self.failures < self._max_failures

    def watch(self) -> None:
        """Begins the wait for an answer of the agent."""
        self.fillers, self._filling, self._asks_again = 0, False, False

    def ask_again(self) -> None:
        """Counts a failed turn; the next words are the server's, in place of the reply."""
        self.failures += 1
        self.fillers, self._asks_again = 0, True

    def reply_ended(self) -> None:
        """Notes that the caller has heard a reply, or the words in its place, to the end."""
        if not self._asks_again:
            self.failures = 0
        self._asks_again = False

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
