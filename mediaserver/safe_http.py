"""HTTP to addresses that somebody else chose, without becoming their way into our network.

A webhook's URL is a customer's to choose, so it may point at this machine, at the network around it or at a
cloud's metadata service, by number, by a name that resolves there, or by a name that resolves elsewhere when
it is checked and there when it is used (DNS rebinding). The check is therefore made where it cannot be gone
round: on the very address that a socket is about to be connected to. Redirects are answers like any other,
proxies of the environment are not used, answers are cut at 64 KiB and an exchange takes at most five seconds
unless a caller says otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver

from mediaserver.errors import RequestFailed, TargetRefused
from pipeline.net.egress import EgressPolicy, is_egress_denied, sockets_within

TIMEOUT_S = 5.0
ANSWER_LIMIT = 64 * 1024
CONNECTIONS_PER_HOST = 16


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer, whatever its status. `body` is at most 64 KiB."""

    status: int
    body: bytes
    duration_ms: int


class SafeHttp:
    """An HTTP client for URLs of other people. `resolver` replaces the system's name resolution.

    Use it as `async with SafeHttp(networks) as http`.
    """

    def __init__(
        self,
        allow_networks: Iterable[str] = (),
        *,
        resolver: AbstractResolver | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._reach = EgressPolicy(allow_networks)
        self._resolver = resolver
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            resolver=self._resolver,
            limit=0,
            limit_per_host=CONNECTIONS_PER_HOST,
            use_dns_cache=False,
            socket_factory=sockets_within(self._reach),
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float | None = None
    ) -> HttpAnswer:
        """Posts `body`; `timeout_s` None: the client's own. Raises `TargetRefused` and `RequestFailed`; a
        status of 300 and more is an answer."""
        if self._session is None:
            raise RequestFailed("the HTTP client is closed")
        if not _is_http(url):
            raise TargetRefused("not a URL that begins with http:// or https://")
        started = time.monotonic()
        try:
            async with self._session.post(
                url,
                data=body,
                headers={"Accept-Encoding": "identity", "User-Agent": "openline-mediaserver", **headers},
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=self._timeout_s if timeout_s is None else timeout_s),
            ) as answer:
                content = await _limited(answer)
        except aiohttp.ClientConnectorError as error:
            if is_egress_denied(error):
                raise TargetRefused("the address is not one that this server connects to") from error
            raise RequestFailed("cannot connect") from error
        except TimeoutError as error:
            raise RequestFailed("no answer in time") from error
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise RequestFailed(f"no usable answer ({type(error).__name__})") from error
        return HttpAnswer(answer.status, content, round((time.monotonic() - started) * 1000))


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


async def _limited(answer: aiohttp.ClientResponse) -> bytes:
    """The answer's body, at most 64 KiB. Raises `RequestFailed` for a longer one."""
    content = bytearray()
    async for piece in answer.content.iter_chunked(16 * 1024):
        content += piece
        if len(content) > ANSWER_LIMIT:
            answer.close()
            raise RequestFailed("the answer is longer than 64 KiB")
    return bytes(content)
