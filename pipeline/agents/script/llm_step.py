"""The interface between a script and the language model that leads one of its steps."""

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
    """A step that a model leads. `goal`: the step's goal in words, for the model. `collect`: the names of the
    answers that the model returns. `max_turns`: number of events without a result after which the script goes
    on at step `failed` ("": at `next`)."""

    goal: str
    collect: tuple[str, ...] = ()
    max_turns: int = 10
    failed: str = ""


class StepAgent(Protocol):
    """A model that leads one step. `over`: the step has ended; `done`: with success; `turns`: number of
    events so far."""

    llm_step: LlmStep
    over: bool
    done: bool
    turns: int

    @property
    def conversation(self) -> Conversation:
        """The conversation that gets the events of the step."""

    @property
    def answers(self) -> Mapping[str, str]:
        """The answers that the model collected, by name."""


class Model(Protocol):
    """The methods of the agent `llm` that a script uses; it is loaded only where a step names a model."""

    def engine_health(self) -> Sequence[EngineHealth]:
        """Gives the figures of each model."""

    async def start(self) -> None:
        """Starts the model's tools. Raises `EngineMissing`."""

    def prewarm(self) -> None:
        """Prepares connections in a task when a call begins."""

    def invite(self, llm_step: LlmStep, context: AgentContext, said: str) -> StepAgent:
        """Makes the model for one step; `said`: the script's words before the model's first."""

    async def close(self) -> None:
        """Closes the connections to models and tools."""


def read_llm_step(step: Options) -> LlmStep | None:
    """Reads the table `llm` of a step, None where there is none; notes problems in `step`."""
    if not step.has("llm"):
        return None
    table = step.table("llm")
    llm_step = LlmStep(
        goal=table.text("goal"),
        collect=table.texts("collect"),
        max_turns=table.integer("max_turns", 10, low=1, high=100),
        failed=table.text("failed"),
    )
    table.check_unknown()
    if not llm_step.goal.strip():
        table.wrong("goal", "the model needs a goal")
    for name in llm_step.collect:
        if _FIELD.fullmatch(name) is None or name == "outcome":
            table.wrong("collect", f"{name!r} cannot be the name of an answer")
    for key in ("expect", "answers", "collect", "action", "mask", "confirm", "partial", "on"):
        if step.has(key):
            step.wrong(key, "the model leads this step; what it may collect stands in `llm`")
    return llm_step
