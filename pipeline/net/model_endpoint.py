"""The HTTP client of models behind an OpenAI-compatible API: speech to text, text to speech, language models.

Connections are kept and shared by all calls of an engine. Every wait has a deadline, answers are limited in
bytes, and connections are made only to addresses that `pipeline.net.egress` allows. Failures are
`EngineError`s, whose messages get into the record of a call: they name the server and the status, and never
the key, the request or the answer.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import urlsplit

import aiohttp
from pydantic import AfterValidator, Field

from pipeline.engines.tables import EngineTable, ExtraBody, HeaderName, HeaderText
from pipeline.errors import EngineBusy, EngineError, EngineRefused
from pipeline.net import egress
from pipeline.net.audio_types import COMPRESSED_TYPES
from pipeline.net.http import GuardedSession, engine_errors, is_compressed
from pipeline.net.sse import EventReader
from pipeline.net.untrusted import NotJson, read_json

Form: TypeAlias = Callable[[], aiohttp.FormData]
"""Makes a form; called again for a second attempt, since aiohttp sends a form only once."""

_Look: TypeAlias = Callable[[aiohttp.ClientResponse], None]

CONNECTIONS: Final = 256  # most connections to one server
KEEP_ALIVE_S: Final = 60.0
CONNECT_S: Final = 2.0
ANSWER_LIMIT: Final = 1_000_000  # bytes; a minute's words with times and probabilities take a tenth
EVENT_LIMIT: Final = 256 * 1024
"""Most bytes of an event, or of a whole answer of a chat model, since they are parsed on the event loop."""

IN_PLACE: Final = 64 * 1024  # bytes of JSON; longer JSON is parsed in a thread
AT_ONCE: Final = 1024  # bytes of events that are read before others get the loop
REASON_LIMIT: Final = 4096  # bytes read of an error's body
REASON_S: Final = 0.3  # longest wait for them: the status is known
RETRY_AFTER_LIMIT_S: Final = 300.0

_BLANK: Final = b"\xef\xbb\xbf \t\r\n"  # a byte order mark or white space, which may precede a document
_PASSING: Final = frozenset({408, 409, 425})
_BUSY: Final = frozenset({429, 503})
_REFUSED: Final = frozenset({400, 413, 415, 422})
_RATE: Final = re.compile(r";\s*rate\s*=\s*\"?(\d{4,6})\b", re.IGNORECASE)  # RFC 2586
_NOT_KNOWN: Final = re.compile(
    r"\bun(?:supported|recogni[sz]ed|known|expected)|not[ _](?:support|permitted|allowed|accept)"
    r"|extra_forbidden|deprecated",
    re.IGNORECASE,
)
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,60}")
_NO_SAMPLES: Final = (
    "application/json", "application/xml", "image/", "text/", "video/", *COMPRESSED_TYPES,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What a server wants with every request beside the API's own: fields of the head (Azure's `api-key`),
    of the query (`api-version`) and of the body (`reasoning_effort`, options of vLLM and Ollama). Fields of
    those names that the API has are replaced."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Mapping[str, Any] = field(default_factory=dict)


class ModelEndpoint:
    """A client of one server of models. Belongs to one event loop from its first request to `close`.

    `base_url`: such as "https://host/v1". `api_key`: sent as a bearer token; "": none. `extras`: sent with
    every request. `timeout_s`: default of the longest wait for a whole answer. `allowed`: the addresses
    allowed; None: `pipeline.net.egress.current()` when the client is made.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "",
        timeout_s: float = 10.0,
        allowed: egress.EgressPolicy | None = None,
        extras: Extras | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.host = urlsplit(base_url).netloc.rpartition("@")[2]
        self._extras = extras or Extras()
        extra = self._extras.headers
        bearer = api_key and "authorization" not in {name.lower() for name in extra}
        self._session = GuardedSession(
            allowed,
            headers={"Authorization": f"Bearer {api_key}", **extra} if bearer else extra,
            connect_s=CONNECT_S,
            limit=CONNECTIONS,
            keepalive_timeout=KEEP_ALIVE_S,
            ttl_dns_cache=30,
        )
        self._timeout_s = timeout_s

    def __repr__(self) -> str:
        return f"ModelEndpoint({self.host})"

    async def post_json(self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None) -> Any:
        """Posts `body` as JSON and returns the answer's JSON. Raises `EngineError`."""
        return await self._whole(path, lambda: self._json(body), timeout_s)

    async def post_form(self, path: str, form: Form, *, timeout_s: float | None = None) -> Any:
        """Posts a form, such as one with a file, and returns the answer's JSON. Raises `EngineError`."""

        def filled_in() -> dict[str, Any]:
            made = form()
            for name, value in self._extras.body.items():
                made.add_field(name, value if isinstance(value, str) else json.dumps(value))
            return {"data": made}

        return await self._whole(path, filled_in, timeout_s)

    async def stream_sse(
        self, path: str, body: Mapping[str, Any], *, first_s: float, stall_s: float
    ) -> AsyncGenerator[str, None]:
        """Posts `body` and gives the data of each server-sent event as it arrives, or the JSON document of a
        server that does not stream. `first_s`: longest wait for the first bytes that are not blank;
        `stall_s`: longest wait for each further piece. Raises `EngineError`; closing the generator ends the
        request."""
        async with aclosing(self._stream(path, body, first_s, stall_s, None)) as pieces:
            with engine_errors(self.host):
                async with asyncio.timeout(first_s):
                    first = await _begun(pieces)
            read = _document if first.startswith(b"{") else _events  # no event stream begins so
            async for data in read(_chained(first, pieces)):
                yield data

    async def stream_bytes(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        first_s: float,
        stall_s: float,
        on_rate: Callable[[int], None],
    ) -> AsyncGenerator[bytes, None]:
        """Posts `body` and gives the bytes of the answer as they arrive, with backpressure. `first_s`,
        `stall_s` and closing are those of `stream_sse`. `on_rate`: called with the rate in Hz that the media
        type names ("audio/pcm;rate=16000"). Raises `EngineError`, also for a media type without samples."""

        def look(answer: aiohttp.ClientResponse) -> None:
            if answer.content_type.startswith(_NO_SAMPLES):
                raise EngineError(f"{self.host} answered with {answer.content_type}", retryable=False)
            rate = _RATE.search(answer.headers.get("Content-Type", ""))
            if rate is not None:
                on_rate(int(rate[1]))

        async with aclosing(self._stream(path, body, first_s, stall_s, look)) as pieces:
            async for piece in pieces:
                yield piece

    async def check(self, *, timeout_s: float = 3.0) -> str:
        """Checks whether the server can be reached: gives "" if so, else the reason. Any status will do,
        except 401 and 403, which refuse the key."""
        try:
            with engine_errors(self.host):
                async with (
                    asyncio.timeout(timeout_s),
                    self._session.opened().get(
                        f"{self.base_url}/models", params=self._extras.query, allow_redirects=False
                    ) as answer,
                ):
                    status = answer.status
        except EngineError as error:
            return str(error)
        return f"{self.host} refuses the api_key ({status})" if status in (401, 403) else ""

    async def close(self) -> None:
        """Closes the pool of connections to the server."""
        await self._session.close()

    # Requests -----------------------------------------------------------------------------------------------

    async def _whole(self, path: str, body: Callable[[], dict[str, Any]], timeout_s: float | None) -> Any:
        content = bytearray()
        with engine_errors(self.host):
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                answer = await self._post(path, body)
                async with answer:
                    async for piece in answer.content.iter_any():
                        content += piece
                        if len(content) > ANSWER_LIMIT:
                            answer.close()
                            raise EngineError(f"{self.host} answers without end", retryable=False)
        try:
            if len(content) > IN_PLACE:
                return await asyncio.to_thread(read_json, bytes(content))
            return read_json(bytes(content))
        except NotJson:
            raise EngineError(f"{self.host} answered something that is not JSON", retryable=True) from None

    async def _stream(
        self, path: str, body: Mapping[str, Any], first_s: float, stall_s: float, look: _Look | None
    ) -> AsyncGenerator[bytes, None]:
        answer: aiohttp.ClientResponse | None = None
        try:
            with engine_errors(self.host):
                async with asyncio.timeout(first_s):
                    answer = await self._post(path, lambda: self._json(body))
                    if look is not None:
                        look(answer)
                    piece = await answer.content.readany()
            while piece:
                yield piece
                with engine_errors(self.host):
                    async with asyncio.timeout(stall_s):
                        piece = await answer.content.readany()
        finally:
            if answer is not None:
                answer.release() if answer.content.at_eof() else answer.close()

    def _json(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {"json": {**body, **self._extras.body}}

    async def _post(self, path: str, body: Callable[[], dict[str, Any]]) -> aiohttp.ClientResponse:
        """Posts and returns the response once its header is there. The request is sent again at once if a
        kept connection turns out to be closed. Raises `EngineError` for a status that is no success."""
        url = f"{self.base_url}/{path}"
        sent, query = body(), self._extras.query
        try:
            answer = await self._session.opened().post(url, params=query, allow_redirects=False, **sent)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError):
            answer = await self._session.opened().post(url, params=query, allow_redirects=False, **body())
        if answer.status >= 300:
            async with answer:
                raise self._refusal(answer, await _beginning(answer), sent.get("json", {}))
        if is_compressed(answer):
            answer.close()  # a compressed kilobyte may expand to a gigabyte
            raise EngineError(f"{self.host} answers compressed, which nobody asked for", retryable=False)
        return answer

    def _refusal(
        self, answer: aiohttp.ClientResponse, content: bytes, sent: Mapping[str, Any]
    ) -> EngineError:
        status = answer.status
        text = f"{self.host} answered {status}{_reason(content)}"
        if status in _BUSY:
            return EngineBusy(text, retry_after_s=_rest_s(answer.headers, datetime.now(UTC)))
        if status in _REFUSED:
            return EngineRefused(text, unsupported=_unsupported(content, sent))
        return EngineError(text, retryable=status >= 500 or status in _PASSING)


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Gives the data of each event of a stream. Raises `EngineError` for an event above `EVENT_LIMIT`."""
    reader = EventReader()
    async for piece in pieces:
        for at in range(0, len(piece), AT_ONCE):
            if at:
                await asyncio.sleep(0)
            events = reader.feed(piece[at : at + AT_ONCE])
            if max([reader.held, *map(len, events)]) > EVENT_LIMIT:
                raise EngineError("the answer has an event without end", retryable=False)
            for data in events:
                yield data
    for data in reader.finish():
        yield data


async def _begun(pieces: AsyncIterator[bytes]) -> bytes:
    """The first piece that is not blank, without leading blanks; b"" for none."""
    async for piece in pieces:
        begun = piece.lstrip(_BLANK)
        if begun:
            return begun
    return b""


async def _chained(first: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in pieces:
        yield piece


async def _document(pieces: AsyncIterator[bytes]) -> AsyncIterator[str]:
    content = bytearray()
    async for piece in pieces:
        content += piece
        if len(content) > EVENT_LIMIT:
            raise EngineError("the answer is without end", retryable=False)
    yield content.decode("utf-8", "replace")


def _reason(content: bytes) -> str:
    """The name of an error in its body, as " (model_not_found)", or "" for none. Sentences are left out,
    since they may quote the request, which has the caller's words."""
    try:
        error = read_json(content)["error"]
        names = [error.get("code"), error.get("type")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return next((f" ({name})" for name in names if isinstance(name, str) and _NAME.fullmatch(name)), "")


async def _beginning(answer: aiohttp.ClientResponse) -> bytes:
    """The first `REASON_LIMIT` bytes of an error's body, or what has come of them after `REASON_S`."""
    content = bytearray()
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(REASON_S):
            while len(content) < REASON_LIMIT and (piece := await answer.content.readany()):
                content += piece
    return bytes(content[:REASON_LIMIT])


def _unsupported(content: bytes, sent: Mapping[str, Any]) -> frozenset[str]:
    """The fields of a request that its refusal names as unknown or unsupported, as in "Unsupported parameter:
    'max_tokens' is not supported with this model"."""
    text = content.decode("utf-8", "replace")
    if _NOT_KNOWN.search(text) is None:
        return frozenset()
    return frozenset(re.findall(r"\w+", text)) & sent.keys()


def _rest_s(headers: Mapping[str, str], now: datetime) -> float:
    """The seconds of `Retry-After` (RFC 9110, 10.2.3); a date counts from the server's `Date` where there is
    one. 0 for none, a date in the past or an invalid value."""
    header = headers.get("Retry-After", "")
    at, here = _moment(header), _moment(headers.get("Date", "")) or now
    try:
        rest_s = float(header) if at is None else (at - here).total_seconds()
    except ValueError:
        return 0.0
    return min(RETRY_AFTER_LIMIT_S, max(0.0, rest_s))


def _moment(date: str) -> datetime | None:
    """Parses an HTTP date (RFC 9110, 5.6.7) of any of the three forms; None for an invalid one."""
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _base_url(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError('must be a URL such as "http://127.0.0.1:8000/v1"; there is no default')
    return value


class EndpointTable(EngineTable):
    """The options of an engine behind an OpenAI-compatible API. `base_url` is required."""

    base_url: Annotated[str, AfterValidator(_base_url)] = Field(default="", validate_default=True)
    api_key: str = Field(default="", repr=False)
    headers: dict[HeaderName, HeaderText] = Field(default_factory=dict, repr=False, max_length=20)
    query: dict[str, str] = Field(default_factory=dict, repr=False, max_length=20)
    extra_body: ExtraBody = Field(default_factory=dict, max_length=50)

    def endpoint(self, *, timeout_s: float) -> ModelEndpoint:
        """Makes the client of this server. `timeout_s`: default of the longest wait for a whole answer."""
        return ModelEndpoint(self.base_url, api_key=self.api_key, timeout_s=timeout_s, extras=self.extras)

    @property
    def extras(self) -> Extras:
        """What is sent with every request beside the API's own."""
        return Extras(headers=self.headers, query=self.query, body=self.extra_body)
