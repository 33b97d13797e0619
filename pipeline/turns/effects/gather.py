"""Effects of the caller's DTMF keys on the turn."""

from __future__ import annotations

from pipeline.agent import UserKeyed
from pipeline.turns.context import TurnContext
from pipeline.turns.effects.prompting import watch
from pipeline.turns.events import Discard, Event, Inner, Interrupt, KeyPressed, StartReply


def key(turns: TurnContext, event: Event | None, now: float) -> None:
    """Adds a key to the answer and drops the caller's utterance."""
    assert isinstance(event, KeyPressed)
    turns.actions.append(Discard())
    turns.arm(turns.gather.press(event.key, now), Inner.KEYS_COMPLETED)


def key_on(turns: TurnContext, event: Event | None, now: float) -> None:
    """Drops speech between the keys, which was no answer, and waits for the next key."""
    turns.actions.append(Discard())
    turns.arm(max(turns.gather.due, now), Inner.KEYS_COMPLETED)


def first_key(turns: TurnContext, event: Event | None, now: float) -> None:
    """Begins a turn with the first key of an answer."""
    turns.next_turn()
    key(turns, event, now)


def interrupt_by_key(turns: TurnContext, event: Event | None, now: float) -> None:
    """Interrupts the agent and begins a keyed answer."""
    turns.actions.append(Interrupt())
    first_key(turns, event, now)


def take_keys(turns: TurnContext, event: Event | None, now: float) -> None:
    """Lets the agent answer the keys."""
    turns.prompting.silences = 0
    turns.speculation.answered = ""
    turns.next_turn()
    turns.actions.append(StartReply(turns.turn, UserKeyed(turns.gather.take())))
    watch(turns, now + turns.settings.dead_air_ms / 1000)
