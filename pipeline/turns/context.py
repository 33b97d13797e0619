"""What the effects of the table act on: state, timer, queue of actions and one record of each kind."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from pipeline.endpointing.policy import Endpointing
from pipeline.settings import SessionSettings
from pipeline.turns.closing import Farewell
from pipeline.turns.events import Action, Inner, State
from pipeline.turns.gather import Gather
from pipeline.turns.noise import NoiseEvidence
from pipeline.turns.overlap import OverlapJudge
from pipeline.turns.prompting import Prompting
from pipeline.turns.speculation import Speculation
from pipeline.turns.utterance import CallerUtterance


class TurnContext(Protocol):
    """`pipeline.turns.machine.Turns` as its effects and judgements see it; an interface, since the machine
    imports the effects."""

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
        """Another turn begins: events of what was under way are dropped from now on."""

    def arm(self, at: float, inner: Inner) -> None:
        """Sets the state's timer to the loop time `at`, when `inner` is due."""

    def endpoint_at(self) -> float:
        """Loop time at which the caller's turn ends if they stay silent."""
