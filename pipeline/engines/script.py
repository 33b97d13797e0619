"""The built-in agent without a model: a script of questions, answers and branches (docs/agents.md)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from pipeline.agent import AgentAct, AgentContext, AgentEvent, AgentReport
from pipeline.engines.script_machine import ScriptRun
from pipeline.engines.script_steps import Plan, fill, placeholders, raise_missing, read_plan
from pipeline.speech import Expected


class Script:
    """An agent that follows a plan. Shared by all its calls; it holds nothing but the plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Script:
        """Reads and checks the `[agent.script]` table. Raises `SettingsRefused` with every problem found."""
        return cls(read_plan(settings))

    @property
    def variables(self) -> frozenset[str]:
        """The promptVariables that a call must bring for the script (its greeting may need more)."""
        return self._plan.variables

    @property
    def expectations(self) -> tuple[Expected, ...]:
        """What the steps listen for: for checking the words against what a recogniser knows."""
        return tuple(step.expected for step in self._plan.steps.values() if step.expected is not None)

    @property
    def languages(self) -> frozenset[str]:
        """Those that a step changes to."""
        return frozenset(step.language for step in self._plan.steps.values() if step.language)

    async def start(self) -> None:
        """Nothing to load."""

    def join(self, context: AgentContext) -> ScriptConversation:
        """A conversation for one call. Raises `SettingsRefused` naming variables it did not bring."""
        needed = self.variables | set(placeholders(context.greeting))
        raise_missing("promptVariables", needed - context.variables.keys())
        return ScriptConversation(
            ScriptRun(
                self._plan,
                language=context.language,
                greeting=fill(context.greeting, context.variables),
                variables=context.variables,
            ),
        )

    async def close(self) -> None:
        """Nothing to free."""


class ScriptConversation:
    """One call through the script."""

    def __init__(self, run: ScriptRun) -> None:
        self._run = run

    async def respond(self, event: AgentEvent) -> AsyncGenerator[AgentAct, None]:
        """The acts for `event`. The script has moved on before the first of them, so closing the iterator in
        the middle (an interruption) loses words but never the place."""
        for act in self._run.receive(event):
            yield act

    def report(self) -> AgentReport:
        """What came of it so far."""
        return self._run.report()
