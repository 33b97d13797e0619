"""Who is asking: `Authorization: Bearer <key>` to a company and its scopes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler

from api.http.operation import About, Operation, Scope, operation_of
from api.http.peer import neighbourhood
from mediaserver.admin.access import Access
from mediaserver.admission.key_guessing import Change, Guesses
from mediaserver.admission.rate_limits import RateLimit
from mediaserver.errors import InvalidRequest, NotFound, ScopeMissing, TooMany, UnknownKey
from mediaserver.queue.records import KeyRow
from mediaserver.server import Server

__all__ = ["LIMITS", "SERVER", "Caller", "Scope", "authenticate", "bearer_key", "caller_of", "open_door"]

log = logging.getLogger(__name__)

SERVER: web.AppKey[Server] = web.AppKey("server", Server)
"""Where an application keeps the server that it is the face of."""

LIMITS: web.AppKey[RateLimit] = web.AppKey("limits", RateLimit)
"""Where it keeps the request limits of its callers."""

GUESSES: web.AppKey[Guesses] = web.AppKey("guesses", Guesses)
"""Where it keeps who guesses at keys."""

TOLD: web.AppKey[RateLimit] = web.AppKey("told", RateLimit)
"""How many of them are logged: the others are counted."""

TOLD_PER_MINUTE = 60

NO_COMPANY = "API key missing company information"

_KEY_LIMIT = 512
"""Longer than any key that we make; what is longer is not looked up."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a request is from, and what of the company that it is about they may touch."""

    access: Access
    scopes: frozenset[str]
    key_id: str = ""

    @property
    def company_id(self) -> str:
        """The company, "" where the operation is about no single one."""
        return self.access.company_id


_CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)


def caller_of(request: web.Request) -> Caller:
    """The `Caller` that `open_door` let in for this request. Raises KeyError on a route without scopes."""
    return request[_CALLER]


@web.middleware
async def open_door(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Lets callers in as the route's `Operation` says; routes without one see to it themselves."""
    operation = operation_of(request.match_info.handler)
    if any("\0" in value for name, value in request.match_info.items() if name != "phoneNumber"):
        raise web.HTTPNotFound  # not every database takes the question; numbers have rules of their own
    if operation is not None and operation.scopes:
        request[_CALLER] = await _admit(request, operation)
    return await handler(request)


async def authenticate(request: web.Request, *scopes: Scope) -> Caller:
    """The caller of `request`, whose key has one of `scopes` and belongs to a company.

    Raises `UnknownKey` without a known key, `ScopeMissing` where the key lacks the scopes, `InvalidRequest`
    for a key that belongs to no company, `TooMany` above the request limit.
    """
    return await _admit(request, Operation(summary="", scopes=scopes, about=About.REQUEST))


async def _admit(request: web.Request, operation: Operation) -> Caller:
    row = await _key_row(request)
    wait_s = request.app[LIMITS].take(row.id, asyncio.get_running_loop().time())
    if wait_s > 0:
        raise TooMany("Too many requests", retry_after_s=int(wait_s) + 1)
    if not row.company_id:
        access = Access(_named_company(request, operation), everywhere=True)
        return Caller(access, frozenset(row.scopes), row.id)
    if row.scopes.isdisjoint(operation.scopes):
        wanted = " or ".join(scope.value for scope in operation.scopes)
        raise ScopeMissing(f"This API key does not have the scope: {wanted}")
    if operation.takes_company and request.query.get("company", row.company_id) != row.company_id:
        raise NotFound("Company not found")
    access = Access(row.company_id, row.agents)
    if operation.about is About.COMPANY:
        access.check_whole_company()
    return Caller(access, frozenset(row.scopes), row.id)


async def _key_row(request: web.Request) -> KeyRow:
    """The key that is presented. Raises `UnknownKey`, `TooMany` for who guesses."""
    key, now = bearer_key(request), asyncio.get_running_loop().time()
    if not key:
        raise UnknownKey("Missing API key")
    server, guesses, address = request.app[SERVER], request.app[GUESSES], neighbourhood(request)
    wait_s = guesses.wait_s(address, key, now)
    if wait_s > 0:
        server.metrics.wrong_keys.labels("refused").inc()
        raise TooMany("Too many wrong API keys", retry_after_s=int(wait_s) + 1)
    row = await server.find_key(key)
    if row is not None:
        guesses.right(address, key)
        return row
    server.metrics.wrong_keys.labels("unknown").inc()
    for change in guesses.wrong(address, key, now):
        server.metrics.key_bans.labels(change.by, change.standing.value).inc()
        if request.app[TOLD].take("", now) == 0:
            log.warning("API keys are guessed", extra=_fields(change))
    raise UnknownKey("Invalid API key")


def _fields(change: Change) -> Mapping[str, object]:
    """Of a ban. The address is told: without it nobody can be kept out by a firewall."""
    told = {"by": change.by, "standing": change.standing.value, "wait_s": round(change.wait_s)}
    return told | ({"address": change.name} if change.name else {})


def _named_company(request: web.Request, operation: Operation) -> str:
    """The company that the server's admin key speaks for."""
    if operation.about is About.SERVER:
        return ""
    if not operation.takes_company:
        raise InvalidRequest(NO_COMPANY)
    company_id = request.query.get("company", "")
    if not company_id:
        raise InvalidRequest(f"{NO_COMPANY}: name one with ?company=")
    if request.app[SERVER].directory.company(company_id) is None:
        raise NotFound("Company not found")
    return company_id


def bearer_key(request: web.Request) -> str:
    """The key of the Authorization header (RFC 6750 2.1), "" where there is none or it cannot be one."""
    scheme, _, key = request.headers.get("Authorization", "").strip().partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or len(key) > _KEY_LIMIT:
        return ""
    return key.encode(errors="replace").decode()  # octets that are no UTF-8 are in nobody's key
