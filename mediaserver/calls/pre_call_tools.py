"""Pre-call tools: HTTP endpoints of the agent's owner that are asked before a call and fill prompt variables.

A tool gets the call's ids, numbers and variables by POST and answers with JSON; the agent's settings name the
values that become variables, and nothing else of the answer is used. All tools of an agent are asked at once,
each with its own deadline and its own policy for a failure: the call goes on with the variables of the
request (else empty ones), or is not dialled. A tool is asked again for every attempt, and may be for the same
one, when a node dies between asking and dialling."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mediaserver.queue.records import Claim
from mediaserver.settings import reveal
from mediaserver.settings.tools import PreCallTool
from pipeline.errors import RequestFailed, boundary
from pipeline.net.http import HttpClient
from pipeline.net.trace_context import TRACE_ID, request_fields
from pipeline.net.untrusted import NotJson, read_json

log = logging.getLogger(__name__)

OBJECTED = "pre_call_tool"
"""The cause of a call that was not dialled because a tool with the policy `do_not_dial` failed."""

VALUE_LIMIT = 4000
"""The most characters of one variable."""


@dataclass(frozen=True, slots=True)
class Briefing:
    """The result of the tools: the call's variables, and the reason why the call must not be dialled ("":
    none)."""

    variables: Mapping[str, str] = field(default_factory=dict)
    objection: str = ""


class ToolFailed(Exception):
    """A tool did not answer as it must. `str()` contains nothing of the answer."""


def promised(tools: Sequence[PreCallTool]) -> dict[str, str]:
    """Returns the variables that a call will have from its tools, each with its own name for a value."""
    return {name: name for tool in tools for name in tool.variables}


async def brief(http: HttpClient, tools: Sequence[PreCallTool], claim: Claim, *, direction: str) -> Briefing:
    """Asks all tools at once; returns after the slowest, or its deadline. Never raises."""
    body = json.dumps(_subject(claim, direction), ensure_ascii=False).encode()
    keys = [f"{claim.call_id}-{claim.epoch}-{tool.name}" for tool in tools]
    answers = await asyncio.gather(
        *(_outcome(http, tool, body, key) for tool, key in zip(tools, keys, strict=True))
    )
    filled: dict[str, str] = {}
    objections = []
    for tool, answer in zip(tools, answers, strict=True):
        if not isinstance(answer, ToolFailed):
            filled.update(answer)
            continue
        fields = {"call_id": claim.call_id, "tool": tool.name, "reason": str(answer)}
        log.warning("pre-call tool failed", extra={**fields, "policy": tool.on_failure})
        filled.update({name: claim.variables.get(name, "") for name in tool.variables})
        if tool.on_failure == "do_not_dial":
            objections.append(f"pre-call tool {tool.name}: {answer}")
    return Briefing({**claim.variables, **filled}, "; ".join(objections))


def _subject(claim: Claim, direction: str) -> dict[str, Any]:
    given = claim.metadata.get("preCallVariables")
    return {
        "callTaskId": claim.call_id,
        "companyId": claim.company_id,
        "agentId": claim.agent_id,
        "direction": direction,
        "phoneNumber": claim.phone_number,
        "promptVariables": dict(claim.variables),
        "preCallVariables": given if isinstance(given, Mapping) else dict(claim.variables),
    }


async def _outcome(http: HttpClient, tool: PreCallTool, body: bytes, key: str) -> dict[str, str] | ToolFailed:
    """Returns the tool's variables, or why there are none. Anything may be wrong with a stranger's answer."""
    with boundary(log, "pre-call tool broke", tool=tool.name) as broken:
        try:
            return await _ask(http, tool, body, key)
        except ToolFailed as failure:
            return failure
    return ToolFailed(broken.kind)


async def _ask(http: HttpClient, tool: PreCallTool, body: bytes, key: str) -> dict[str, str]:
    own = {name: reveal(value) for name, value in tool.headers.items()}
    headers = {**request_fields(key, span=TRACE_ID.get()), **own, "Content-Type": "application/json"}
    try:
        answer = await http.request(
            "POST",
            tool.url,
            headers=headers,
            body=body,
            timeout_s=tool.timeout_s,
            is_read=bool(tool.variables),
        )
    except RequestFailed as error:
        raise ToolFailed(str(error)) from error
    if not 200 <= answer.status < 300:
        raise ToolFailed(f"answered {answer.status}")
    if not tool.variables:
        return {}
    try:
        document = read_json(answer.body)
    except NotJson:
        raise ToolFailed("the answer is not JSON") from None
    return {name: _text(document, path) for name, path in tool.variables.items()}


def _text(document: Any, path: str) -> str:
    """Returns the value at `path` as text for the prompt. Raises `ToolFailed`."""
    value = document
    for part in path.split("."):
        value = _inner(value, part)
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise ToolFailed(f"the answer has no text or number at {path}")
    text = str(value)
    if len(text) > VALUE_LIMIT:
        raise ToolFailed(f"the answer is too long at {path}")
    return text


def _inner(value: Any, part: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(part)
    if isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 6:
        return value[int(part)] if int(part) < len(value) else None
    return None
