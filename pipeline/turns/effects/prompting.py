"""Effects of silences: reprompts to a caller who says nothing, fillers for an agent that is late."""

from __future__ import annotations

from pipeline.agent import UserSilent
from pipeline.turns.context import TurnContext
from pipeline.turns.events import Discard, Event, Inner, PlayFiller, StartReply, WaitBegan


def ignore(turns: TurnContext, event: Event | None, now: float) -> None:
    """Nothing is to be done."""


def watch(turns: TurnContext, at: float) -> None:
    """The agent owes an answer, whose absence is noted at the loop time `at`."""
    turns.prompting.watch()
    turns.arm(at, Inner.DEAD_AIR_NOTED)


def watch_on(turns: TurnContext, event: Event | None, now: float) -> None:
    """The agent has said something, and owes more."""
    turns.arm(now + turns.settings.dead_air_ms / 1000, Inner.DEAD_AIR_NOTED)


def forget_and_watch(turns: TurnContext, event: Event | None, now: float) -> None:
    """What was said over the agent was no answer, and the agent owes more."""
    turns.actions.append(Discard())
    watch_on(turns, event, now)


def fill(turns: TurnContext, event: Event | None, now: float) -> None:
    """The agent is late: plays a filler."""
    turns.prompting.fill()
    turns.actions.append(PlayFiller(turns.turn))
    watch_on(turns, event, now)


def speak(turns: TurnContext, event: Event | None, now: float) -> None:
    """Sound of the reply is on its way to the caller."""
    turns.speculation.answered = turns.gather.taken = ""
    turns.prompting.speak()


def wait(turns: TurnContext, event: Event | None, now: float) -> None:
    """The agent is silent on purpose."""
    assert isinstance(event, WaitBegan)
    turns.arm(now + event.seconds, Inner.WAIT_OVER)


def listen(turns: TurnContext, event: Event | None, now: float) -> None:
    """The agent has said everything: the caller has `reprompt_s` to say something."""
    turns.prompting.reprompt_at = now + turns.settings.reprompt_s
    turns.arm(turns.prompting.reprompt_at, Inner.SILENCE_NOTED)


def reprompt(turns: TurnContext, event: Event | None, now: float) -> None:
    """The caller has said nothing: the agent says something."""
    turns.prompting.silences += 1
    turns.speculation.answered = ""
    turns.next_turn()
    turns.actions.append(StartReply(turns.turn, UserSilent(turns.prompting.silences)))
    watch(turns, now + turns.settings.dead_air_ms / 1000)
