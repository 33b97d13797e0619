"""A service behind a websocket as data: how its socket is opened, and where things stand in its messages.
Sans I/O but for `address_of`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from pipeline.engines.tables import HeaderName, HeaderText, HttpUrl, Table
from pipeline.errors import EngineError
from pipeline.net.web_socket import MESSAGE_LIMIT, Framing, SocketEndpoint

LATEST_MS: Final = 1e9
"""Of a word's times, from the stream's first sample: eleven days."""

Message = dict[str, Any]
_PLACE: Final = re.compile(r"\{([a-z_]+)\}")


def _socket_url(value: str) -> str:
    if not value.startswith(("ws://", "wss://")):
        raise ValueError('must be a URL such as "wss://host/path"')
    return value


SocketUrl = Annotated[str, AfterValidator(_socket_url)]


class SocketSettings(Table):
    """The options of every engine behind a websocket. `begin`: sent first; `ready`: the message after which
    others are taken. `keep_alive`: sent after `keep_alive_s` without a message. `end`: sent before the socket
    is closed. `session_url`: where the address of each socket is
    asked for by POST, with `session_body`; it stands at `session_address` of the answer. `{language}` and
    other places of an engine are filled in in `url`, `query`, `session_body` and `begin`."""

    url: SocketUrl
    session_url: HttpUrl | Literal[""] = ""
    session_body: Message = Field(default_factory=dict)
    session_address: str = ""
    api_key: str = Field(default="", repr=False)
    headers: dict[HeaderName, HeaderText] = Field(default_factory=dict, repr=False, max_length=20)
    query: dict[str, str] = Field(default_factory=dict, repr=False, max_length=40)
    begin: tuple[Message, ...] = Field(default=(), max_length=5)
    ready: Message = Field(default_factory=dict)
    keep_alive: Message = Field(default_factory=dict)
    keep_alive_s: float = Field(default=4.0, ge=0.1, le=60)
    end: Message = Field(default_factory=dict)

    def endpoint(self, framing: Framing = Framing.JSON, *, longest: int = MESSAGE_LIMIT) -> SocketEndpoint:
        """Makes the client of this service. `longest`: most bytes of a message."""
        headers = dict(self.headers)
        if self.api_key and "authorization" not in {name.lower() for name in headers}:
            headers["Authorization"] = f"Bearer {self.api_key}"
        urls: Iterable[str] = filter(None, (self.url, self.session_url))
        return SocketEndpoint(urls, headers=headers, framing=framing, longest=longest)


async def address_of(
    service: SocketSettings, endpoint: SocketEndpoint, places: Mapping[str, Any]
) -> tuple[str, dict[str, str]]:
    """The URL and the query of a socket, which some services give for each; encrypted where it was asked for
    so. Raises `EngineError`, as for an answer without an address."""
    query = {name: str(value) for name, value in filled_in(service.query, **places).items()}
    if not service.session_url:
        return filled_in(service.url, **places), query
    answer = await endpoint.ask(service.session_url, filled_in(service.session_body, **places))
    url = at(answer, service.session_address)
    schemes = ("wss://",) if service.session_url.lower().startswith("https:") else ("ws://", "wss://")
    if not isinstance(url, str) or not url.startswith(schemes):
        raise EngineError(f"{endpoint.host} gave no address for a socket", retryable=True)
    return url, query


async def check(service: SocketSettings, endpoint: SocketEndpoint, places: Mapping[str, Any]) -> str:
    """Checks whether the service takes a socket: gives "" if so, else the reason."""
    try:
        url, query = await address_of(service, endpoint, places)
        async with endpoint.opened(url, query):
            return ""
    except EngineError as error:
        return str(error)


# Paths through messages -------------------------------------------------------------------------------------


def at(message: object, path: str) -> object:
    """The value at a path such as "channel.alternatives.0.transcript"; None for none."""
    value = message
    for name in path.split(".") if path else ("",):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def fits(message: object, when: Mapping[str, Any]) -> bool:
    """Whether the message has the value, or one of the list of values, at each path. `*` in a path stands for
    any item of a list."""
    return all(_fits(message, path, value) for path, value in when.items())


def _fits(message: object, path: str, value: object) -> bool:
    before, star, after = path.partition(".*.")
    if star:
        found = at(message, before)
        return any(_fits(each, after, value) for each in (found if isinstance(found, list) else ()))
    return at(message, path) in (value if isinstance(value, list) else [value])


def filled_in(value: Any, **places: Any) -> Any:
    """`value` with each `{name}` of `places` filled in, and no place within what was; a place that is a whole
    text keeps its type."""
    if isinstance(value, Mapping):
        return {key: filled_in(inner, **places) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [filled_in(inner, **places) for inner in value]
    if not isinstance(value, str):
        return value
    whole = _PLACE.fullmatch(value)
    if whole is not None and whole[1] in places:
        return places[whole[1]]
    return _PLACE.sub(lambda place: str(places.get(place[1], place[0])), value)


def time_ms(value: object, unit_ms: float) -> int | None:
    """A time or a duration in milliseconds; None for what cannot be one."""
    read = number(value)
    ms = -1.0 if read is None else read * unit_ms
    return round(ms) if 0 <= ms <= LATEST_MS else None


def number(value: object) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def name_of(error: str) -> str:
    """The short name of an error; sentences may quote what was said."""
    return error if error.replace("_", "").replace("-", "").replace(".", "").isalnum() else "error"
