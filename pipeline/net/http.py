"""HTTP to URLs that somebody else chose (webhooks, tools of agents), and no way for them into our network.

What such a URL may point at, and why the check is made on the very address that a socket is about to be
connected to, is said in `pipeline.net.egress`. Redirects are answers like any other, proxies of the
environment are not used, no cookie is kept, answers are bounded in bytes and exchanges in time. The texts of
errors name no URL and nothing of a request or an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeAlias
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver

from pipeline.errors import RequestFailed, TargetRefused
from pipeline.net import egress
from pipeline.net.egress import EgressPolicy

IsWhole: TypeAlias = Callable[[bytes], bool]

ANSWER_LIMIT: Final = 256 * 1024
"""Bytes of an answer, unless a client is made with less."""

TIMEOUT_S: Final = 5.0
CONNECTIONS_PER_HOST: Final = 32
"""Unless a client is made with less: as many calls may wait for one server of tools."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer, whatever its status. `headers` have names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient(Protocol):
    """What webhooks and tools need of `GuardedHttpClient`."""

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float | None = None,
        is_whole: IsWhole | None = None,
        is_read: bool = True,
    ) -> HttpAnswer:
        """Exchanges one request for its response, of any status; arguments as `GuardedHttpClient.request`.
        Raises `RequestFailed`."""

    async def close(self) -> None:
        """Closes the client: later requests raise `RequestFailed`."""


class GuardedHttpClient:
    """One pool of connections to the addresses that `policy` allows; None: what `egress.current()` says when
    the client is made. Connections are made on the loop of its first request. `timeout_s` bounds an exchange
    that names no time of its own, `answer_limit` the bytes of an answer, `connections_per_host` the requests
    to one host that are under way; `resolver` replaces the system's."""

    def __init__(
        self,
        policy: EgressPolicy | None = None,
        *,
        resolver: AbstractResolver | None = None,
        timeout_s: float = TIMEOUT_S,
        answer_limit: int = ANSWER_LIMIT,
        connections_per_host: int = CONNECTIONS_PER_HOST,
    ) -> None:
        self._policy = policy or egress.current()
        self._resolver = resolver
        self._timeout_s = timeout_s
        self._answer_limit = answer_limit
        self._connections_per_host = connections_per_host
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float | None = None,
        is_whole: IsWhole | None = None,
        is_read: bool = True,
    ) -> HttpAnswer:
        """One exchange; a status of 300 and more is an answer. `is_whole` is told of each piece of the answer
        as it comes: what follows once it is True is not waited for. `is_read` False: nothing depends on the
        body, which may therefore be compressed. Raises `RequestFailed`, `TargetRefused` among it."""
        if self._is_closed:
            raise RequestFailed("the HTTP client is closed")
        if not _is_http(url):
            raise TargetRefused("not a URL that begins with http:// or https://")
        timeout = aiohttp.ClientTimeout(total=self._timeout_s if timeout_s is None else timeout_s)
        with _translated():
            async with self._opened().request(
                method, url, data=body, headers=headers, allow_redirects=False, timeout=timeout
            ) as answer:
                if is_read and is_compressed(answer):
                    answer.close()  # a kilobyte of it may be a gigabyte
                    raise RequestFailed("the answer is compressed, which nobody asked for", retryable=False)
                content = await self._content(answer, is_whole)
        return HttpAnswer(
            answer.status, {name.lower(): value for name, value in answer.headers.items()}, content
        )

    async def close(self) -> None:
        """Closes all connections; later requests raise `RequestFailed`."""
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = guarded_session(
                self._policy,
                resolver=self._resolver,
                limit=0,
                limit_per_host=self._connections_per_host,
                use_dns_cache=False,
            )
        return self._session

    async def _content(self, answer: aiohttp.ClientResponse, is_whole: IsWhole | None) -> bytes:
        content = bytearray()
        async for piece in answer.content.iter_any():
            content += piece
            if len(content) > self._answer_limit:
                answer.close()
                text = f"the answer is longer than {self._answer_limit // 1024} KiB"
                raise RequestFailed(text, retryable=False)
            if is_whole is not None and is_whole(piece):
                answer.close()
                break
        return bytes(content)


def guarded_session(
    policy: EgressPolicy,
    *,
    headers: Mapping[str, str] | None = None,
    timeout: aiohttp.ClientTimeout | None = None,
    **connector: Any,
) -> aiohttp.ClientSession:
    """A session that connects only where `policy` allows, with no cookies, no proxy of the environment and
    nothing unpacked; `connector`: further settings of its `aiohttp.TCPConnector`."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(socket_factory=egress.sockets_within(policy), **connector),
        headers={"User-Agent": "openline-mediaserver", "Accept-Encoding": "identity", **(headers or {})},
        timeout=timeout or aiohttp.ClientTimeout(),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
    )


def is_compressed(answer: aiohttp.ClientResponse) -> bool:
    """Whether the body is other bytes than the server's text or sound, although "identity" was asked for."""
    return answer.headers.get("Content-Encoding", "identity").lower() != "identity"


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        if egress.is_egress_denied(error):
            raise TargetRefused("the address is not one that this server connects to") from error
        raise RequestFailed("cannot connect") from error
    except TimeoutError as error:
        raise RequestFailed("no answer in time") from error
    except (aiohttp.ClientError, ValueError, OSError) as error:
        raise RequestFailed(f"no usable answer ({type(error).__name__})") from error


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
