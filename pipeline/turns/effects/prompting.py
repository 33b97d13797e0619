"""Effects of silences: reprompts to a caller who says nothing, fillers for an agent that is late."""

from __future__ import annotations

from pipeline.agent import UserSilent
from pipeline.turns.context import TurnContext
from pipeline.turns.events import (
    AskAgain,
    Discard,
    Event,
    Inner,
    PlayFiller,
    StartReply,
    State,
    WaitBegan,
)


def ignore(turns: TurnContext, event: Event | None, now: float) -> None:
    """Does nothing: the table's cell is only a change of state."""


def watch(turns: TurnContext, at: float) -> None:
    """Begins the wait for an answer of the agent, with a filler due at loop time `at`."""
    turns.prompting.watch()
    turns.arm(at, Inner.DEAD_AIR_NOTED)


def watch_on(turns: TurnContext, event: Event | None, now: float) -> None:
    """Waits for more of the reply, with a filler due in `dead_air_ms`."""
    turns.arm(now + turns.settings.dead_air_ms / 1000, Inner.DEAD_AIR_NOTED)


def forget_and_watch(turns: TurnContext, event: Event | None, now: float) -> None:
    """Drops words over the agent, which were no answer, and waits for more of the reply."""
    turns.actions.append(Discard())
    watch_on(turns, event, now)


def fill(turns: TurnContext, event: Event | None, now: float) -> None:
    """Plays a filler for a late agent."""
    turns.prompting.fill()
    turns.actions.append(PlayFiller(turns.turn))
    watch_on(turns, event, now)


def ask_again(turns: TurnContext, event: Event | None, now: float) -> None:
    """Asks the caller to say it again, after a reply that failed or did not come."""
    turns.prompting.ask_again()
    turns.speculation.answered = turns.gather.taken = ""
    turns.next_turn()
    turns.actions.append(AskAgain(turns.turn))
    if turns.state is State.REPLYING:  # in SPEAKING words before the failure are still being heard
        watch_on(turns, event, now)


def speak(turns: TurnContext, event: Event | None, now: float) -> None:
    """Notes that audio of the reply is on its way to the caller."""
    turns.speculation.answered = turns.gather.taken = ""
    turns.prompting.speak()


def wait(turns: TurnContext, event: Event | None, now: float) -> None:
    """Waits for the seconds that the agent asked for."""
    assert isinstance(event, WaitBegan)
    turns.arm(now + event.seconds, Inner.WAIT_OVER)


def listen(turns: TurnContext, event: Event | None, now: float) -> None:
    """Gives the caller the floor, with a reprompt due in `reprompt_s`."""
    turns.prompting.reply_ended()
    turns.prompting.reprompt_at = now + turns.settings.reprompt_s
    turns.arm(turns.prompting.reprompt_at, Inner.SILENCE_NOTED)


def reprompt(turns: TurnContext, event: Event | None, now: float) -> None:
    """Lets the agent prompt a silent caller again."""
    turns.prompting.silences += 1
    turns.speculation.answered = ""
    turns.next_turn()
    turns.actions.append(StartReply(turns.turn, UserSilent(turns.prompting.silences)))
    watch(turns, now + turns.settings.dead_air_ms / 1000)
