"""Which agent answers a called number, and who may claim it where companies share a carrier's addresses.

A trunk whose `allow_from` names an address that no other company's trunk names is its company's own: its
agents answer whatever they claim. Where trunks of several companies share the address, the number decides:

1. A number in a company's `caller_ids` is that company's alone, and a company that lists numbers claims no
   other.
2. A number that no company lists goes to an agent of the configuration file, before those managed over the
   API; these claim numbers, and no patterns.
3. Of several claims the closest counts: the number itself, then the longest pattern, then the catch-all.
4. Two companies with equal claims: neither."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mediaserver.e164 import normalise
from mediaserver.errors import InvalidNumber
from mediaserver.settings import AgentSettings, CompanySettings, TrunkSettings


@dataclass(frozen=True, slots=True)
class Claim:
    """An agent that answers `number`, by the plan of its company's country; `closeness` orders claims."""

    agent: AgentSettings
    number: str
    closeness: int


EXACT = 1000
"""The closeness of the number itself."""


class NumberPlan:
    """The inbound agents of `agents` by the numbers that they answer on each trunk. `of_file`: the ids of the
    configuration file's agents."""

    def __init__(
        self,
        agents: Iterable[AgentSettings],
        *,
        trunks: Mapping[str, TrunkSettings],
        companies: Mapping[str, CompanySettings],
        of_file: Collection[str],
    ) -> None:
        self._trunks = trunks
        self._companies = companies
        self._of_file = of_file
        self._owners = {number: each.id for each in companies.values() for number in each.caller_ids or ()}
        self._numbers: dict[tuple[str, str], list[AgentSettings]] = defaultdict(list)
        for agent in agents:
            if agent.direction == "inbound" and agent.trunk and agent.phone_number:
                self._numbers[agent.trunk, agent.phone_number].append(agent)

    def agent(self, called: str, trunk_ids: Sequence[str]) -> AgentSettings | None:
        """Returns the agent that answers `called`, as the carrier writes it, on one of the trunks over which
        the call may have come; None where no agent does."""
        claims = [claim for trunk_id in trunk_ids for claim in self._claims(called, trunk_id)]
        if len({self._company_of(trunk_id) for trunk_id in trunk_ids}) > 1:
            claims = self._allowed(claims)
        best = max((claim.closeness for claim in claims), default=0)
        closest = [claim.agent for claim in claims if claim.closeness == best]
        return closest[0] if len({agent.company for agent in closest}) == 1 else None

    def gets(self, agent: AgentSettings) -> bool:
        """Whether `agent` answers its number on its trunk, and no other company's agent has a claim as good
        where that trunk shares addresses."""
        sharing = self._sharing(agent.trunk or "")
        if agent.direction != "inbound" or agent.phone_number is None:
            return True
        if {self._company_of(trunk_id) for trunk_id in sharing} == {agent.company}:
            return True
        found = self.agent(agent.phone_number, sharing)
        return found is not None and found.company == agent.company

    def _sharing(self, trunk_id: str) -> list[str]:
        """Returns the ids of the trunks with addresses of this trunk's `allow_from`, itself included."""
        trunk = self._trunks.get(trunk_id)
        if trunk is None:
            return []
        return [trunk_id, *(name for name, each in self._trunks.items() if each.shares_addresses(trunk))]

    def _claims(self, called: str, trunk_id: str) -> list[Claim]:
        number = self._number(called, trunk_id)
        return [Claim(agent, number, EXACT) for agent in self._numbers.get((trunk_id, number), ())]

    def _allowed(self, claims: Sequence[Claim]) -> list[Claim]:
        """Returns those of the `claims` over shared addresses that rules 1 and 2 allow."""
        listed = [claim for claim in claims if self._owners.get(claim.number) == claim.agent.company]
        if listed:
            return listed
        unlisted = [
            claim
            for claim in claims
            if claim.number not in self._owners and self._companies[claim.agent.company].caller_ids is None
        ]
        of_file = [claim for claim in unlisted if claim.agent.id in self._of_file]
        return of_file or [claim for claim in unlisted if claim.closeness == EXACT]

    def _number(self, called: str, trunk_id: str) -> str:
        """Returns `called` as E.164, or as it is where it is no such number."""
        company = self._companies.get(self._company_of(trunk_id))
        try:
            return normalise(called, company.country if company is not None else None)
        except InvalidNumber:
            return called

    def _company_of(self, trunk_id: str) -> str:
        trunk = self._trunks.get(trunk_id)
        return trunk.company if trunk is not None else ""
