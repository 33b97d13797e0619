"""Whom the benchmark calls, and whom it does not."""

from __future__ import annotations

import asyncio
import re
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from mediaserver.errors import LocalError
from sip.errors import MalformedMessage
from sip.message.uri import Uri
from sip.trunk import NUMBER

EMERGENCY: Final = frozenset({"000", "112", "911", "999"})
"""Never called, whoever asks."""

_TELEPHONE: Final = re.compile(r"\+?[0-9]{7,15}")
_SEPARATORS: Final = re.compile(r"[-.()]")


class TargetRefused(LocalError):
    """Not an address that the benchmark calls; the message says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """`user` at `host`, over `transport`. `address`: what `host` leads to."""

    user: str
    host: str
    port: int | None
    transport: str
    address: str

    @property
    def is_here(self) -> bool:
        """Whether nothing leaves this machine."""
        return ip_address(self.address).is_loopback

    @property
    def is_telephone(self) -> bool:
        """Whether the user part looks like a number of the public telephone network."""
        return _TELEPHONE.fullmatch(_SEPARATORS.sub("", self.user)) is not None

    @property
    def trunk_uri(self) -> str:
        """The SIP URI of the host that INVITEs are sent to, without the user."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"sip:{host}{port};transport={self.transport}"

    def __str__(self) -> str:
        return self.trunk_uri.replace("sip:", f"sip:{self.user}@", 1)


async def target(text: str, *, sure: bool = False) -> Target:
    """The address in `text` (sip:user@host[:port][;transport=tcp]), which may be a telephone's where the
    user is `sure`. Raises `TargetRefused`."""
    uri = _parsed(text)
    digits = _SEPARATORS.sub("", uri.user).removeprefix("+")
    if digits in EMERGENCY:
        raise TargetRefused(f"{text}: an emergency number is never called by a benchmark")
    found = Target(uri.user, uri.host, uri.port, uri.transport or "udp", await _address(uri.host))
    if found.is_telephone and not found.is_here and not sure:
        raise TargetRefused(
            f"{text}: a telephone number at another machine: every call may ring a person and cost money; "
            "--yes calls it"
        )
    return found


def _parsed(text: str) -> Uri:
    try:
        uri = Uri.parse(text)
    except MalformedMessage as fault:
        raise TargetRefused(f"{text}: {fault}") from None
    if uri.scheme != "sip" or uri.transport not in (None, "udp", "tcp"):
        raise TargetRefused(f"{text}: only sip: over UDP or TCP is called")
    if not NUMBER.fullmatch(uri.user):
        raise TargetRefused(f"{text}: whom to call stands before the @: 1 to 64 of 0-9 A-Z a-z + * # . _ -")
    return uri


async def _address(host: str) -> str:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise TargetRefused(f"{host}: {(error.strerror or str(error)).lower()}") from None
    return str(found[0][4][0]).partition("%")[0]
