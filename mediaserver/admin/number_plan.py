"""Which agent answers a called number, and who may claim it where companies share a carrier's addresses.

A trunk whose `allow_from` names an address that no other company's trunk names is its company's own: its
agents answer whatever they claim. Where trunks of several companies share the address, the number decides:

1. A number in a company's `caller_ids` is that company's alone, and a company that lists numbers claims no
   other.
2. A number that no company lists goes to an agent of the configuration file, before those managed over the
   API; these claim numbers, and no patterns.
3. Of several claims the closest counts: the number itself, then the longest pattern, then the catch-all.
4. Two companies with equal claims: neither.

On the line of a company's users every inbound agent of the company answers, by its numbers and its id."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mediaserver.errors import InvalidNumber
from mediaserver.numbers.calling_windows import local_zones, next_open_ms
from mediaserver.numbers.e164 import normalise
from mediaserver.numbers.patterns import EXACT, NumberPattern, parse_number_pattern
from mediaserver.numbers.users import LINE
from mediaserver.settings import AgentSettings, CompanySettings, TrunkSettings


@dataclass(frozen=True, slots=True)
class NumberClaim:
    """An agent that answers `number`, by the plan of its company's country; `closeness` orders claims."""

    agent: AgentSettings
    number: str
    closeness: int


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
        self._patterns: dict[str, list[tuple[NumberPattern, AgentSettings]]] = defaultdict(list)
        for agent in agents:
            if agent.direction == "inbound" and agent.trunk:
                self._add(agent, agent.trunk)
            line = f"{LINE}{agent.company}"
            if agent.direction == "inbound" and line in trunks:
                self._add(agent, line)
                self._numbers[line, agent.id].append(agent)

    def _add(self, agent: AgentSettings, trunk_id: str) -> None:
        for pattern in map(parse_number_pattern, agent.called_at):
            if pattern.exact:
                self._numbers[trunk_id, pattern.text].append(agent)
            else:
                self._patterns[trunk_id].append((pattern, agent))

    def agent(self, called: str, trunk_ids: Sequence[str], at_ms: int | None = None) -> AgentSettings | None:
        """Returns the agent that answers `called`, as the carrier writes it, on one of the trunks over which
        the call may have come, at `at_ms` (Unix time; None: whenever it answers); None where no agent
        does. Of agents that answer the same numbers those with hours come first."""
        claims = [
            claim
            for trunk_id in trunk_ids
            for claim in self._claims(called, trunk_id)
            if at_ms is None or self._answers_at(claim, at_ms)
        ]
        if len({self._company_of(trunk_id) for trunk_id in trunk_ids}) > 1:
            claims = self._allowed(claims)
        best = max((claim.closeness for claim in claims), default=0)
        closest = [claim.agent for claim in claims if claim.closeness == best]
        closest.sort(key=lambda agent: not agent.answering_windows)
        return closest[0] if len({agent.company for agent in closest}) == 1 else None

    def gets(self, agent: AgentSettings) -> bool:
        """Whether the company of `agent` gets the calls to each of its numbers (not its patterns) where its
        trunk shares addresses."""
        sharing = self._sharing(agent.trunk or "")
        if agent.direction != "inbound" or {self._company_of(each) for each in sharing} == {agent.company}:
            return True
        found = [
            self.agent(pattern.text, sharing)
            for pattern in map(parse_number_pattern, agent.called_at)
            if pattern.exact
        ]
        return all(each is not None and each.company == agent.company for each in found)

    def _sharing(self, trunk_id: str) -> list[str]:
        """Returns the ids of the trunks with addresses of this trunk's `allow_from`, itself included."""
        trunk = self._trunks.get(trunk_id)
        if trunk is None:
            return []
        return [trunk_id, *(name for name, each in self._trunks.items() if each.shares_addresses(trunk))]

    def _claims(self, called: str, trunk_id: str) -> list[NumberClaim]:
        number = self._number(called, trunk_id)
        exact = [
            NumberClaim(agent, number, EXACT)
            for text in {number, called}
            for agent in self._numbers.get((trunk_id, text), ())
        ]
        return exact + [
            NumberClaim(agent, number, pattern.closeness)
            for pattern, agent in self._patterns.get(trunk_id, ())
            if pattern.matches(called, number)
        ]

    def _answers_at(self, claim: NumberClaim, at_ms: int) -> bool:
        """Whether the agent answers at that time: by its own clock, else that of the called number, else that
        of its company's country."""
        agent = claim.agent
        if not agent.answering_windows:
            return True
        country = self._companies[agent.company].country or ""
        number = claim.number if claim.number.startswith("+") else ""
        zones = (agent.time_zone,) if agent.time_zone is not None else local_zones(number, country)
        return next_open_ms(agent.answering_windows, zones, at_ms) == at_ms

    def _allowed(self, claims: Sequence[NumberClaim]) -> list[NumberClaim]:
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
