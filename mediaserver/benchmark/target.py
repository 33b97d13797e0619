"""Whom the benchmark calls, and whom it does not."""

from __future__ import annotations

import asyncio
import re
import socket
from dataclasses import dataclass
from typing import Final

from mediaserver.errors import LocalError
from sip.errors import MalformedMessage
from sip.message.uri import Uri, format_hostport
from sip.trunk import NUMBER

_EMERGENCY: Final = (
    "14 15 17 18 19 "
    "000 061 062 066 068 080 085 088 091 092 "
    "100 101 102 103 104 105 106 107 108 110 111 112 113 114 115 116 117 118 119 "
    "120 122 123 124 125 128 131 132 133 140 144 150 155 158 160 171 175 177 185 "
    "190 191 192 193 194 195 196 197 198 199 "
    "901 902 903 911 913 933 977 988 990 991 992 993 994 995 996 997 998 999 "
    "1122 1155 1515 1530 1669"
)
EMERGENCY: Final = frozenset(_EMERGENCY.split())
"""Police, fire and rescue of some country, of two to four digits. Never called, whoever asks."""

_TELEPHONE: Final = re.compile(r"\+?[0-9*#]+")
_SEPARATORS: Final = re.compile(r"[-._()]")
_OUTSIDE_LINE: Final = ("0", "9")
"""What many exchanges want dialled before a number of the public network."""


class CallTargetRefused(LocalError):
    """Not an address that the benchmark calls; the message says why."""


@dataclass(frozen=True, slots=True)
class CallTarget:
    """`user` at `host`, over `transport`. `address`: what `host` leads to."""

    user: str
    host: str
    port: int | None
    transport: str
    address: str

    @property
    def is_telephone(self) -> bool:
        """Whether the user part is dialled: of any length, since an exchange, on this machine too, may put
        each through to the public telephone network."""
        return _TELEPHONE.fullmatch(_SEPARATORS.sub("", self.user)) is not None

    @property
    def trunk_uri(self) -> str:
        """The SIP URI of the host that INVITEs are sent to, without the user."""
        return f"sip:{format_hostport(self.host, self.port)};transport={self.transport}"

    def __str__(self) -> str:
        return self.trunk_uri.replace("sip:", f"sip:{self.user}@", 1)


async def target(text: str, *, sure: bool = False) -> CallTarget:
    """The address in `text` (sip:user@host[:port][;transport=tcp]), which may be a number where the user is
    `sure`. Raises `CallTargetRefused`."""
    uri = _parsed(text)
    if _is_emergency(uri.user):
        raise CallTargetRefused(f"{text}: an emergency number is never called by a benchmark")
    found = CallTarget(uri.user, uri.host, uri.port, uri.transport or "udp", await _address(uri.host))
    if found.is_telephone and not sure:
        raise CallTargetRefused(
            f"{text}: a number: every call may ring a person and cost money; --yes calls it"
        )
    return found


def _is_emergency(user: str) -> bool:
    """Whether `user` is an emergency number of some country, as it stands or behind an outside line's
    digit."""
    digits = _SEPARATORS.sub("", user).lstrip("+*#").rstrip("#")
    return digits in EMERGENCY or (digits.startswith(_OUTSIDE_LINE) and digits[1:] in EMERGENCY)


def _parsed(text: str) -> Uri:
    try:
        uri = Uri.parse(text)
    except MalformedMessage as fault:
        raise CallTargetRefused(f"{text}: {fault}") from None
    if uri.scheme != "sip" or uri.transport not in (None, "udp", "tcp"):
        raise CallTargetRefused(f"{text}: only sip: over UDP or TCP is called")
    if not NUMBER.fullmatch(uri.user):
        raise CallTargetRefused(
            f"{text}: whom to call stands before the @: 1 to 64 of 0-9 A-Z a-z + * # . _ -"
        )
    return uri


async def _address(host: str) -> str:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise CallTargetRefused(f"{host}: {(error.strerror or str(error)).lower()}") from None
    return str(found[0][4][0]).partition("%")[0]
