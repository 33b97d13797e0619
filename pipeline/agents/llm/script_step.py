"""A language model that leads one step of a script and hands back the answers it collected.

It talks, asks for numbers, remembers, waits and uses the agent's tools; it does not end or transfer the call,
which the script does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pipeline.agent import AgentContext
from pipeline.agents.llm.answer import LlmAgentSpec
from pipeline.agents.llm.conversation import LlmConversation
from pipeline.agents.llm.tools.builtin import Builtin, Effect, Notebook, Policy
from pipeline.agents.llm.tools.schema import Schema
from pipeline.agents.llm.tools.tool import ToolSpec
from pipeline.agents.script.llm_step import LlmStep

MAX_ANSWER: Final = 500  # characters of one answer

_TASK: Final = """

You lead one part of this call. Your task in it: {goal}
{fields}Talk with the caller until it is done or cannot be done, then call the tool finish; say nothing \
about what comes after. Do not say goodbye: the call goes on without you."""


@dataclass(slots=True)
class StepAgent:
    """A model that leads one step. `over`: the step has ended; `done`: with success."""

    llm_step: LlmStep
    conversation: LlmConversation = field(init=False)
    over: bool = False
    done: bool = False
    answers: dict[str, str] = field(default_factory=dict)
    turns: int = 0


def invite(spec: LlmAgentSpec, llm_step: LlmStep, context: AgentContext, said: str) -> StepAgent:
    """Makes the model for a step, after the script has `said` something ("": the model speaks first)."""
    step_agent = StepAgent(llm_step)
    fields = f"Find out: {', '.join(llm_step.collect)}.\n" if llm_step.collect else ""
    builtins = {
        name: spec.builtins[name] for name in ("wait", "remember", "ask_digits") if name in spec.builtins
    }
    own = replace(
        spec,
        prompt=spec.prompt + _TASK.format(goal=llm_step.goal, fields=fields),
        builtins={**builtins, "finish": _finish(step_agent)},
        extract=None,
        realtime=None,
    )
    step_agent.conversation = LlmConversation(own, replace(context, greeting=""), said=said)
    return step_agent


def _finish(step_agent: StepAgent) -> Builtin:
    collect = step_agent.llm_step.collect
    properties: dict[str, Any] = {name: {"type": "string", "maxLength": MAX_ANSWER} for name in collect}
    properties["outcome"] = {"enum": ["done", "not_possible"]}
    schema = Schema({"properties": properties, "required": ["outcome"]})

    def perform(arguments: Mapping[str, Any], policy: Policy, notes: Notebook) -> Effect:
        found = {name: str(arguments[name]).strip() for name in collect if arguments.get(name)}
        missing = [name for name in collect if not found.get(name)]
        done = arguments["outcome"] == "done"
        if done and missing:
            return Effect(None, json.dumps({"error": f"still missing: {', '.join(missing)}"}))
        step_agent.over, step_agent.done, step_agent.answers = True, done, found
        return Effect(None, json.dumps({"result": "handed back"}), ends=True)

    return Builtin(
        ToolSpec(
            name="finish",
            description="Hand back: the task is done, or not possible.",
            schema=schema,
            acts=False,
            max_calls=20,
        ),
        perform,
    )
