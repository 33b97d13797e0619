"""Declares what each route takes, answers and requires of its caller, beside its handler.

`api.http.auth` authenticates, `api.http.bodies` validates and `api.http.openapi` documents by the same
`Operation`, so that none of these can differ from the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from functools import partial
from types import UnionType
from typing import TypeVar

from aiohttp.typedefs import Handler
from pydantic import BaseModel

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Scope(StrEnum):
    """Scope of an API key. ADMIN manages a company; the server's own admin key manages all companies."""

    CALLS = "calls"
    WEB_CALLS = "web-calls"
    SPEECH = "speech"
    ADMIN = "admin"


class About(Enum):
    """What an operation is about, by which a key that is limited to certain agents is authorised.

    AGENT: things of one agent each; `mediaserver.admin.access` finds those of the key's agents. COMPANY: the
    company as a whole, closed to such a key. REQUEST: only what the request carries. SERVER: companies."""

    AGENT = auto()
    COMPANY = auto()
    REQUEST = auto()
    SERVER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    `scopes`: any one of these opens the operation; () opens it to everybody. `about`: COMPANY, the default,
    closes it to keys that are limited to certain agents. The server's admin key names the company with
    `?company=`. `media`: content types of a success beside JSON. `streams`: `answer` comes again and again,
    as server-sent events. `ranges`: whether Range is served. `body_type`: content type of the body.
    `key_optional`: a key is read where there is one, though `scopes` is (). `headers`: the request headers
    that the handler reads, with descriptions."""

    summary: str
    answer: type[BaseModel] | UnionType | None = None
    body: type[BaseModel] | None = None
    body_required: bool = True
    body_type: str = "application/json"
    query: type[BaseModel] | None = None
    scopes: tuple[Scope, ...] = ()
    key_optional: bool = False
    about: About = About.COMPANY
    status: int = 200
    media: tuple[str, ...] = ()
    streams: bool = False
    ranges: bool = False
    errors: tuple[int, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def takes_company(self) -> bool:
        """Whether the operation reads `?company=`."""
        return self.about in (About.AGENT, About.COMPANY) and Scope.ADMIN in self.scopes

    def __call__(self, handler: AnyHandler) -> AnyHandler:
        """Registers the description of `handler`; a decorator, written below the route's."""
        _OPERATIONS[handler] = self
        return handler


of_agent = partial(Operation, scopes=(Scope.CALLS, Scope.ADMIN), about=About.AGENT)
"""Declares what keys of both calls and management open, for things of one agent each."""

of_company = partial(Operation, scopes=(Scope.ADMIN,))
"""Declares an operation of a company's management."""

of_server = partial(Operation, scopes=(Scope.ADMIN,), about=About.SERVER)
"""Declares an operation on companies, or on the node."""

_OPERATIONS: dict[Handler, Operation] = {}


def operation_of(handler: Handler) -> Operation | None:
    """Returns the operation that describes a handler, None where there is none."""
    return _OPERATIONS.get(handler)
