"""The built-in tools of language-model agents: each acts on the agent's own call, and no other.

The configuration lists what may be dialled, keyed or spoken: the model chooses from it by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pipeline.agent import AgentAct, DoNotCall, HangUp, SendDigits, SwitchLanguage, Transfer, Wait
from pipeline.agents.llm.digits import Wanted
from pipeline.agents.llm.table import LlmAsk
from pipeline.agents.llm.tool_names import NAMES
from pipeline.agents.llm.tools.schema import Schema
from pipeline.agents.llm.tools.tool import ToolSpec

MAX_WAIT_S: Final = 60
MAX_FACTS: Final = 30
MAX_FACT: Final = 300  # characters
MAX_QUESTION: Final = 300

DEFAULT: Final = tuple(name for name in NAMES if name != "send_digits")
"""The built-in tools of an agent whose settings name none; `transfer`, `switch_language` and `ask_digits`
only where their lists are not empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The configuration's limits on what the model may do to the call."""

    builtin: tuple[str, ...] = DEFAULT
    transfer_targets: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    dispositions: tuple[str, ...] = ()
    max_digits: int = 32
    asks: Mapping[str, LlmAsk] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Effect:
    """The result of a built-in tool: an act for the session, the result for the model. `quiet`: after it the
    agent says nothing more in this turn; `ends`: nothing can follow it. `wanted`: the caller is asked for a
    number with `question`, and the answer ends there."""

    act: AgentAct | None
    result: str
    quiet: bool = False
    ends: bool = False
    wanted: Wanted | None = None
    question: str = ""


@dataclass(slots=True)
class Notebook:
    """The facts and the disposition that the model noted for this call."""

    facts: dict[str, str] = field(default_factory=dict)
    disposition: str = ""


@dataclass(frozen=True, slots=True)
class Builtin:
    """A built-in tool as the configuration has it."""

    spec: ToolSpec
    perform: Callable[[Mapping[str, Any], Policy, Notebook], Effect]


def offered(policy: Policy) -> dict[str, Builtin]:
    """Returns the built-in tools that an agent with `policy` has, by name."""
    made = {name: _MAKERS[name](policy) for name in policy.builtin}
    return {name: tool for name, tool in made.items() if tool is not None}


def _tool(
    name: str,
    description: str,
    properties: Mapping[str, Any],
    perform: Callable[[Mapping[str, Any], Policy, Notebook], Effect],
    *,
    optional: tuple[str, ...] = (),
) -> Builtin:
    required = [key for key in properties if key not in optional]
    schema = Schema({"type": "object", "properties": dict(properties), "required": required})
    return Builtin(
        ToolSpec(name=name, description=description, schema=schema, acts=False, max_calls=20), perform
    )


def _hang_up(policy: Policy) -> Builtin:
    disposition: dict[str, Any] = {"type": "string", "pattern": "^[a-z0-9_]{1,40}$"}
    if policy.dispositions:
        disposition = {"enum": list(policy.dispositions)}
    return _tool(
        "hang_up",
        "End the call. Say goodbye in the same answer: the call ends when those words have been heard.",
        {"disposition": disposition | {"description": "How the call ended, such as completed."}},
        _do_hang_up,
        optional=() if policy.dispositions else ("disposition",),
    )


def _do_hang_up(arguments: Mapping[str, Any], policy: Policy, notes: Notebook) -> Effect:
    notes.disposition = str(arguments.get("disposition", "completed"))
    return Effect(HangUp(notes.disposition), _ok("the call ends when your words have been heard"), ends=True)


def _transfer(policy: Policy) -> Builtin | None:
    if not policy.transfer_targets:
        return None  # the model chooses a name only; the server looks the number up
    return _tool(
        "transfer",
        "Hand the caller to somebody else. Say so in the same answer.",
        {"target": {"enum": sorted(policy.transfer_targets)}},
        _do_transfer,
    )


