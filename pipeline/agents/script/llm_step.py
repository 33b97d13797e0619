"""A step of a script that a language model takes over: what it is to find out, and where it hands back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.agent import AgentContext, Conversation
from pipeline.engines.guard import EngineHealth
from pipeline.engines.options import Options

_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class LlmStep:
    """`goal`: in words, for the model. `collect`: the names under which it hands back what it found out.
    `max_turns`: after so many events without a result the script goes on at `failed` ("": at `next`)."""

    goal: str
    collect: tuple[str, ...] = ()
    max_turns: int = 10
    failed: str = ""


class StepAgent(Protocol):
    """A model at work on an errand. `over`: it has finished; `done`: with success, and `answers`."""

    errand: LlmStep
    over: bool
    done: bool
    turns: int

    @property
    def conversation(self) -> Conversation:
        """Who is told what happens, and says what to do."""

    @property
    def answers(self) -> Mapping[str, str]:
        """What it found out."""


class Model(Protocol):
    """What a script needs of the agent `llm`, which it has loaded only where a step asks for it."""

    def engine_health(self) -> Sequence[EngineHealth]:
        """See `Guarded`."""

    async def start(self) -> None:
        """See `Agent.start`."""

    def prewarm(self) -> None:
        """A call begins."""

    def invite(self, errand: LlmStep, context: AgentContext, said: str) -> StepAgent:
        """A guest for one step of a script, which has `said` something."""

    async def close(self) -> None:
        """See `Agent.close`."""


def read_errand(step: Options) -> LlmStep | None:
    """The table `llm` of a step, None where there is none."""
    if not step.has("llm"):
        return None
    table = step.table("llm")
    errand = LlmStep(
        goal=table.text("goal"),
        collect=table.texts("collect"),
        max_turns=table.integer("max_turns", 10, low=1, high=100),
        failed=table.text("failed"),
    )
    table.check_unknown()
    if not errand.goal.strip():
        table.wrong("goal", "the model needs a goal")
    for name in errand.collect:
        if _FIELD.fullmatch(name) is None or name == "outcome":
            table.wrong("collect", f"{name!r} cannot be the name of an answer")
    for key in ("expect", "answers", "collect", "action", "mask", "confirm", "partial", "on"):
        if step.has(key):
            step.wrong(key, "the model leads this step; what it may collect stands in `llm`")
    return errand
