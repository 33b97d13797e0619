"""The companies, trunks, agents and webhooks that this node serves: those of the configuration file, and
those managed over the API.

Code that needs a trunk or an agent asks the directory each time, and so gets it as it is now. `show` replaces
what is managed over the API, `reread` what the file says. Where both have an object of the same id, the
file's counts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from mediaserver.admin.number_plan import NumberPlan
from mediaserver.admin.sealing import Vault
from mediaserver.errors import LocalError
from mediaserver.settings import (
    AgentSettings,
    CompanySettings,
    RoomsSettings,
    ServerSettings,
    Settings,
    SipSettings,
    TrunkSettings,
    UserSettings,
    WebhookSettings,
    reveal,
)
from mediaserver.store.config import subscription_id
from mediaserver.store.managed import Kind, ManagedRow

AnyTable = TypeVar("AnyTable", bound=BaseModel)

log = logging.getLogger(__name__)

NOTHING_FROM_THE_ENVIRONMENT: Mapping[str, Any] = {"environment": {}}
"""An object managed over the API cannot use `env:NAME`: the server's secrets are not its customers'."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A webhook with its id and the id of its company."""

    id: str
    company: str
    settings: WebhookSettings


class Directory:
    """Looks up companies, trunks, agents and webhooks by id. Holds those of `file` at first; without a
    `vault` nothing that is managed over the API can be read."""

    def __init__(self, file: Settings, vault: Vault | None = None) -> None:
        self.revision = -1
        self.confirmed_at = 0.0
        """Loop time at which the database last confirmed these tables."""
        self._vault = vault
        self._shown: list[tuple[ManagedRow, Any]] = []
        self.reread(file)

    # This installation's own tables -------------------------------------------------------------------------

    @property
    def server(self) -> ServerSettings:
        """The table [server] of the configuration file."""
        return self.file.server

    @property
    def sip(self) -> SipSettings:
        """The table [sip] of the configuration file."""
        return self.file.sip

    @property
    def rooms(self) -> RoomsSettings:
        """The table [rooms] of the configuration file."""
        return self.file.rooms

    # Who and what -------------------------------------------------------------------------------------------

    def company(self, company_id: str) -> CompanySettings | None:
        """Returns the company of that id, None for an unknown one."""
        return self.companies.get(company_id)

    def trunk(self, trunk_id: str) -> TrunkSettings | None:
        """Returns the trunk of that id, or the line of a company's users; None for an unknown one."""
        return self.trunks.get(trunk_id) or self.lines.get(trunk_id)

    def user(self, company_id: str, name: str) -> UserSettings | None:
        """Returns a user of a company, None for an unknown one."""
        user = self.users.get(name)
        return user if user is not None and user.company == company_id else None

    def agent(self, agent_id: str) -> AgentSettings | None:
        """Returns the agent of that id, None for an unknown one."""
        return self.agents.get(agent_id)

    def of_file(self, kind: Kind, thing_id: str) -> bool:
        """Whether the configuration file has a `kind` with the id `thing_id`."""
        tables: Mapping[Kind, Mapping[str, object]] = {
            Kind.COMPANY: self._file_companies,
            Kind.TRUNK: self._file_trunks | self.lines,
            Kind.AGENT: self._file_agents,
            Kind.WEBHOOK: self._file_webhooks,
        }
        return thing_id in tables[kind]

    def secrets(self) -> dict[str, tuple[str, ...]]:
        """Returns the signing secrets of every webhook by its id, the newest first."""
        return {
            each.id: tuple(
                reveal(secret)
                for secret in (each.settings.secret, each.settings.previous_secret)
                if secret is not None
            )
            for each in self.webhooks.values()
        }

    # What is managed over the API ---------------------------------------------------------------------------

    def reread(self, file: Settings) -> None:
        """Replaces what came from the configuration file by what `file` says."""
        self.file = file
        self._file_companies = {company.id: company for company in file.companies}
        self._file_trunks = {trunk.id: trunk for trunk in file.trunks}
        self.lines = {line.id: line for line in file.lines}
        self.users = {user.name: user for user in file.sip.users}
        self._file_agents = {agent.id: agent for agent in file.agents}
        self._file_webhooks = {each.id: each for each in _subscriptions(file.companies)}
        self._take(self._shown)

    def show(self, rows: Iterable[ManagedRow], revision: int) -> None:
        """Replaces what is managed over the API. A row that cannot be read is left out and logged."""
        self._take([(row, thing) for row in rows if (thing := self._read(row)) is not None])
        self.revision = revision

    def _take(self, read: list[tuple[ManagedRow, Any]]) -> None:
        self._shown = read

        def managed(kind: Kind) -> dict[str, Any]:
            return {row.id: thing for row, thing in read if row.kind is kind}

        companies: dict[str, CompanySettings] = managed(Kind.COMPANY) | self._file_companies
        trunks: dict[str, TrunkSettings] = managed(Kind.TRUNK) | self._file_trunks
        agents: dict[str, AgentSettings] = managed(Kind.AGENT) | self._file_agents
        webhooks: dict[str, Subscription] = managed(Kind.WEBHOOK) | self._file_webhooks
        # Objects of a company that was removed are removed with it.
        self.companies = companies
        self.trunks = {name: each for name, each in trunks.items() if each.company in companies}
        self.agents = {name: each for name, each in agents.items() if each.company in companies}
        self.webhooks = {name: each for name, each in webhooks.items() if each.company in companies}
        self.numbers = self.numbers_with()

    def numbers_with(
        self, *, agents: Iterable[AgentSettings] = (), trunks: Iterable[TrunkSettings] = ()
    ) -> NumberPlan:
        """Returns who answers which number, were these agents and trunks added or changed."""
        return NumberPlan(
            (self.agents | {agent.id: agent for agent in agents}).values(),
            trunks=self.trunks | {trunk.id: trunk for trunk in trunks} | self.lines,
            companies=self.companies,
            of_file=self._file_agents,
        )

    def _read(self, row: ManagedRow) -> object | None:
        if self._vault is None:
            return None
        try:
            document = json.loads(self._vault.open(row.document))
            thing: object = thing_of(row.kind, row.id, row.company_id, document)
            return thing
        except (LocalError, ValueError) as error:  # ValidationError and JSONDecodeError are ValueErrors
            reason = (
                f"{len(error.errors())} wrong fields" if isinstance(error, ValidationError) else str(error)
            )
            log.error("managed row left out", extra={"kind": row.kind, "id": row.id, "reason": reason})
            return None


def thing_of(kind: Kind, thing_id: str, company_id: str, document: Mapping[str, Any]) -> Any:
    """Returns the settings of a document: the table by its fields, without id and company. Raises
    `pydantic.ValidationError`."""
    if kind is Kind.WEBHOOK:
        return Subscription(thing_id, company_id, _table(WebhookSettings, document))
    if kind is Kind.COMPANY:
        return _table(CompanySettings, {**document, "id": thing_id})
    named = {**document, "id": thing_id, "company": company_id}
    return _table(TrunkSettings if kind is Kind.TRUNK else AgentSettings, named)


def _table(model: type[AnyTable], document: Mapping[str, Any]) -> AnyTable:
    return model.model_validate(document, by_name=True, by_alias=False, context=NOTHING_FROM_THE_ENVIRONMENT)


def _subscriptions(companies: Iterable[CompanySettings]) -> Iterable[Subscription]:
    for company in companies:
        for hook in company.webhooks:
            yield Subscription(subscription_id(company.id, hook.url), company.id, hook)
