"""Decides what an API key may touch, for every kind of object: the one place where that is decided.

Everything belongs to a company, and a key does not see what belongs to another company. A key may be for
certain agents: of what belongs to an agent (calls, batches, rooms) such a key sees only what belongs to those
agents, and it may not touch what belongs to the company as a whole (numbers that are never dialled, its
management)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol, TypeVar

from mediaserver.errors import NotFound, ScopeMissing

DENIED = "Access denied to this agent"
WHOLE_COMPANY = "This API key is for certain agents only"
SERVER_ONLY = "Only the server's own admin key may do this"


class OfAgent(Protocol):
    """Something that belongs to an agent of a company."""

    @property
    def company_id(self) -> str:
        """The id of the company that the agent belongs to."""

    @property
    def agent_id(self) -> str:
        """The agent's id, written as in the directory."""


class OfCompany(Protocol):
    """Something that belongs to a company as a whole."""

    @property
    def company(self) -> str:
        """The id of the company that it belongs to."""


AnyOfAgent = TypeVar("AnyOfAgent", bound=OfAgent)
AnyOfCompany = TypeVar("AnyOfCompany", bound=OfCompany)


@dataclass(frozen=True, slots=True)
class Access:
    """What one key may touch. `company_id`: the company that it acts for, "" for none; `agents`: those that
    the key is for, none for all; `everywhere`: the server's own admin key, which sees every company."""

    company_id: str
    agents: frozenset[str] = frozenset()
    everywhere: bool = False

    def agents_thing(self, thing: AnyOfAgent | None, unknown: str) -> AnyOfAgent:
        """Returns `thing`, a call, batch or room. Raises `NotFound` with the message `unknown` where `thing`
        is None or not for this key."""
        if thing is None or not self.reaches(thing):
            raise NotFound(unknown)
        return thing

    def reaches(self, thing: OfAgent) -> bool:
        """Whether `thing`, a call, batch or room, is of the key's company and one of the key's agents."""
        if thing.company_id != self.company_id:
            return False
        return not self.agents or thing.agent_id in self.agents

    def companys_thing(self, thing: AnyOfCompany | None, unknown: str) -> AnyOfCompany:
        """Returns `thing`, a trunk, agent or webhook. Raises `NotFound` with the message `unknown` where
        `thing` is None or another company's."""
        if thing is None or not self.owns(thing):
            raise NotFound(unknown)
        return thing

    def owns(self, thing: OfCompany) -> bool:
        """Whether `thing` belongs to the company that the key acts for."""
        return bool(self.company_id) and thing.company == self.company_id

    def sees_company(self, company_id: str) -> bool:
        """Whether the key may read the terms of company `company_id`."""
        return self.everywhere or company_id == self.company_id

    def check_agent(self, agent_id: str) -> None:
        """Raises `ScopeMissing` for an agent that the key is not for, whether there is one or not."""
        if self.agents and agent_id.lower() not in self.agents:
            raise ScopeMissing(DENIED)

    def check_whole_company(self) -> None:
        """Raises `ScopeMissing` for a key that is for certain agents."""
        if self.agents:
            raise ScopeMissing(WHOLE_COMPANY)

    def check_everywhere(self) -> None:
        """Raises `ScopeMissing` for any but the server's own key."""
        if not self.everywhere:
            raise ScopeMissing(SERVER_ONLY)

    def namespaced(self, name: str) -> str:
        """Returns the name under which the company keeps `name`, which a client chose (an Idempotency-Key):
        keys for different agents never share one."""
        if not self.agents:
            return name
        return f"{hashlib.sha256(' '.join(sorted(self.agents)).encode()).hexdigest()[:16]} {name}"
