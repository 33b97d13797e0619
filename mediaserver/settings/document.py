"""The configuration file as a whole. No message contains a value that may be a secret."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, Field
from pydantic_core import PydanticUndefined

from mediaserver.settings.agent import (
    AgentSettings,
)
from mediaserver.settings.company import (
    CompanySettings,
    TrunkSettings,
)
from mediaserver.settings.server import (
    OverloadSettings,
    RoomsSettings,
    ServerSettings,
    SipSettings,
    SpeechSettings,
    TracingSettings,
)
from mediaserver.settings.users import line_of
from pipeline.engines.tables import Table

REQUIRED = object()
"""In `defaults_document`: the key has no default and must be given."""


class Settings(Table):
    """A whole configuration file. The file's arrays of tables are `companies`, `trunks` and `agents` here."""

    server: ServerSettings = ServerSettings()
    sip: SipSettings = SipSettings()
    rooms: RoomsSettings = RoomsSettings()
    tracing: TracingSettings = TracingSettings()
    overload: OverloadSettings = OverloadSettings()
    speech: SpeechSettings = SpeechSettings()
    companies: tuple[CompanySettings, ...] = Field(default=(), alias="company")
    trunks: tuple[TrunkSettings, ...] = Field(default=(), alias="trunk")
    agents: tuple[AgentSettings, ...] = Field(default=(), alias="agent")

    @property
    def lines(self) -> tuple[TrunkSettings, ...]:
        """The lines of the companies that have users."""
        return tuple(line_of(company) for company in dict.fromkeys(user.company for user in self.sip.users))

    def company(self, company_id: str) -> CompanySettings | None:
        """Returns the company of that id, None for an unknown one."""
        return next((company for company in self.companies if company.id == company_id), None)

    def trunk(self, trunk_id: str) -> TrunkSettings | None:
        """Returns the trunk of that id, None for an unknown one."""
        return next((trunk for trunk in self.trunks if trunk.id == trunk_id), None)

    def agent(self, agent_id: str) -> AgentSettings | None:
        """Returns the agent of that id, None for an unknown one."""
        return next((agent for agent in self.agents if agent.id == agent_id), None)


def defaults_document() -> dict[str, Any]:
    """Returns every key that a file may have with its default, by dotted path: None for none, `REQUIRED`
    where it must be given. Tables in lists are named once, without an index; free tables end in `.*`."""
    return dict(_defaults(Settings, ""))


def _defaults(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        table = _table_in(field.annotation)
        if table is not None:
            yield from _defaults(table, f"{key}.")
        else:
            yield key, REQUIRED if field.default is PydanticUndefined else field.default


def _table_in(annotation: Any) -> type[Table] | None:
    """Returns the table in an annotation such as `tuple[KeySettings, ...] | None`, None without one."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    inner = (_table_in(argument) for argument in getattr(annotation, "__args__", ()))
    return next((table for table in inner if table is not None), None)
