"""The interface that effects and judgements act on: state, timer, queue of actions and the records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from pipeline.endpointing.policy import Endpointing
from pipeline.settings import SessionSettings
from pipeline.turns.closing import Farewell
from pipeline.turns.events import Action, Event, Inner, State
from pipeline.turns.gather import Gather
from pipeline.turns.noise import NoiseEvidence
from pipeline.turns.overlap import OverlapJudge
from pipeline.turns.prompting import Prompting
from pipeline.turns.speculation import Speculation
from pipeline.turns.utterance import CallerUtterance


class TurnContext(Protocol):
    """The part of `pipeline.turns.machine.Turns` that effects and judgements use; an interface, because the
    machine imports the effects."""

    state: State
    turn: int
    settings: SessionSettings
    endpointing: Endpointing
    actions: deque[Action]
    utterance: CallerUtterance
    noise: NoiseEvidence
    overlap: OverlapJudge
    speculation: Speculation
    prompting: Prompting
    farewell: Farewell
    gather: Gather

    def next_turn(self) -> None:
        """Begins another turn: events of the turn before are dropped from now on."""

    def arm(self, at: float, inner: Inner) -> None:
        """Sets the state's timer to the loop time `at`, when `inner` is due."""

    def endpoint_at(self) -> float:
        """Loop time at which the caller's turn ends if they stay silent."""


Effect: TypeAlias = Callable[[TurnContext, Event | None, float], Inner | None]
"""What a transition does, at loop time in seconds; the event that it returns happens at once."""
