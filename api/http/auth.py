"""Authenticates requests: `Authorization: Bearer <key>` to a company and scopes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler

from api.http.headers import STANDING
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
"""The server that the application serves."""

LIMITS: web.AppKey[RateLimit] = web.AppKey("limits", RateLimit)
"""The request limits per API key."""

GUESSES: web.AppKey[Guesses] = web.AppKey("guesses", Guesses)
"""The wrong API keys presented per client address."""

TOLD: web.AppKey[RateLimit] = web.AppKey("told", RateLimit)
"""The limit of log lines about guessed keys; metrics count every one."""

TOLD_PER_MINUTE = 60

NO_COMPANY = "API key missing company information"

_KEY_LIMIT = 512
"""Characters; longer than any key that `Store.make_key` makes, so a longer one is not looked up."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated caller of a request: company, agents and scopes. `key_id` is the id of the API
    key."""

    access: Access
    scopes: frozenset[str]
    key_id: str = ""

    @property
    def company_id(self) -> str:
        """Id of the company; "" where the operation is about no single company."""
        return self.access.company_id


_CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)


def caller_of(request: web.Request) -> Caller:
    """Returns the `Caller` that `open_door` authenticated. Raises KeyError on a route without scopes."""
    return request[_CALLER]


@web.middleware
async def open_door(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Authenticates the caller as the route's `Operation` says; a handler without an `Operation`
    authenticates its callers itself."""
    operation = operation_of(request.match_info.handler)
    if any("\0" in value for name, value in request.match_info.items() if name != "phoneNumber"):
        raise web.HTTPNotFound  # PostgreSQL takes no NUL; phone numbers are checked on their own
    if operation is not None and operation.scopes:
        request[_CALLER] = admitted(request, operation, await _key_row(request))
    return await handler(request)


async def authenticate(request: web.Request, *scopes: Scope) -> Caller:
    """Authenticates the caller of `request`, whose key has one of `scopes` and belongs to a company.

    Raises `UnknownKey` without a known key, `ScopeMissing` where the key lacks the scopes, `InvalidRequest`
    for a key that belongs to no company, `TooMany` above the request limit."""
    operation = Operation(summary="", scopes=scopes, about=About.REQUEST)
    return admitted(request, operation, await _key_row(request))


def admitted(request: web.Request, operation: Operation, row: KeyRow) -> Caller:
    """Returns the caller that presented the API key `row`, whose scopes open `operation`. Raises as
    `authenticate`."""
    limits = request.app[LIMITS]
    wait_s = limits.take(row.id, asyncio.get_running_loop().time())
    request[STANDING] = limits.standing(row.id)
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


async def still_admits(request: web.Request) -> bool:
    """Tells whether the key of a request whose answer lasts, such as a stream, is still there, and for the
    same company, agents and scopes."""
    row = await request.app[SERVER].find_key(bearer_key(request))
    if row is None:
        return False
    caller = caller_of(request)
    same = caller.access.everywhere or Access(row.company_id, row.agents) == caller.access
    return same and frozenset(row.scopes) == caller.scopes


async def _key_row(request: web.Request) -> KeyRow:
    """Returns the presented key. Raises `UnknownKey`, and `TooMany` for an address that presented wrong
    keys."""
    key = bearer_key(request)
    if not key:
        raise UnknownKey("Missing API key")
    check_guesses(request, key)
    row = await request.app[SERVER].find_key(key)
    if row is None:
        raise wrong_key(request, key)
    request.app[GUESSES].right(neighbourhood(request), key)
    return row


def check_guesses(request: web.Request, key: str) -> None:
    """Raises `TooMany` for an address that presented wrong keys, before `key` is looked up."""
    wait_s = request.app[GUESSES].wait_s(neighbourhood(request), key, asyncio.get_running_loop().time())
    if wait_s > 0:
        request.app[SERVER].metrics.wrong_keys.labels("refused").inc()
        raise TooMany("Too many wrong API keys", retry_after_s=int(wait_s) + 1)


def wrong_key(request: web.Request, key: str) -> UnknownKey:
    """Counts `key` as a guess; returns the refusal."""
    server, now = request.app[SERVER], asyncio.get_running_loop().time()
    server.metrics.wrong_keys.labels("unknown").inc()
    for change in request.app[GUESSES].wrong(neighbourhood(request), key, now):
        server.metrics.key_bans.labels(change.by, change.standing.value).inc()
        if request.app[TOLD].take("", now) == 0:
            log.warning("API keys are guessed", extra=_fields(change))
    return UnknownKey("Invalid API key")


def _fields(change: Change) -> Mapping[str, object]:
    """Returns the log fields of a ban. The address is logged so that a firewall can block it."""
    told = {"by": change.by, "standing": change.standing.value, "wait_s": round(change.wait_s)}
    return told | ({"address": change.name} if change.name else {})


def _named_company(request: web.Request, operation: Operation) -> str:
    """Returns the company for which the server's admin key acts, "" for operations on the server."""
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
    """Returns the key of the Authorization header (RFC 6750 2.1); "" without one, or where it is
    malformed."""
    scheme, _, key = request.headers.get("Authorization", "").strip().partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or len(key) > _KEY_LIMIT:
        return ""
    return key.encode(errors="replace").decode()  # no key contains octets that are not UTF-8
