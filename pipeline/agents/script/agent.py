"""The built-in agent, which follows a script of questions, answers and branches; a language model may lead
single steps (docs/agents.md)."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline import registry
from pipeline.agent import AgentAct, AgentContext, AgentEvent, AgentReport, CallOpened, Say, UserSaid
from pipeline.agents.script.llm_step import LlmStep, Model, StepAgent
from pipeline.agents.script.machine import ScriptRun
from pipeline.agents.script.position import Position
from pipeline.agents.script.steps import Plan, read_plan
from pipeline.engines.aio import closing
from pipeline.engines.guard import EngineHealth
from pipeline.errors import EngineError, SettingsRefused, contained
from pipeline.speech import Expected
from pipeline.text.templates import fill, placeholders, raise_missing

log = logging.getLogger(__name__)


class Script:
    """An agent that follows a script, shared by all its calls. `llm`: the model for steps that name one."""

    def __init__(self, plan: Plan, llm: Model | None = None) -> None:
        self._plan = plan
        self._llm = llm

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Script:
        """Reads and checks the `[agent.script]` table; `llm` in it is the `[agent.llm]` table of the model.
        Raises `SettingsRefused` with every problem found."""
        plan = read_plan({key: value for key, value in settings.items() if key != "llm"})
        asking = next((step.id for step in plan.steps.values() if step.llm is not None), "")
        model = settings.get("llm")
        if asking and model is None:
            raise SettingsRefused(
                "script", [("step", f"{asking!r} asks a model, and there is no [agent.llm]")]
            )
        return cls(plan, registry.load("agent", "llm", model) if asking and model is not None else None)

    @property
    def variables(self) -> frozenset[str]:
        """The promptVariables that the script needs of a call (the greeting may need more)."""
        return self._plan.variables

    @property
    def expectations(self) -> tuple[Expected, ...]:
        """The answers that the steps expect, for a check of their words against a recogniser's vocabulary."""
        return tuple(step.expected for step in self._plan.steps.values() if step.expected is not None)

    @property
    def languages(self) -> frozenset[str]:
        """The languages that steps change to."""
        return frozenset(step.language for step in self._plan.steps.values() if step.language)

    @property
    def patience(self) -> int:
        """Most silences of the caller in a row that the steps answer; the session says goodbye after
        those."""
        return self._plan.patience

    def engine_health(self) -> Sequence[EngineHealth]:
        """Gives the figures of the model's engines, () without a model."""
        return self._llm.engine_health() if self._llm is not None else ()

    async def start(self) -> None:
        """Starts the model's tools; a script without a model has nothing to start."""
        if self._llm is not None:
            await self._llm.start()

    def join(self, context: AgentContext) -> ScriptConversation:
        """Makes the conversation of one call. Raises `SettingsRefused` naming variables that the call
        lacks."""
        needed = self.variables | set(placeholders(context.greeting))
        raise_missing("promptVariables", needed - context.variables.keys())
        run = ScriptRun(
            self._plan,
            language=context.language,
            greeting=fill(context.greeting, context.variables),
            variables=context.variables,
        )
        if self._llm is not None:
            self._llm.prewarm()
        return ScriptConversation(run, context, self._llm)

    async def close(self) -> None:
        """Closes the connections of the script's model."""
        if self._llm is not None:
            await self._llm.close()


class ScriptConversation:
    """One call through the script."""

    def __init__(self, run: ScriptRun, context: AgentContext, llm: Model | None = None) -> None:
        self._run = run
        self._context = context
        self._llm = llm
        self._step_agent: StepAgent | None = None
        self._before: tuple[StepAgent | None, Position] | None = None  # before the caller's last words

    async def respond(self, event: AgentEvent) -> AsyncGenerator[AgentAct, None]:
        """Gives the acts for `event`. The script moves on before the first act, so that an interruption,
        which closes the iterator, loses words but never the position. Raises `EngineError` of the model."""
        if isinstance(event, UserSaid):
            self._rewind(event)
        if self._step_agent is None:
            acts = self._go_on(self._run.receive(event))
        else:
            acts = self._consult(self._step_agent, event)
        async with closing(acts):
            async for act in acts:
                yield act

    def report(self) -> AgentReport:
        """Reports the answers and the disposition so far."""
        return self._run.report()

    def _rewind(self, event: UserSaid) -> None:
        """Takes back, in the script and the model's step, the turn that `event` continues."""
        if event.continues and self._before is not None:
            self._step_agent, self._run.position = self._before
            if self._step_agent is not None:
                self._step_agent.over = False
        self._before = self._step_agent, self._run.position

    async def _go_on(self, acts: list[AgentAct]) -> AsyncGenerator[AgentAct, None]:
        """Gives the script's acts, and the model's first words at a step that the model leads."""
        llm_step = self._run.llm_step
        said = " ".join(act.text for act in acts if isinstance(act, Say))
        if llm_step is not None:
            self._step_agent = self._invite(llm_step, said)
        for act in acts:
            yield act
        if self._step_agent is not None and not self._run.speaks:
            consulted = self._consult(self._step_agent, CallOpened())
            async with closing(consulted):
                async for act in consulted:
                    yield act

    def _invite(self, llm_step: LlmStep, said: str) -> StepAgent:
        if self._llm is None:
            raise AssertionError("a plan got through whose steps ask a model that is not there")
        known = {**self._context.variables, **self._run.known}
        about = replace(self._context, variables=known, language=self._run.position.language)
        return self._llm.invite(llm_step, about, said)

    async def _consult(self, step_agent: StepAgent, event: AgentEvent) -> AsyncGenerator[AgentAct, None]:
        """Gives the model's acts, and the script's acts after the end of the model's step."""
        step_agent.turns += 1
        if step_agent.turns > step_agent.llm_step.max_turns:
            step_agent.over, step_agent.done = True, False
        else:
            answered = self._ask(step_agent, event)
            async with closing(answered):
                async for act in answered:
                    yield act
        if step_agent.over:
            self._step_agent = None
            following = self._go_on(
                self._run.hand_back(step_agent.llm_step, step_agent.answers, done=step_agent.done)
            )
            async with closing(following):
                async for act in following:
                    yield act

    async def _ask(self, step_agent: StepAgent, event: AgentEvent) -> AsyncGenerator[AgentAct, None]:
        acts = step_agent.conversation.respond(event)
        try:
            with contained("the model"):
                async with closing(acts):
                    async for act in acts:
                        yield act
        except EngineError as error:
            if not step_agent.llm_step.failed:
                raise
            log.warning(
                "model failed; the script goes on without it",
                extra={"call_id": self._context.call_id, "reason": str(error)},
            )
            step_agent.over, step_agent.done = True, False
