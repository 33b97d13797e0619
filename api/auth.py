"""Who is asking: `Authorization: Bearer <key>` to a company and its scopes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aiohttp import web

from mediaserver.refusals import InvalidRequest, ScopeMissing, UnknownKey
from mediaserver.server import Server

SERVER: web.AppKey[Server] = web.AppKey("server", Server)
"""Where an application keeps the server that it is the face of."""

_KEY_LIMIT = 512
"""Longer than any key that we make; what is longer is not looked up."""


class Scope(StrEnum):
    """What a key may be used for."""

    CALLS = "calls"
    WEB_CALLS = "web-calls"
    SPEECH = "speech"


@dataclass(frozen=True, slots=True)
class Caller:
    """The company on whose behalf a request is made."""

    company_id: str
    scopes: frozenset[str]


async def authenticate(request: web.Request, scope: Scope) -> Caller:
    """The caller of `request`.

    Raises `UnknownKey` without a known key, `ScopeMissing` where the key lacks `scope`, `InvalidRequest`
    for a key that belongs to no company.
    """
    key = bearer_key(request)
    row = await request.app[SERVER].find_key(key) if key else None
    if row is None:
        raise UnknownKey("Missing API key" if not key else "Invalid API key")
    if scope not in row.scopes:
        raise ScopeMissing(f"This API key does not have the scope: {scope.value}")
    if not row.company_id:
        raise InvalidRequest("API key missing company information")
    return Caller(row.company_id, frozenset(row.scopes))


def bearer_key(request: web.Request) -> str:
    """The key of the Authorization header (RFC 6750 2.1), "" where there is none or it cannot be one."""
    scheme, _, key = request.headers.get("Authorization", "").strip().partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or len(key) > _KEY_LIMIT:
        return ""
    return key
