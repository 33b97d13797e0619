"""The interface between a script and the language model that leads one of its steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from pydantic import Field, field_validator

from pipeline.agent import AgentContext, Conversation
from pipeline.engines.guard import EngineHealth
from pipeline.engines.tables import EngineTable

_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")


class LlmStep(EngineTable):
    """A step that a model leads. `goal`: the step's goal in words, for the model. `collect`: the names of the
    answers that the model returns. `max_turns`: number of events without a result after which the script goes
    on at step `failed` ("": at `next`)."""

    goal: str = Field(default="", validate_default=True)
    collect: tuple[str, ...] = ()
    max_turns: int = Field(default=10, ge=1, le=100)
    failed: str = ""

    @field_validator("goal")
    @classmethod
    def _something(cls, goal: str) -> str:
        if not goal.strip():
            raise ValueError("the model needs a goal")
        return goal

    @field_validator("collect")
    @classmethod
    def _names(cls, collect: tuple[str, ...]) -> tuple[str, ...]:
        for name in collect:
            if _FIELD.fullmatch(name) is None or name == "outcome":
                raise ValueError(f"{name!r} cannot be the name of an answer")
        return collect


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
