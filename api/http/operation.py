"""What each route takes, answers and asks of its caller: said once, beside its handler.

The same words let callers in (`api.http.auth`), check what they send (`api.http.bodies`) and make the OpenAPI
document (`api.http.openapi`), so that none of them can drift from the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from types import UnionType
from typing import TypeVar

from aiohttp.typedefs import Handler
from pydantic import BaseModel

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Scope(StrEnum):
    """What a key may be used for. ADMIN manages a company; the server's own admin key manages all of them."""

    CALLS = "calls"
    WEB_CALLS = "web-calls"
    SPEECH = "speech"
    ADMIN = "admin"


class About(Enum):
    """Whose things an operation touches, by which a key that is for certain agents is judged.

    AGENT: things of one agent each; `mediaserver.admin.access` finds those of the key's agents. COMPANY: the
    company as a whole; such a key may not. REQUEST: nothing but what the request carries. SERVER: companies.
    """

    AGENT = auto()
    COMPANY = auto()
    REQUEST = auto()
    SERVER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    `scopes`: any one of them opens it; () opens it to everybody. `about`: unless it says otherwise, an
    operation is closed to keys that are for certain agents. The server's admin key names with `?company=`
    which company it is about. `media`: other content types of its success than JSON;
    `ranges`: a part of it can be asked for. `body_type`: the body's. `key_optional`: a key is read where
    there is one, though `scopes` is (). `headers`: request headers that it reads, with what they are for.
    """

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
    ranges: bool = False
    errors: tuple[int, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def takes_company(self) -> bool:
        """Whether `?company=` means something here."""
        return self.about in (About.AGENT, About.COMPANY) and Scope.ADMIN in self.scopes

    def __call__(self, handler: AnyHandler) -> AnyHandler:
        """Describes `handler`: a decorator, below the route's."""
        _OPERATIONS[handler] = self
        return handler


_OPERATIONS: dict[Handler, Operation] = {}


def operation_of(handler: Handler) -> Operation | None:
    """The operation that describes a handler, None for one that is not described."""
    return _OPERATIONS.get(handler)