def _do_transfer(arguments: Mapping[str, Any], policy: Policy, notes: Notebook) -> Effect:
    notes.disposition = "transferred"
    effect = Transfer(str(arguments["target"]))
    return Effect(effect, _ok("the call is handed on when your words have been heard"), ends=True)


def _ask_digits(policy: Policy) -> Builtin | None:
    if not policy.asks:
        return None  # the configuration decides its length and who may see it
    known = "; ".join(f"{ask.name}: {ask.description}" for ask in policy.asks.values())
    return _tool(
        "ask_digits",
        "Ask the caller for a number that they say or key. It is put together for you; you are told when it"
        " is there. Put the question here, not into your words, and ask nothing else with it.",
        {
            "name": {"enum": sorted(policy.asks), "description": known},
            "question": {"type": "string", "minLength": 1, "maxLength": MAX_QUESTION},
        },
        _do_ask_digits,
    )


def _do_ask_digits(arguments: Mapping[str, Any], policy: Policy, notes: Notebook) -> Effect:
    wanted = Wanted(policy.asks[str(arguments["name"])])
    return Effect(None, _ok("the caller is asked"), wanted=wanted, question=str(arguments["question"]))


def _send_digits(policy: Policy) -> Builtin:
    return _tool(
        "send_digits",
        "Press keys of the telephone, for a menu at the other end.",
        {"digits": {"type": "string", "pattern": "^[0-9*#]+$", "maxLength": policy.max_digits}},
        lambda arguments, *_: Effect(SendDigits(str(arguments["digits"])), _ok("pressed"), quiet=True),
    )


def _wait(policy: Policy) -> Builtin:
    return _tool(
        "wait",
        "Stay silent while the caller does something. What they say ends it.",
        {"seconds": {"type": "number", "minimum": 1, "maximum": MAX_WAIT_S}},
        lambda arguments, *_: Effect(Wait(float(arguments["seconds"])), _ok("waiting"), quiet=True),
    )


def _remember(policy: Policy) -> Builtin:
    return _tool(
        "remember",
        "Keep something that the caller told you; it stays known for the whole call and on its record.",
        {
            "key": {"type": "string", "pattern": "^[A-Za-z0-9_]{1,40}$"},
            "value": {"type": "string", "maxLength": MAX_FACT},
        },
        _do_remember,
    )


def _do_remember(arguments: Mapping[str, Any], policy: Policy, notes: Notebook) -> Effect:
    key = str(arguments["key"])
    if key not in notes.facts and len(notes.facts) >= MAX_FACTS:
        return Effect(None, json.dumps({"error": "no room for more"}))
    notes.facts[key] = str(arguments["value"])
    return Effect(None, _ok("remembered"))


def _do_not_call_again(policy: Policy) -> Builtin:
    return _tool(
        "do_not_call_again",
        "The person you are talking to asked never to be called again.",
        {"reason": {"type": "string", "maxLength": MAX_FACT}},
        lambda arguments, *_: Effect(
            DoNotCall(str(arguments.get("reason", ""))), _ok("this number will not be called again")
        ),
        optional=("reason",),
    )


def _switch_language(policy: Policy) -> Builtin | None:
    if not policy.languages:
        return None
    return _tool(
        "switch_language",
        "Speak and listen in another language from now on.",
        {"language": {"enum": list(policy.languages)}},
        lambda arguments, *_: Effect(
            SwitchLanguage(str(arguments["language"])), _ok("go on in that language")
        ),
    )


def _ok(text: str) -> str:
    return json.dumps({"result": text})


_MAKERS: Final[Mapping[str, Callable[[Policy], Builtin | None]]] = MappingProxyType(
    {
        "hang_up": _hang_up,
        "transfer": _transfer,
        "ask_digits": _ask_digits,
        "send_digits": _send_digits,
        "wait": _wait,
        "remember": _remember,
        "do_not_call_again": _do_not_call_again,
        "switch_language": _switch_language,
    }
)
