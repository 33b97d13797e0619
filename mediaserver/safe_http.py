"""HTTP to addresses that somebody else chose, without becoming their way into our network.

A webhook's URL is a customer's to choose, so it may point at this machine, at the network around it or at a
cloud's metadata service, by number, by a name that resolves there, or by a name that resolves elsewhere when
it is checked and there when it is used (DNS rebinding). The check is therefore made where it cannot be gone
round: on the very address that a socket is about to be connected to. Redirects are answers like any other,
proxies of the environment are not used, answers are cut at 64 KiB and an exchange takes at most five seconds
unless a caller says otherwise.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver

from mediaserver.errors import RequestFailed, TargetRefused

TIMEOUT_S = 5.0
ANSWER_LIMIT = 64 * 1024
CONNECTIONS_PER_HOST = 16

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
AddressInfo: TypeAlias = tuple[Any, Any, int, str, tuple[Any, ...]]

# What IANA's special-purpose registries (RFC 6890) keep from the public, where some supported version of
# `ipaddress` still calls it global.
_NEVER = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "100.64.0.0/10",
        "168.63.129.16/32",  # Azure's host, which is no special-purpose address to IANA
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "224.0.0.0/3",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")  # RFC 2765: a translator's spelling of an IPv4 host
_COMPATIBLE = ipaddress.IPv6Network("::/96")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer, whatever its status. `body` is at most 64 KiB."""

    status: int
    body: bytes
    duration_ms: int


class AddressRefused(OSError):
    """Raised in the place of a socket: aiohttp passes it on as the reason of its own error."""


class Reach:
    """Which addresses may be connected to: public ones, and those in `allow_networks`."""

    def __init__(self, allow_networks: Iterable[str] = ()) -> None:
        self._allowed: tuple[IpNetwork, ...] = tuple(ipaddress.ip_network(text) for text in allow_networks)

    def allows(self, host: str) -> bool:
        """Whether the IP address `host` may be connected to."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        return all(self._allows(inner) for inner in _meanings(address))

    def _allows(self, address: IpAddress) -> bool:
        if any(address in network for network in self._allowed):
            return True
        return address.is_global and not any(address in network for network in _NEVER)


def _meanings(address: IpAddress) -> list[IpAddress]:
    """The addresses that a packet to `address` may end at: itself, or the IPv4 address wrapped in it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if address.teredo is not None:
        return [address, *address.teredo]
    if address in _NAT64 or address in _TRANSLATED or (address in _COMPATIBLE and int(address) > 1):
        return [address, ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address]


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
        self._reach = Reach(allow_networks)
        self._resolver = resolver
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            resolver=self._resolver,
            limit=0,
            limit_per_host=CONNECTIONS_PER_HOST,
            use_dns_cache=False,
            socket_factory=self._checked_socket,
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
            if _refused(error):
                raise TargetRefused("the address is not one that this server connects to") from error
            raise RequestFailed("cannot connect") from error
        except TimeoutError as error:
            raise RequestFailed("no answer in time") from error
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise RequestFailed(f"no usable answer ({type(error).__name__})") from error
        return HttpAnswer(answer.status, content, round((time.monotonic() - started) * 1000))

    def _checked_socket(self, info: AddressInfo) -> socket.socket:
        family, kind, protocol, _, address = info
        if not self._reach.allows(str(address[0])):
            raise AddressRefused("address refused")
        return socket.socket(family, kind, protocol)


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


def _refused(error: BaseException) -> bool:
    """Whether an address was refused anywhere down the chain of causes."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AddressRefused) or isinstance(getattr(cause, "os_error", None), AddressRefused):
            return True
        cause = cause.__cause__
    return False
