"""What a key may touch: decided here, for every kind of thing, and nowhere else.

Everything is a company's, and what is another company's is not there for a key. A key may be for certain
agents: of what belongs to an agent (calls, batches, rooms) only theirs is there for such a key, and what is
the company's as a whole (numbers that are never dialled, its management) is not for it at all.
"""

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
        """Whose it is."""

    @property
    def agent_id(self) -> str:
        """The agent, written as in the directory."""


class OfCompany(Protocol):
    """Something that belongs to a company as a whole."""

    @property
    def company(self) -> str:
        """Whose it is."""


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
        """`thing`, a call, batch or room. Raises `NotFound` with `unknown`, whether there is no such thing or
        it is not for this key."""
        if thing is None or thing.company_id != self.company_id:
            raise NotFound(unknown)
        if self.agents and thing.agent_id not in self.agents:
            raise NotFound(unknown)
        return thing

    def companys_thing(self, thing: AnyOfCompany | None, unknown: str) -> AnyOfCompany:
        """`thing`, a trunk, agent or webhook. Raises `NotFound` with `unknown`."""
        if thing is None or not self.owns(thing):
            raise NotFound(unknown)
        return thing

    def owns(self, thing: OfCompany) -> bool:
        """Whether `thing` is listed."""
        return bool(self.company_id) and thing.company == self.company_id

    def sees_company(self, company_id: str) -> bool:
        """Whether a company's terms are told."""
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
        """`name`, which a client chose (an Idempotency-Key), as what it is kept under in the company: keys
        for different agents never meet one another's."""
        if not self.agents:
            return name
        return f"{hashlib.sha256(' '.join(sorted(self.agents)).encode()).hexdigest()[:16]} {name}"
