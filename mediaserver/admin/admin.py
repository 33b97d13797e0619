"""Changes over the API while the server runs: companies, trunks, agents, webhooks.

A change is checked as the configuration file is, sealed, written in one transaction, put into this node's
directory and applied. Other nodes read the new revision within `POLL_S`."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from mediaserver.admin import egress_checks
from mediaserver.admin.directory import Directory, Subscription, thing_of
from mediaserver.admin.sealing import Vault
from mediaserver.engine_pool.auto import unheard_agents
from mediaserver.errors import Conflict, InvalidRequest, NotFound
from mediaserver.settings import (
    AgentSettings,
    CompanySettings,
    LlmSettings,
    Settings,
    TrunkSettings,
    problem_of,
)
from mediaserver.settings.checks import broken_rules
from mediaserver.store.config import agent_row, company_row, trunk_row, webhook_row
from mediaserver.store.managed import BY_FILE, Kind
from mediaserver.store.store import Store
from mediaserver.wiring import engine_problems
from pipeline import registry
from pipeline.net.egress import EgressPolicy
from sip.egress import is_address
from sip.message.uri import Uri
from sip.transaction.hop import hop_of

POLL_S = 2.0
"""How often a node looks for changes of other nodes."""

LIMITS: Mapping[Kind, int] = {Kind.TRUNK: 50, Kind.AGENT: 200, Kind.WEBHOOK: 20}
"""The most that a company may create over the API: each costs this server something while idle."""

Document = Mapping[str, Any]

PATTERN_LIMIT = 200
REPEATS_LIMIT = 4
_REPEATS = re.compile(r"[*+{]")
_NESTED = re.compile(r"\)[*+?{]|\(\?(?!:)")


class Administration:
    """Checks, stores and applies changes. `applied` is awaited after the directory has each."""

    def __init__(
        self, directory: Directory, store: Store, vault: Vault, *, applied: Callable[[], Awaitable[None]]
    ) -> None:
        self._directory = directory
        self._store = store
        self._vault = vault
        self._applied = applied
        self._egress = EgressPolicy(str(network) for network in directory.server.allow_networks)
        self._changing = asyncio.Lock()  # one change at a time: each is checked against what is there

    async def refresh(self) -> None:
        """Reads the database's companies, trunks, agents and webhooks, unless the directory has this
        revision."""
        asked_at = asyncio.get_running_loop().time()
        if await self._store.revision() != self._directory.revision:
            async with self._changing:
                await self._show()
        self._directory.confirmed_at = asked_at

    async def run(self) -> None:
        """Reads the changes of other nodes every `POLL_S` seconds until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            await self.refresh()

    async def save_company(self, company_id: str, document: Document, *, new: bool) -> CompanySettings:
        """Creates (`new`) or changes a company. Raises `InvalidRequest`, `Conflict`."""
        async with self._changing:
            company: CompanySettings = _thing(Kind.COMPANY, company_id, "", document)
            await self._put(Kind.COMPANY, company_row(company), document, new=new)
            return company

    async def save_trunk(
        self, company_id: str, trunk_id: str, document: Document, *, trusted: bool, new: bool
    ) -> TrunkSettings:
        """Creates (`new`) or changes a trunk. One that is not `trusted` (a customer's own) must lead to a
        public address, and may not take the addresses or the user name by which another company's calls come
        in. Raises `InvalidRequest`, `Conflict`."""
        if not trusted:
            await egress_checks.check_trunk(self._egress, _thing(Kind.TRUNK, trunk_id, company_id, document))
        async with self._changing:
            trunk: TrunkSettings = _thing(Kind.TRUNK, trunk_id, company_id, document)
            self._check_rules(company_id, trunk=trunk)
            if not trusted:
                _check_pattern(trunk.accepts)
                self._check_egress(trunk)
                self._check_takes_nobodys(trunk)
            self._check_numbers(trunk)
            self._check_room(Kind.TRUNK, company_id, self._directory.trunks.values(), new=new)
            await self._put(Kind.TRUNK, trunk_row(trunk), document, new=new)
            return trunk

    async def save_agent(
        self, company_id: str, agent_id: str, document: Document, *, trusted: bool, new: bool
    ) -> AgentSettings:
        """Creates (`new`) or changes an agent. The engines of one that is not `trusted` may name no file of
        this machine, and no address that the server does not connect to. Raises `InvalidRequest`,
        `Conflict`."""
        if not trusted:
            await egress_checks.check_agent(self._egress, _thing(Kind.AGENT, agent_id, company_id, document))
        async with self._changing:
            agent: AgentSettings = _thing(Kind.AGENT, agent_id, company_id, document)
            if not trusted:
                self._check_options(agent)
            self._check_rules(company_id, agent=agent)
            if not self._directory.numbers_with(agents=[agent]).gets(agent):
                raise Conflict("phoneNumber: cannot be given to this agent")
            await self._check_engines(agent)
            self._check_room(Kind.AGENT, company_id, self._directory.agents.values(), new=new)
            await self._put(Kind.AGENT, agent_row(agent), document, new=new)
            return agent

    async def save_webhook(
        self, company_id: str, webhook_id: str, document: Document, *, new: bool
    ) -> Subscription:
        """Creates (`new`) or changes a webhook. Raises `InvalidRequest`, `Conflict`."""
        hook: Subscription = _thing(Kind.WEBHOOK, webhook_id, company_id, document)
        await egress_checks.check_url(self._egress, "url", hook.settings.url)
        async with self._changing:
            self._check_room(Kind.WEBHOOK, company_id, self._directory.webhooks.values(), new=new)
            await self._put(
                Kind.WEBHOOK, webhook_row(webhook_id, company_id, hook.settings), document, new=new
            )
            return hook

    async def remove(self, kind: Kind, thing_id: str) -> None:
        """Removes a trunk, agent, webhook or company that the caller has looked up. Raises `Conflict`,
        `NotFound`."""
        async with self._changing:
            if kind is Kind.TRUNK and any(
                thing_id in agent.trunk_names for agent in self._directory.agents.values()
            ):
                raise Conflict("An agent uses this trunk")
            if not await self._store.remove(kind, thing_id):
                raise NotFound("It is gone already")
            await self._show()

    # What a change goes through -----------------------------------------------------------------------------

    async def _put(self, kind: Kind, row: Mapping[str, Any], document: Document, *, new: bool) -> None:
        if self._directory.of_file(kind, row["id"]):
            raise Conflict(BY_FILE)
        sealed = self._vault.seal(json.dumps(document, ensure_ascii=False))
        await self._store.put(kind, row, sealed, new=new)
        await self._show()

    async def _show(self) -> None:
        snapshot = await self._store.managed()
        self._directory.show(snapshot.rows, snapshot.revision)
        await self._applied()

    def _check_room(self, kind: Kind, company_id: str, things: Iterable[Any], *, new: bool) -> None:
        if new and sum(each.company == company_id for each in things) >= LIMITS[kind]:
            raise Conflict(f"A company has at most {LIMITS[kind]} of these")

    def _check_rules(
        self, company_id: str, *, trunk: TrunkSettings | None = None, agent: AgentSettings | None = None
    ) -> None:
        """Checks the rules between the tables, for this company's own: messages tell nothing of another
        company."""
        company = self._directory.company(company_id)
        if company is None:
            raise NotFound("Company not found")
        trunks = {name: each for name, each in self._directory.trunks.items() if each.company == company_id}
        agents = {name: each for name, each in self._directory.agents.items() if each.company == company_id}
        before = _problems(self._directory.file, company, trunks.values(), agents.values())
        if trunk is not None:
            trunks[trunk.id] = trunk
        if agent is not None:
            agents.pop(agent.id, None)
            agents[agent.id] = agent  # the last one: a clash is reported for it
        for key, reason in _problems(self._directory.file, company, trunks.values(), agents.values()):
            if (key, reason) not in before:
                raise InvalidRequest(
                    f"{key.rpartition('.')[2]}: {reason.replace('agent[', 'agent number [')}"
                )

    async def _check_engines(self, agent: AgentSettings) -> None:
        alone = self._directory.file.model_copy(update={"agents": (agent,)})
        for key, reason in engine_problems(alone):
            raise InvalidRequest(f"{key.partition('.')[2]}: {reason}")
        for key, reason in await asyncio.to_thread(lambda: list(unheard_agents(alone))):
            raise InvalidRequest(f"{key.partition('.')[2]}: {reason}")

    def _check_egress(self, trunk: TrunkSettings) -> None:
        proxies = (trunk.outbound_proxy,) if trunk.outbound_proxy else ()
        for uri in (trunk.uri, *trunk.backup_uris, *proxies):
            host = hop_of(Uri.parse(uri)).host.strip("[]")
            if is_address(host) and not self._egress.allows(host):
                raise InvalidRequest("uri: this server does not connect to that address")
        if trunk.stir is not None:
            self._check_url("stir", trunk.stir.url)

    def _check_takes_nobodys(self, trunk: TrunkSettings) -> None:
        """Refuses to share addresses unless the operator has listed the company's numbers, and any user name
        of another company."""
        others = [each for each in self._directory.trunks.values() if each.company != trunk.company]
        company = self._directory.companies[trunk.company]
        if not company.caller_ids and any(each.shares_addresses(trunk) for each in others):
            raise Conflict("allow_from: some of these addresses cannot be given to this trunk")
        taken = trunk.username in self._directory.users or any(
            each.username == trunk.username for each in others
        )
        if trunk.username and taken:
            raise Conflict("username: cannot be given to this trunk")

    def _check_numbers(self, trunk: TrunkSettings) -> None:
        plan = self._directory.numbers_with(trunks=[trunk])
        if not all(plan.gets(agent) for agent in self._directory.agents.values() if agent.trunk == trunk.id):
            raise Conflict("allow_from: some of these addresses cannot be given to this trunk")

    def _check_options(self, agent: AgentSettings) -> None:
        """Refuses engine options that name a file of this machine, or an address that the server does not
        connect to."""
        engines = [("stt", each) for each in agent.stt.chain] + [("tts", each) for each in agent.tts.chain]
        engines += [("ttsFallback", agent.tts_fallback)] if agent.tts_fallback is not None else []
        if agent.own is not None or any(":" in engine.engine for _, engine in engines):
            raise InvalidRequest("engine: only the server's own administrator may name classes")
        if not self._may_judge_turns(agent):
            raise InvalidRequest("turnModel: only the server's own administrator may name files and classes")
        tables: list[tuple[str, object, bool]] = [
            (name, engine.options, engine.engine in _REMOTE) for name, engine in engines
        ]
        tables += [("llm", _llm_urls(agent.llm), True)] if agent.llm is not None else []
        tables += [("realtime", {"url": agent.realtime.url}, True)] if agent.realtime is not None else []
        for name, options, is_remote in tables:
            for text in _strings(options):
                if text.startswith(("http://", "https://", "ws://", "wss://")):
                    self._check_url(name, text)
                elif not is_remote and _may_be_a_path(text):
                    raise InvalidRequest(f"{name}: only the server's own administrator may name files")

    def _may_judge_turns(self, agent: AgentSettings) -> bool:
        """Whether the agent's `turn_model` is an installed one, a file that the configuration file names too,
        or the file that the agent has already."""
        name, agents = agent.session.turn_model, self._directory.agents
        if not name or name in registry.known("scorer"):
            return True
        own = [each for each in agents.values() if self._directory.of_file(Kind.AGENT, each.id)]
        before = agents.get(agent.id)
        own += [before] if before is not None and before.company == agent.company else []
        return not registry.is_class(name) and any(each.session.turn_model == name for each in own)

    def _check_url(self, key: str, url: str) -> None:
        """Refuses a URL with a closed IP address. A name is resolved and checked at each connection."""
        host = (urlsplit(url).hostname or "").strip("[]")
        if is_address(host) and not self._egress.allows(host):
            raise InvalidRequest(f"{key}: this server does not connect to that address")


