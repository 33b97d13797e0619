"""HTTP for tools: one pool of connections, to addresses that `pipeline.net.egress` allows, bounded both
ways."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp

from pipeline.errors import EngineError
from pipeline.net import egress
from pipeline.net.egress import sockets_within
from pipeline.net.web_session import LIMIT, IsWhole, WebAnswer

CONNECTIONS_PER_HOST = 32


class ToolClient:
    """See `llm_web.Web`. Connections are made on the loop of its first request."""

    def __init__(self) -> None:
        self._reach = egress.current()
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float,
        is_whole: IsWhole | None = None,
    ) -> WebAnswer:
        """See `Web.request`."""
        try:
            async with self._opened().request(
                method,
                url,
                data=body,
                headers={"Accept-Encoding": "identity", **headers},
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as answer:
                return WebAnswer(
                    answer.status,
                    {name.lower(): value for name, value in answer.headers.items()},
                    await _limited(answer, is_whole),
                )
        except aiohttp.ClientConnectorError as error:
            if egress.is_egress_denied(error):
                raise EngineError(
                    "the address is not one that this server connects to", retryable=False
                ) from error
            raise EngineError("cannot connect", retryable=True) from error
        except TimeoutError as error:
            raise EngineError("no answer in time", retryable=True) from error
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise EngineError(f"no usable answer ({type(error).__name__})", retryable=True) from error

    async def close(self) -> None:
        """Closes all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0,
                limit_per_host=CONNECTIONS_PER_HOST,
                use_dns_cache=False,
                socket_factory=sockets_within(self._reach),
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                headers={"User-Agent": "openline-mediaserver"},
            )
        return self._session


async def _limited(answer: aiohttp.ClientResponse, is_whole: IsWhole | None) -> bytes:
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        answer.close()
        raise EngineError("the answer is compressed, which nobody asked for", retryable=False)
    content = bytearray()
    async for piece in answer.content.iter_any():
        content += piece
        if len(content) > LIMIT:
            answer.close()
            raise EngineError(f"the answer is longer than {LIMIT // 1024} KiB", retryable=False)
        if is_whole is not None and is_whole(piece):
            answer.close()
            break
    return bytes(content)
