"""Shares lookup, listing, changing and removing between the kinds of managed things."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from aiohttp import web
from pydantic import BaseModel

from api.http.auth import SERVER, caller_of
from api.http.bodies import answer, checked, json_object, query_of
from api.schemas.camel_case import MASK, plain, spelt, written
from api.schemas.managed import Done, PageQuery
from mediaserver.admin.access import OfCompany
from mediaserver.admin.directory import NOTHING_FROM_THE_ENVIRONMENT
from mediaserver.errors import Conflict, InvalidRequest
from mediaserver.server import Server
from mediaserver.store.managed import BY_FILE, Kind

AnyOwned = TypeVar("AnyOwned", bound=OfCompany)


class _Named(Protocol):
    @property
    def id(self) -> str: ...


Thing = TypeVar("Thing", bound=_Named)

_SECRET_OPTION = re.compile(r"key|secret|token|password|auth|credential", re.IGNORECASE)


def own(request: web.Request, things: Mapping[str, AnyOwned]) -> list[AnyOwned]:
    """Returns those of `things` that belong to the caller's company."""
    access = caller_of(request).access
    return [each for each in things.values() if access.owns(each)]


def one_of(request: web.Request, things: Mapping[str, AnyOwned], part: str, unknown: str) -> AnyOwned:
    """Returns the thing whose id is in the path, of the caller's company. Raises `NotFound` with
    `unknown`."""
    return caller_of(request).access.companys_thing(things.get(request.match_info[part]), unknown)


def page_answer(
    request: web.Request,
    page: type[BaseModel],
    items: str,
    things: Iterable[Thing],
    view: Callable[[Server, Thing], BaseModel],
) -> web.Response:
    """Answers the page of `things`, ordered by id, that the query asks for."""
    query, server = query_of(request, PageQuery), request.app[SERVER]
    after = sorted((each for each in things if each.id > query.cursor), key=attrgetter("id"))
    shown = after[: query.limit]
    cursor = shown[-1].id if len(after) > query.limit else None
    return answer(page.model_validate({items: [view(server, each) for each in shown], "cursor": cursor}))


async def body_of(request: web.Request) -> dict[str, Any]:
    """Returns the JSON body. Raises `InvalidRequest`, also where a value is the mask of a secret."""
    body = await json_object(request)
    masked = _masked_at(body)
    if masked is not None:
        raise InvalidRequest(f"{masked}: is what a secret is shown as; leave it out to keep the secret")
    return body


def _masked_at(value: Any, path: str = "") -> str | None:
    if isinstance(value, dict):
        found = (_masked_at(inner, f"{path}.{name}" if path else name) for name, inner in value.items())
        return next((each for each in found if each is not None), None)
    return path if value == MASK else None


async def document_for(request: web.Request, model: type[BaseModel]) -> dict[str, Any]:
    """Validates the body as `model` and returns its values by the settings' field names."""
    return plain(checked(model, await body_of(request), context=NOTHING_FROM_THE_ENVIRONMENT))


async def changed_document(
    request: web.Request, thing: BaseModel, model: type[BaseModel], *, beside: Iterable[str]
) -> dict[str, Any]:
    """Returns the values of `thing`, replaced by those of the body. `beside`: fields of `thing` that `model`
    lacks. Raises `InvalidRequest`."""
    before = {name: value for name, value in plain(thing).items() if name not in set(beside)}
    spelled = written(spelt(model, before))
    merged = spelled | await body_of(request)
    return plain(checked(model, merged, context=NOTHING_FROM_THE_ENVIRONMENT))


def check_not_of_file(server: Server, kind: Kind, thing_id: str) -> None:
    """Raises `Conflict` for a thing of the configuration file."""
    if server.directory.of_file(kind, thing_id):
        raise Conflict(BY_FILE)


def managed_by(server: Server, kind: Kind, thing_id: str) -> str:
    """Says where a thing is changed: "file" (the configuration) or "api"."""
    return "file" if server.directory.of_file(kind, thing_id) else "api"


async def removed(request: web.Request, kind: Kind, thing_id: str) -> web.Response:
    """Removes a thing that the API manages. Raises `Conflict` for one of the configuration file."""
    server = request.app[SERVER]
    check_not_of_file(server, kind, thing_id)
    await server.administration.remove(kind, thing_id)
    return answer(Done(success=True))


def masked(options: Any) -> Any:
    """Returns an engine's options with texts that may be secrets masked."""
    if isinstance(options, list | tuple):
        return [masked(each) for each in options]
    if not isinstance(options, Mapping):
        return options
    return {
        name: MASK if _SECRET_OPTION.search(name) and isinstance(value, str) else masked(value)
        for name, value in options.items()
    }
