"""Reads the table `[agent.llm]` and collects every problem of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pipeline.agents.llm.builtin_tools import DEFAULT, Policy
from pipeline.agents.llm.chat import ChatSettings
from pipeline.agents.llm.digits import Ask
from pipeline.agents.llm.extraction import ExtractSettings
from pipeline.agents.llm.http_tool import IN_QUERY, METHODS, HttpToolSettings, url_problems
from pipeline.agents.llm.mcp import McpSettings
from pipeline.agents.llm.schema import Schema
from pipeline.agents.llm.tool_names import NAMES
from pipeline.agents.llm.tools import Limits, ToolSpec
from pipeline.agents.script.steps import placeholders
from pipeline.engines.options import Options

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

_ANYTHING: Final = Schema({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """A model and its server."""

    base_url: str
    model: str
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmPlan:
    """The table `[agent.llm]`, checked. `models`: in the order in which they are asked."""

    models: tuple[ModelSettings, ...]
    prompt: str
    chat: ChatSettings
    policy: Policy
    limits: Limits
    history_turns: int
    history_tokens: int
    tools: tuple[tuple[ToolSpec, HttpToolSettings], ...]
    mcp: tuple[McpSettings, ...]
    extract: ExtractSettings | None

    def __repr__(self) -> str:
        return f"LlmPlan({', '.join(each.base_url for each in self.models)})"


def read_settings(settings: Mapping[str, Any]) -> LlmPlan:
    """The agent in `settings`. Raises `SettingsRefused` with every problem."""
    options = Options("llm", settings)
    models = (_read_model(options), *map(_read_fallback, options.tables("fallback")))
    prompt = options.text("prompt")
    if not prompt.strip():
        options.wrong("prompt", "an agent needs a prompt")
    policy = _read_policy(options)
    tools = tuple(_read_tool(table, policy.asks) for table in options.tables("tool"))
    mcp = tuple(_read_mcp(table) for table in options.tables("mcp"))
    _check_names(options, policy, [spec.name for spec, _ in tools], mcp)
    plan = LlmPlan(
        models=models,
        prompt=prompt,
        chat=_read_chat(options),
        policy=policy,
        limits=_read_limits(options.table("budget")),
        history_turns=options.integer("history_turns", 40, low=1, high=1000),
        history_tokens=options.integer("history_tokens", 6000, low=200, high=1_000_000),
        tools=tools,
        mcp=mcp,
        extract=_read_extract(options.table("extract")) if options.has("extract") else None,
    )
    options.table("extract")
    options.finish()
    return plan


def _read_model(table: Options) -> ModelSettings:
    model = ModelSettings(
        base_url=table.text("base_url"), model=table.text("model"), api_key=table.text("api_key")
    )
    if not model.base_url.startswith(("http://", "https://")):
        table.wrong("base_url", "must be a URL that begins with http:// or https://")
    if not model.model:
        table.wrong("model", "missing")
    return model


def _read_fallback(table: Options) -> ModelSettings:
    model = _read_model(table)
    table.check_unknown()
    return model


def _read_chat(options: Options) -> ChatSettings:
    return ChatSettings(
        temperature=options.number("temperature", 0, low=0, high=2) if options.has("temperature") else None,
        max_tokens=(
            options.integer("max_tokens", 1, low=1, high=1_000_000) if options.has("max_tokens") else None
        ),
        timeout_s=options.number("timeout_s", 6.0, low=0.1, high=120),
        stall_s=options.number("stall_s", 4.0, low=0.1, high=60),
    )


def _read_policy(options: Options) -> Policy:
    asks = [_read_ask(table) for table in options.tables("ask")]
    builtin = options.texts("builtin", choices=NAMES) if options.has("builtin") else DEFAULT
    if asks and "ask_digits" not in builtin:
        options.wrong("ask", 'builtin does not name "ask_digits"')
    for name in sorted({ask.name for ask in asks if [each.name for each in asks].count(ask.name) > 1}):
        options.wrong("ask", f"{name!r} names more than one number")
    return Policy(
        builtin=builtin,
        asks={ask.name: ask for ask in asks},
        transfer_targets=options.texts("transfer_targets"),
        languages=options.texts("languages"),
        dispositions=options.texts("dispositions"),
        max_digits=options.integer("max_digits", 32, low=1, high=64),
    )


def _read_ask(table: Options) -> Ask:
    ask = Ask(
        name=table.text("name"),
        description=table.text("description"),
        digits=table.integer("digits", 0, low=0, high=64),
        terminator=table.text("terminator", "#", choices=("", "#", "*")),
        key_timeout_s=table.number("key_timeout_s", 0.0, low=0.0, high=60.0),
        mask=table.flag("mask"),
    )
    if NAME.fullmatch(ask.name) is None:
        table.wrong("name", "must be letters, digits and underscores")
    table.check_unknown()
    return ask


def _read_limits(table: Options) -> Limits:
    limits = Limits(
        calls=table.integer("calls", 30, low=0, high=1000),
        calls_a_turn=table.integer("calls_a_turn", 6, low=1, high=50),
        rounds=table.integer("rounds", 5, low=1, high=20),
        seconds=table.number("seconds", 60.0, low=0, high=3600),
    )
    table.check_unknown()
    return limits


def _read_tool(table: Options, asks: Mapping[str, Ask]) -> tuple[ToolSpec, HttpToolSettings]:
    name, description = table.text("name"), table.text("description")
    method = table.text("method", "POST", choices=METHODS)
    schema, fixed = _read_schema(table, "parameters"), _texts(table, "fixed")
    needs = frozenset(each for text in fixed.values() for each in placeholders(text)) & asks.keys()
    spec = ToolSpec(
        name=name,
        description=description,
        schema=schema,
        acts=table.flag("acts", method != "GET"),
        asks=_read_question(table, description, schema),
        timeout_s=table.number("timeout_s", 8.0, low=0.1, high=60),
        max_calls=table.integer("max_calls", 5, low=1, high=100),
        filler=table.text("filler"),
        needs=needs,
    )
    settings = HttpToolSettings(
        method=method, url=table.text("url"), headers=_texts(table, "headers"), fixed=fixed
    )
    for each in sorted(each for each in needs if asks[each].mask and method in IN_QUERY):
        table.wrong("fixed", f"{each!r} is masked: it would stand in the address")
    for problem in url_problems(settings.url, spec):
        table.wrong("url", problem)
    for clash in sorted(set(settings.fixed) & set(schema.properties)):
        table.wrong(f"fixed.{clash}", "is a parameter too: the model would choose it")
    table.check_unknown()
    return spec, settings


def _read_question(table: Options, description: str, schema: Schema) -> str:
    """What the caller is asked: `confirm` is true for a question made of the tool itself, or the question."""
    if not table.has("confirm") or table.value("confirm") is False:
        return ""
    if table.value("confirm") is True:
        details = ", ".join(f"{name.replace('_', ' ')}: {{{{{name}}}}}" for name in schema.properties)
        return f"May I do this: {description.rstrip('.')}{', with ' if details else ''}{details}? Yes or no?"
    return table.text("confirm")


def _read_mcp(table: Options) -> McpSettings:
    settings = McpSettings(
        url=table.text("url"),
        headers=_texts(table, "headers"),
        tools=table.texts("tools"),
        reads=table.texts("reads"),
        asks=_texts(table, "confirm"),
        timeout_s=table.number("timeout_s", 8.0, low=0.1, high=60),
        max_calls=table.integer("max_calls", 5, low=1, high=100),
    )
    if not settings.url.startswith(("http://", "https://")):
        table.wrong("url", "must be a URL that begins with http:// or https://")
    if not settings.tools:
        table.wrong("tools", "name the tools that the agent may use")
    for key, names in (("reads", settings.reads), ("confirm", tuple(settings.asks))):
        for name in sorted(set(names) - set(settings.tools)):
            table.wrong(key, f"{name!r} is not among tools")
    table.check_unknown()
    return settings


def _read_extract(table: Options) -> ExtractSettings:
    schema = _read_schema(table, "schema")
    settings = ExtractSettings(
        schema=schema,
        goal=table.text("goal"),
        disposition=table.text("disposition"),
        summary=table.text("summary"),
        timeout_s=table.number("timeout_s", 10.0, low=1, high=60),
    )
    for key, wanted in (("goal", "boolean"), ("disposition", "string"), ("summary", "string")):
        name = getattr(settings, key)
        field = schema.properties.get(name)
        if name and (not isinstance(field, Mapping) or field.get("type") != wanted):
            table.wrong(key, f"{name!r} is no {wanted} of the schema")
    table.check_unknown()
    return settings


def _read_schema(table: Options, key: str) -> Schema:
    document = table.value(key)
    if document is None:
        return _ANYTHING
    if not isinstance(document, Mapping):
        table.wrong(key, "must be a table")
        return _ANYTHING
    try:
        return Schema(document)
    except (ValueError, TypeError) as error:
        table.wrong(key, str(error))
        return _ANYTHING


def _texts(table: Options, key: str) -> dict[str, str]:
    inner = table.table(key)
    return {name: inner.text(name) for name in inner.names()}


def _check_names(options: Options, policy: Policy, tools: list[str], mcp: tuple[McpSettings, ...]) -> None:
    """Every tool has a name of its own."""
    names = [*policy.builtin, *tools, *(name for server in mcp for name in server.tools)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        options.wrong("tool", f"{name!r} names more than one tool")
    if "" in tools:
        options.wrong("tool", "a tool needs a name")
