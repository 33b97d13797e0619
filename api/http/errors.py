"""Maps every refusal of the server to an HTTP status.

The body of every error is `{"error": "..."}`. An exception that the table lacks is a bug: it is logged with
its traceback and answered with 500 and no detail."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from mediaserver.errors import (
    CalledTooRecently,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotConfigured,
    NotFound,
    RepeatedDifferently,
    RuleBroken,
    ScopeMissing,
    SpeechFailed,
    StoreError,
    TooLarge,
    TooMany,
    TooSlow,
    Unavailable,
    UnknownKey,
    Unprocessable,
)
from mediaserver.telemetry.logging import REQUEST_ID

log = logging.getLogger(__name__)

STATUS: Mapping[type[Exception], int] = {
    InvalidRequest: 400,
    UnknownKey: 401,
    ScopeMissing: 403,
    Forbidden: 403,
    NotFound: 404,
    TooSlow: 408,
    Conflict: 409,
    RepeatedDifferently: 409,
    RuleBroken: 400,
    CalledTooRecently: 429,
    TooLarge: 413,
    Unprocessable: 422,
    TooMany: 429,
    SpeechFailed: 500,
    NotConfigured: 500,
    Unavailable: 503,
    StoreError: 503,
}

_STORE_RETRY_S = 5

UNREADABLE = (web.RequestPayloadError, aiohttp.ClientPayloadError, HttpProcessingError)
"""What aiohttp raises for a malformed body."""


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Returns an error response in the shape of every endpoint."""
    return web.json_response({"error": message}, status=status, headers=headers)


def mebibytes(octets: int) -> str:
    """Returns a limit in octets as text in MiB for error messages."""
    return f"{octets / (1024 * 1024):g} MiB"


def refusal(error: Exception) -> web.Response | None:
    """Returns the response for an exception of the table, None for any other."""
    status = next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), None)
    if status is None:
        return None
    if isinstance(error, StoreError):
        return error_response(status, "Service temporarily unavailable", {"Retry-After": str(_STORE_RETRY_S)})
    headers = {}
    if isinstance(error, Unavailable | CalledTooRecently):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, UnknownKey):
        headers["WWW-Authenticate"] = "Bearer"
    return error_response(status, str(error), headers)


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns every exception into a JSON error: refusals by the table, aiohttp's own by their status."""
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return error_response(413, f"Request body is larger than {mebibytes(request.client_max_size)}")
    except web.HTTPException as error:
        if error.status < 400:
            raise
        keep = {name: value for name, value in error.headers.items() if name in ("Allow", "Retry-After")}
        return error_response(error.status, error.reason, keep)
    except Exception as error:
        answer = refusal(error)
        if isinstance(error, UNREADABLE) or _left(request, error):
            return error_response(400, "The body of the request cannot be read")
        if answer is None:
            log.exception("request failed", extra={"method": request.method, "route": _route(request)})
            return web.json_response(
                {"error": "Internal server error", "requestId": REQUEST_ID.get()}, status=500
            )
        return answer


def _left(request: web.Request, error: Exception) -> bool:
    """Whether the client has disconnected, which is no failure of the server."""
    transport = request.transport
    return isinstance(error, ConnectionError) and (transport is None or transport.is_closing())


def _route(request: web.Request) -> str:
    """Returns the route's pattern for logs; paths carry phone numbers and ids."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "unknown"
