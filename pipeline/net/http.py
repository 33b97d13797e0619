"""An HTTP client for URLs that a customer chose (webhooks, tools of agents), without a way into the server's
private network.

`pipeline.net.egress` checks the addresses. Redirects are not followed, proxies of the environment are not
used, cookies are not kept, answers are limited in bytes and exchanges in time. Error messages contain no URL
and no part of a request or an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, Protocol, Self, TypeAlias
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver

from pipeline.errors import EngineBusy, EngineError, EngineTimeout, RequestFailed, TargetRefused
from pipeline.net import egress
from pipeline.net.egress import EgressPolicy

IsWhole: TypeAlias = Callable[[bytes], bool]

ANSWER_LIMIT: Final = 256 * 1024
"""Default of the longest answer, in bytes."""

TIMEOUT_S: Final = 5.0
CONNECTIONS_PER_HOST: Final = 32
"""Default of the most requests under way to one host: so many calls may wait for one server of tools."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP response of any status. `headers`: by field name in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient(Protocol):
    """The methods of `GuardedHttpClient` that webhooks and tools use."""

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
    """An HTTP client with one pool of connections, which belongs to the loop of its first request.

    `policy`: the addresses allowed; None: `egress.current()` when the client is made. `timeout_s`: default of
    the longest exchange; `answer_limit`: most bytes of an answer; `connections_per_host`: most requests under
    way to one host; `resolver`: replaces the system's."""

    def __init__(
        self,
        policy: EgressPolicy | None = None,
        *,
        resolver: AbstractResolver | None = None,
        timeout_s: float = TIMEOUT_S,
        answer_limit: int = ANSWER_LIMIT,
        connections_per_host: int = CONNECTIONS_PER_HOST,
    ) -> None:
        self._session = GuardedSession(
            policy, resolver=resolver, limit=0, limit_per_host=connections_per_host, use_dns_cache=False
        )
        self._timeout_s = timeout_s
        self._answer_limit = answer_limit
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
        """Exchanges one request for its response; a status of 300 and more is a response too. `timeout_s`:
        for the whole exchange. `is_whole`: called with each piece of the body; the rest is not read once it
        gives True. `is_read`: False if nobody reads the body, which may then be compressed. Raises
        `RequestFailed`, for an address or URL that is not allowed `TargetRefused`."""
        if self._is_closed:
            raise RequestFailed("the HTTP client is closed")
        if not _is_http(url):
            raise TargetRefused("not a URL that begins with http:// or https://")
        timeout = aiohttp.ClientTimeout(total=self._timeout_s if timeout_s is None else timeout_s)
        with _translated():
            async with self._session.opened().request(
                method, url, data=body, headers=headers, allow_redirects=False, timeout=timeout
            ) as answer:
                if is_read and is_compressed(answer):
                    answer.close()  # a compressed kilobyte may expand to a gigabyte
                    raise RequestFailed("the answer is compressed, which nobody asked for", retryable=False)
                content = await self._content(answer, is_whole)
        return HttpAnswer(
            answer.status, {name.lower(): value for name, value in answer.headers.items()}, content
        )

    async def close(self) -> None:
        """Closes all connections; later requests raise `RequestFailed`."""
        self._is_closed = True
        await self._session.close()

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


class GuardedSession:
    """A session of aiohttp that connects only to addresses that `policy` allows (None: those of
    `egress.current()`), without cookies, proxies of the environment, decompression and redirects, which would
    carry keys elsewhere: one that a request or a websocket would follow raises `aiohttp.ClientResponseError`.
    The first request opens the session, on its loop.

    `headers`: sent with every request. `connect_s`: longest wait for a connection; None: without a limit of
    its own. `connector`: further arguments of `aiohttp.TCPConnector`."""

    def __init__(
        self,
        policy: EgressPolicy | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        connect_s: float | None = None,
        **connector: Any,
    ) -> None:
        self._policy = policy or egress.current()
        self._headers = {
            "User-Agent": "openline-mediaserver",
            "Accept-Encoding": "identity",
            **(headers or {}),
        }
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s)
        self._connector = connector
        self._session: aiohttp.ClientSession | None = None

    def opened(self) -> aiohttp.ClientSession:
        """Returns the session, opened where it is not."""
        if self._session is None:
            sockets = egress.sockets_within(self._policy)
            stays = aiohttp.TraceConfig()
            stays.on_request_redirect.append(_redirected)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(socket_factory=sockets, **self._connector),
                headers=self._headers,
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                trace_configs=[stays],
            )
        return self._session

    async def close(self) -> None:
        """Closes all connections; a later request opens others."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


async def _redirected(
    session: aiohttp.ClientSession, context: SimpleNamespace, redirect: aiohttp.TraceRequestRedirectParams
) -> None:
    answer = redirect.response
    answer.close()
    raise aiohttp.ClientResponseError(answer.request_info, (), status=answer.status)


def is_compressed(answer: aiohttp.ClientResponse) -> bool:
    """Whether the body has a content coding, although the request accepts only "identity"."""
    return answer.headers.get("Content-Encoding", "identity").lower() != "identity"


@contextmanager
def engine_errors(host: str) -> Iterator[None]:
    """Raises what aiohttp raises of a server of models as an `EngineError`, whose text names `host` and
    nothing of the request."""
    try:
        yield
    except TimeoutError:
        raise EngineTimeout(f"{host} did not answer in time") from None
    except aiohttp.ClientResponseError as error:
        text = f"{host} answered {error.status}"
        if error.status in (429, 503):
            raise EngineBusy(text) from error
        raise EngineError(text, retryable=error.status >= 500) from error
    except aiohttp.ClientConnectorError as error:
        if egress.is_egress_denied(error):
            text = f"{host}: not an address that this server connects to"
            raise EngineError(text, retryable=False) from error
        raise EngineError(f"cannot connect to {host}", retryable=True) from error
    except aiohttp.InvalidURL as error:
        raise EngineError(f"not a URL ({type(error).__name__})", retryable=False) from error
    except (aiohttp.ClientError, ValueError, OSError, RuntimeError) as error:
        raise EngineError(f"{host} broke off ({type(error).__name__})", retryable=True) from error


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
