"""Turns a request for a call into a row for the queue: every check of `POST /api/v1/calls/outbound`, in its
order."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mediaserver.admin.directory import Directory
from mediaserver.calls.pre_call_tools import promised
from mediaserver.calls.signalling.fields import checked_headers
from mediaserver.calls.trunk_hunt import NO_TRUNK, Line, lines_of
from mediaserver.engine_pool.pool import Engines
from mediaserver.errors import InvalidNumber, InvalidRequest, NotFound
from mediaserver.numbers.e164 import may_dial, normalise
from mediaserver.numbers.users import user_named
from mediaserver.queue.records import NewCall
from mediaserver.queue.requests import ItemRefused
from mediaserver.settings import AgentSettings, CompanySettings
from pipeline.agent import AgentContext
from pipeline.errors import EngineError, SettingsRefused
from pipeline.text.templates import placeholders, raise_missing

INVALID_NUMBER = "Invalid phone number format"
NOT_OUTBOUND = "Agent is not configured for outbound calls"
OUTSIDE = "Phone number is outside the destinations that your company may call"
UNKNOWN_AGENT = "Agent not found or does not belong to your company"

_USER = re.compile(r"user:[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """One call that a client requests."""

    agent_id: str
    phone_number: str
    variables: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def checked_call(
    directory: Directory,
    engines: Engines,
    company_id: str,
    request: CallRequest,
    *,
    webhook_id: str | None = None,
) -> NewCall:
    """Returns the call to be queued for `request`, with a new webhook id unless one is given. Raises
    `InvalidRequest`, or `NotFound` for the agent."""
    company = directory.company(company_id)
    number = read_number(request.phone_number, company)
    agent = _agent(directory, company_id, request.agent_id)
    line = _line(directory, agent, number)
    if not user_named(number) and (company is None or not may_dial(number, company.prefixes)):
        raise InvalidRequest(OUTSIDE)
    headers = checked_headers(request.headers, line.trunk)
    left = agent.line.message if agent.line.answering_machine == "leave_message" else ""
    check_agent(engines, agent, request.variables, request.metadata, placeholders(left))
    return NewCall(
        company_id=company_id,
        agent_id=agent.id,
        trunk_id=line.trunk.id,
        phone_number=number,
        dial_number=line.dial_number,
        webhook_id=webhook_id or str(uuid.uuid4()),
        variables=dict(request.variables),
        metadata=dict(request.metadata),
        headers=headers,
        is_test=agent.is_test,
    )


def checked_item(
    directory: Directory, engines: Engines, company_id: str, request: CallRequest, *, webhook_id: str
) -> NewCall | ItemRefused:
    """Checks one call of a batch; a refusal concerns that call alone."""
    try:
        return checked_call(directory, engines, company_id, request, webhook_id=webhook_id)
    except (InvalidRequest, NotFound) as refused:
        return ItemRefused(str(refused))


def outbound_agent(directory: Directory, engines: Engines, company_id: str, agent_id: str) -> AgentSettings:
    """Returns the agent of a whole batch. Raises `NotFound`, `InvalidRequest` where no item could be placed
    with it."""
    agent = _agent(directory, company_id, agent_id)
    if agent.phone_number is None or not any(directory.trunk(name) for name in agent.trunk_names):
        raise InvalidRequest(NO_TRUNK)
    try:
        engines.agent_engines(agent.id)
    except EngineError as error:
        raise InvalidRequest(f"Agent's engine is not available: {error}") from None
    return agent


def read_number(text: str, company: CompanySettings | None) -> str:
    """Returns a number as E.164, read as the company's country writes it, and "user:NAME" as it is. Raises
    `InvalidRequest`."""
    if _USER.fullmatch(text):
        return text
    try:
        return normalise(text, company.country if company is not None else None)
    except InvalidNumber:
        raise InvalidRequest(INVALID_NUMBER) from None


def uuid_in(text: str) -> str:
    """Returns the UUID that `text` spells as the directory has it, "" for a text that is none."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return ""


def _agent(directory: Directory, company_id: str, agent_id: str) -> AgentSettings:
    agent = directory.agent(uuid_in(agent_id))
    if agent is None or agent.company != company_id:
        raise NotFound(UNKNOWN_AGENT)
    if agent.direction != "outbound":
        raise InvalidRequest(NOT_OUTBOUND)
    return agent


def _line(directory: Directory, agent: AgentSettings, number: str) -> Line:
    if agent.phone_number is None and not user_named(number):
        raise InvalidRequest(NO_TRUNK)
    return lines_of(directory, agent, number)[0]


def check_agent(
    engines: Engines,
    agent: AgentSettings,
    variables: Mapping[str, str],
    metadata: Mapping[str, Any],
    needed: Iterable[str] = (),
) -> None:
    """Lets the agent join a call that never happens, so that variables which the agent lacks (of `needed`
    too) are reported now and not when the call is answered. Raises `InvalidRequest`."""
    try:
        mind = engines.agent_engines(agent.id).agent
    except EngineError as error:
        raise InvalidRequest(f"Agent's engine is not available: {error}") from None
    known = {**promised(agent.pre_call_tools), **variables}
    context = AgentContext("", agent.language, agent.greeting, known, metadata)
    try:
        raise_missing("promptVariables", set(needed) - known.keys())
        mind.join(context)
    except (SettingsRefused, EngineError, ValueError) as error:
        raise InvalidRequest(f"Agent cannot take this call: {error}") from None