def _llm_urls(llm: LlmSettings) -> Mapping[str, str]:
    """Returns the URLs of a model, its tools and its fallbacks."""
    others = [tool.url for tool in llm.tools] + [server.url for server in llm.mcp]
    others += [model.base_url for model in llm.fallback]
    return {"base_url": llm.base_url, **{f"url{place}": url for place, url in enumerate(others)}}


def new_id(kind: Kind) -> str:
    """Makes an id for an object that is created over the API."""
    if kind is Kind.AGENT:
        return str(uuid.uuid4())
    return f"{'trunk' if kind is Kind.TRUNK else 'sub'}_{uuid.uuid4().hex[:16]}"


def _thing(kind: Kind, thing_id: str, company_id: str, document: Document) -> Any:
    try:
        return thing_of(kind, thing_id, company_id, document)
    except ValidationError as error:
        key, reason = problem_of(error.errors(include_url=False)[0])
        raise InvalidRequest(f"{key}: {reason}" if key else reason) from None


def _problems(
    file: Settings,
    company: CompanySettings,
    trunks: Iterable[TrunkSettings],
    agents: Iterable[AgentSettings],
) -> list[tuple[str, str]]:
    tables = {"companies": (company,), "trunks": tuple(trunks), "agents": tuple(agents)}
    return list(broken_rules(file.model_copy(update=tables)))


def _check_pattern(pattern: str) -> None:
    """Refuses a costly pattern: numbers are matched on the loop that carries the calls, and a pattern that
    repeats a repeat can take seconds over fifteen digits. Raises `InvalidRequest`."""
    simple = len(pattern) <= PATTERN_LIMIT and len(_REPEATS.findall(pattern)) <= REPEATS_LIMIT
    if not simple or _NESTED.search(pattern):
        raise InvalidRequest(
            f"accepts: at most {PATTERN_LIMIT} characters, {REPEATS_LIMIT} repeats, and no group repeated"
        )


_REMOTE = frozenset({"openai", "websocket"})
"""Engines behind a network, no option of which is a file."""


def _strings(value: Any) -> Iterator[str]:
    """Yields every text in an engine's options."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)
    elif isinstance(value, str):
        yield value


def _may_be_a_path(text: str) -> bool:
    return "/" in text or "\\" in text or text.startswith((".", "~"))
