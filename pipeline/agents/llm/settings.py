"""Reads the table `[agent.llm]` and collects every problem in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from pipeline.agents.llm.chat import ChatSettings
from pipeline.agents.llm.extraction import ExtractSettings
from pipeline.agents.llm.realtime.table import RealtimeSettings
from pipeline.agents.llm.table import LlmAsk, LlmExtract, LlmFallback, LlmMcp, LlmSettings, LlmTool
from pipeline.agents.llm.tools.builtin import DEFAULT, Policy
from pipeline.agents.llm.tools.http import IN_QUERY, url_problems
from pipeline.agents.llm.tools.schema import Schema
from pipeline.agents.llm.tools.tool import ToolSpec
from pipeline.engines.tables import read_table
from pipeline.errors import SettingsRefused
from pipeline.text.templates import placeholders

Problems = list[tuple[str, str]]

_BESIDE: Final = frozenset({"transfer_targets", "realtime"})
"""Keys of an agent's settings that are none of the table's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmPlan:
    """The table `[agent.llm]`, checked, and what is made of it."""

    llm: LlmSettings
    chat: ChatSettings
    policy: Policy
    tools: tuple[tuple[ToolSpec, LlmTool], ...]
    extract: ExtractSettings | None
    realtime: RealtimeSettings | None = None

    @property
    def models(self) -> tuple[LlmSettings | LlmFallback, ...]:
        """The models in the order in which they are asked."""
        return (self.llm, *self.llm.fallback)

    def __repr__(self) -> str:
        return f"LlmPlan({', '.join(each.base_url for each in self.models)})"


def read_settings(settings: Mapping[str, Any]) -> LlmPlan:
    """The agent in `settings`: the table, and `transfer_targets` and `realtime` beside it. Raises
    `SettingsRefused` with every problem of a value or, where each value is right, of the table as a
    whole."""
    table = {key: value for key, value in settings.items() if key not in _BESIDE}
    llm = read_table("llm", LlmSettings, table)
    problems: Problems = []
    if not llm.prompt.strip():
        problems.append(("prompt", "an agent needs a prompt"))
    policy = _policy(llm, tuple(settings.get("transfer_targets", ())), problems)
    tools = tuple(
        (_tool(f"tool[{n}].", each, policy.asks, problems), each) for n, each in enumerate(llm.tools)
    )
    _check_mcp(llm.mcp, problems)
    plan = LlmPlan(
        llm=llm,
        chat=ChatSettings(**{each.name: getattr(llm, each.name) for each in fields(ChatSettings)}),
        policy=policy,
        tools=tools,
        extract=_extract(llm.extract, problems) if llm.extract is not None else None,
        realtime=read_table("realtime", RealtimeSettings, settings["realtime"])
        if settings.get("realtime")
        else None,
    )
    _check_names(plan, problems)
    if problems:
        raise SettingsRefused("llm", problems)
    return plan


def _policy(llm: LlmSettings, targets: tuple[str, ...], problems: Problems) -> Policy:
    builtin = llm.builtin if llm.builtin is not None else DEFAULT
    if llm.asks and "ask_digits" not in builtin:
        problems.append(("ask", 'builtin does not name "ask_digits"'))
    for name in _repeated(ask.name for ask in llm.asks):
        problems.append(("ask", f"{name!r} names more than one number"))
    return Policy(
        builtin=builtin,
        asks={ask.name: ask for ask in llm.asks},
        transfer_targets=targets,
        languages=llm.languages,
        dispositions=llm.dispositions,
        max_digits=llm.max_digits,
    )


def _tool(path: str, tool: LlmTool, asks: Mapping[str, LlmAsk], problems: Problems) -> ToolSpec:
    schema = _schema(f"{path}parameters", tool.parameters, problems)
    needs = frozenset(each for text in tool.fixed.values() for each in placeholders(text)) & asks.keys()
    spec = ToolSpec(
        name=tool.name,
        description=tool.description,
        schema=schema,
        acts=tool.acts if tool.acts is not None else tool.method != "GET",
        asks=_question(tool, schema),
        timeout_s=tool.timeout_s,
        max_calls=tool.max_calls,
        filler=tool.filler,
        needs=needs,
    )
    for each in sorted(each for each in needs if asks[each].mask and tool.method in IN_QUERY):
        problems.append((f"{path}fixed", f"{each!r} is masked: it would stand in the address"))
    problems += [(f"{path}url", problem) for problem in url_problems(tool.url, spec)]
    for clash in sorted(set(tool.fixed) & set(schema.properties)):
        problems.append((f"{path}fixed.{clash}", "is a parameter too: the model would choose it"))
    return spec


def _question(tool: LlmTool, schema: Schema) -> str:
    """Returns the question to the caller: `confirm` itself, or one made of the tool's description where
    `confirm` is true; "" for none."""
    if isinstance(tool.confirm, str):
        return tool.confirm
    if not tool.confirm:
        return ""
    details = ", ".join(f"{name.replace('_', ' ')}: {{{{{name}}}}}" for name in schema.properties)
    return f"May I do this: {tool.description.rstrip('.')}{', with ' if details else ''}{details}? Yes or no?"


def _check_mcp(servers: Sequence[LlmMcp], problems: Problems) -> None:
    for n, server in enumerate(servers):
        for key, names in (("reads", server.reads), ("confirm", tuple(server.confirm))):
            for name in sorted(set(names) - set(server.tools)):
                problems.append((f"mcp[{n}].{key}", f"{name!r} is not among tools"))


def _extract(extract: LlmExtract, problems: Problems) -> ExtractSettings:
    schema = _schema("extract.schema", extract.schema_, problems)
    for key, wanted in (("goal", "boolean"), ("disposition", "string"), ("summary", "string")):
        name = getattr(extract, key)
        field = schema.properties.get(name)
        if name and (not isinstance(field, Mapping) or field.get("type") != wanted):
            problems.append((f"extract.{key}", f"{name!r} is no {wanted} of the schema"))
    return ExtractSettings(schema, extract)


def _schema(key: str, document: Mapping[str, Any], problems: Problems) -> Schema:
    try:
        return Schema(document)
    except (ValueError, TypeError) as error:
        problems.append((key, str(error)))
        return Schema({})


def _check_names(plan: LlmPlan, problems: Problems) -> None:
    """Adds a problem for each name that more than one tool has."""
    tools = [spec.name for spec, _ in plan.tools]
    for name in _repeated(
        (*plan.policy.builtin, *tools, *(n for server in plan.llm.mcp for n in server.tools))
    ):
        problems.append(("tool", f"{name!r} names more than one tool"))


def _repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)
