"""Checks between the tables of a file: references that lead somewhere, names used once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mediaserver.numbers.calling_windows import overlap
from mediaserver.settings.agent import AgentSettings
from mediaserver.settings.document import Settings
from pipeline.engines.tables import reveal
from sip.pjsip.refused import missing, refused

Problem = tuple[str, str]
"""A problem of a setting: its key and the reason."""


def broken_rules(settings: Settings) -> Iterator[Problem]:
    """Yields every broken rule of a file whose tables are valid by themselves."""
    yield from _repeated("company[{}].id", (company.id for company in settings.companies))
    yield from _repeated("trunk[{}].id", (trunk.id for trunk in settings.trunks))
    yield from _repeated("agent[{}].id", (agent.id for agent in settings.agents))
    yield from _keys(settings)
    yield from _webhooks(settings)
    yield from _trunks(settings)
    yield from _users(settings)
    yield from _agents(settings)
    yield from _inbound_numbers(settings)
    yield from _shared_numbers(settings)
    yield from _caller_ids(settings)


def _caller_ids(settings: Settings) -> Iterator[Problem]:
    """Yields caller IDs that two companies list, and agents that show a number which their company does not
    list."""
    owners: dict[str, int] = {}
    for place, company in enumerate(settings.companies):
        for number in company.caller_ids or ():
            if owners.setdefault(number, place) != place:
                yield f"company[{place}].caller_ids", f"company[{owners[number]}] lists {number} already"
    listed = {company.id: company.caller_ids for company in settings.companies}
    for place, agent in enumerate(settings.agents):
        own = listed.get(agent.company)
        if own is not None and agent.direction == "outbound" and agent.phone_number not in (None, *own):
            yield f"agent[{place}].phone_number", f"is not among the caller_ids of company {agent.company!r}"


def _repeated(key: str, names: Iterable[str]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for place, name in enumerate(names):
        if name in seen:
            yield key.format(place), f"already used by {key.format(seen[name])}"
        seen.setdefault(name, place)


def _keys(settings: Settings) -> Iterator[Problem]:
    seen = {reveal(settings.server.admin_key): "server.admin_key"}
    for place, company in enumerate(settings.companies):
        for number, key in enumerate(company.keys):
            where = f"company[{place}].key[{number}].key"
            first = seen.setdefault(reveal(key.key), where)
            if first != where:
                yield where, f"the same key as {first}"


def _webhooks(settings: Settings) -> Iterator[Problem]:
    for place, company in enumerate(settings.companies):
        yield from _repeated(f"company[{place}].webhook[{{}}].url", (hook.url for hook in company.webhooks))


def _trunks(settings: Settings) -> Iterator[Problem]:
    sip = settings.sip
    if settings.trunks and sip.udp is None and sip.tcp is None and sip.tls is None:
        yield "sip.udp", "trunks need udp, tcp or tls"
    companies = {company.id for company in settings.companies}
    for place, trunk in enumerate(settings.trunks):
        if trunk.company not in companies:
            yield f"trunk[{place}].company", f"there is no company {trunk.company!r}"
        if (trunk.engine or sip.engine) == "pjsua2":
            where = f"trunk[{place}]."
            if lack := missing():
                yield where + "engine", lack
            yield from ((where + key, reason) for key, reason in refused(trunk))


def _users(settings: Settings) -> Iterator[Problem]:
    sip = settings.sip
    yield from _repeated("sip.user[{}].name", (user.name for user in sip.users))
    companies = {company.id for company in settings.companies}
    agents = {agent.id: agent.company for agent in settings.agents}
    for place, user in enumerate(sip.users):
        here = f"sip.user[{place}]"
        if user.company not in companies:
            yield f"{here}.company", f"there is no company {user.company!r}"
        if any(user.name == trunk.username for trunk in settings.trunks):
            yield f"{here}.name", "is the username of a trunk"
        for agent in user.agents or ():
            if agents.get(agent, user.company) != user.company:
                yield f"{here}.agents", f"agent {agent} is another company's"


def _agents(settings: Settings) -> Iterator[Problem]:
    companies = {company.id: company for company in settings.companies}
    owner = {trunk.id: trunk.company for trunk in settings.trunks}
    for place, agent in enumerate(settings.agents):
        here = f"agent[{place}]"
        if agent.company not in companies:
            yield f"{here}.company", f"there is no company {agent.company!r}"
            continue
        if agent.trunk is None:
            on_the_phone = agent.phone_number is not None or agent.direction == "inbound"
            if on_the_phone and not any(user.company == agent.company for user in settings.sip.users):
                yield f"{here}.trunk", "an agent with a phone number needs the trunk that it is reached over"
            continue
        strange = [name for name in agent.trunk_names if owner.get(name) != agent.company]
        for name in strange:
            key = "trunk" if name == agent.trunk else "trunks"
            yield f"{here}.{key}", f"company {agent.company!r} has no trunk {name!r}"
        if strange:
            continue
        if agent.direction == "outbound" and not companies[agent.company].prefixes:
            yield (
                f"{here}.trunk",
                f"company {agent.company!r} may dial nothing: it has no dial_prefixes or country",
            )


def _inbound_numbers(settings: Settings) -> Iterator[Problem]:
    """Yields numbers and patterns that two agents answer on one trunk at the same time."""
    claimed: dict[tuple[str | None, str], list[int]] = {}
    for place, agent in enumerate(settings.agents):
        for number in agent.called_at if agent.direction == "inbound" else ():
            places = claimed.setdefault((agent.trunk, number), [])
            for first in places:
                if _at_once(settings.agents[first], agent):
                    key = "phone_number" if number == agent.phone_number else "phone_numbers"
                    reason = f"agent[{first}] answers this number on the same trunk already"
                    yield f"agent[{place}].{key}", reason
            places.append(place)


def _at_once(one: AgentSettings, other: AgentSettings) -> bool:
    """Whether both agents would answer at some moment: of one with hours and one without, the one with."""
    if not (one.answering_windows and other.answering_windows):
        return not one.answering_windows and not other.answering_windows
    return one.time_zone == other.time_zone and overlap(one.answering_windows, other.answering_windows)


def _shared_numbers(settings: Settings) -> Iterator[Problem]:
    """Yields the numbers that agents of two companies answer where their trunks share addresses."""
    trunks = {trunk.id: trunk for trunk in settings.trunks}
    claimed: dict[str, list[int]] = {}
    for place, agent in enumerate(settings.agents):
        trunk = trunks.get(agent.trunk or "")
        for number in agent.called_at if agent.direction == "inbound" and trunk is not None else ():
            places = claimed.setdefault(number, [])
            for first in places:
                other = trunks[settings.agents[first].trunk or ""]
                if trunk is not None and other.company != trunk.company and other.shares_addresses(trunk):
                    reason = f"agent[{first}] of another company answers this number over the same addresses"
                    yield f"agent[{place}].phone_number", reason
            places.append(place)
