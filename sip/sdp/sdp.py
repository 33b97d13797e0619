"""Session descriptions (RFC 8866): parsed and formatted as far as negotiation needs. Unknown lines are
skipped, bounds are strict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from types import MappingProxyType

from sip.errors import MalformedSdp

MAX_BYTES = 65_535
MAX_MEDIA = 32
MAX_ATTRIBUTES = 256
MAX_FORMATS = 128

_LINE = re.compile(r"([a-z])=(.*)")
_MEDIA = re.compile(r"(\S+) +([0-9]{1,5})(?:/([0-9]{1,5}))? +(\S+)((?: +\S+)*) *")
_CONNECTION = re.compile(r"IN +(IP4|IP6) +(\S+) *", re.IGNORECASE)
_ORIGIN = re.compile(r"(\S+) +([0-9]{1,20}) +([0-9]{1,20}) +IN +(?:IP4|IP6) +(\S+) *", re.IGNORECASE)
_RTPMAP = re.compile(r"([0-9]{1,3}) +([^/\s]+)/([0-9]{1,6})(?:/([0-9]{1,2}))? *")

DIRECTIONS = ("sendrecv", "sendonly", "recvonly", "inactive")

Attribute = tuple[str, str | None]
"""One a= line: (name, value), None for a flag."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The o= line: session id and version of a description, and the host that made it."""

    session_id: int
    version: int
    host: str
    user: str = "-"

    def __str__(self) -> str:
        return f"{self.user} {self.session_id} {self.version} {_address(self.host)}"


_NOBODY = Origin(0, 0, "0.0.0.0")  # for a description without a valid o= line, which nothing here depends on


@dataclass(frozen=True, slots=True)
class RtpMap:
    """One a=rtpmap: the encoding name as written, its RTP clock rate, its channels."""

    name: str
    clock_rate_hz: int
    channels: int = 1


# RFC 3551 table 4: the static payload types of G.711, G.722 and similar, valid without an rtpmap.
_STATIC: Mapping[int, RtpMap] = MappingProxyType(
    {
        0: RtpMap("PCMU", 8000),
        3: RtpMap("GSM", 8000),
        4: RtpMap("G723", 8000),
        8: RtpMap("PCMA", 8000),
        9: RtpMap("G722", 8000),
        13: RtpMap("CN", 8000),
        18: RtpMap("G729", 8000),
    }
)


class _Attributes:
    """The a= lines of a session or of one media section."""

    __slots__ = ()

    attributes: tuple[Attribute, ...]

    def attribute(self, name: str) -> str | None:
        """Returns the value of the first a=name:value, "" for a flag, None where there is none."""
        return next((value or "" for key, value in self.attributes if key == name), None)

    def values(self, name: str) -> list[str]:
        """Returns the values of every a=name:value, in order."""
        return [value for key, value in self.attributes if key == name and value is not None]

    @property
    def direction(self) -> str | None:
        """sendrecv, sendonly, recvonly or inactive; None where no attribute states it."""
        return next((key for key, _ in self.attributes if key in DIRECTIONS), None)


@dataclass(frozen=True, slots=True)
class MediaDescription(_Attributes):
    """One m= section. `port` 0: declined; `connection`: its own c= address, None where it has none;
    `bandwidths`: the b= lines by type (RS and RR in bits per second, RFC 3556)."""

    kind: str
    port: int
    protocol: str
    formats: tuple[str, ...]
    connection: str | None = None
    attributes: tuple[Attribute, ...] = ()
    port_count: int = 1
    bandwidths: Mapping[str, int] = field(default_factory=dict)

    def rtpmaps(self) -> dict[int, RtpMap]:
        """Returns the encoding of each payload type, by its first a=rtpmap or else by RFC 3551."""
        found: dict[int, RtpMap] = {}
        for value in self.values("rtpmap"):
            match = _RTPMAP.fullmatch(value)
            if match is not None:
                found.setdefault(int(match[1]), RtpMap(match[2], int(match[3]), int(match[4] or 1)))
        return {**_STATIC, **found}

    def fmtp(self, payload_type: int) -> str:
        """Returns the a=fmtp parameters of a payload type as text, "" where there are none."""
        for value in self.values("fmtp"):
            number, _, parameters = value.partition(" ")
            if number == str(payload_type):
                return parameters.strip()
        return ""

    def lines(self) -> list[str]:
        """Returns the lines of the media section, without line ends, in the order of RFC 8866 5."""
        port = f"{self.port}/{self.port_count}" if self.port_count > 1 else f"{self.port}"
        media = [f"m={self.kind} {port} {self.protocol} {' '.join(self.formats)}"]
        if self.connection is not None:
            media.append(f"c={_address(self.connection)}")
        media += [f"b={kind}:{value}" for kind, value in self.bandwidths.items()]
        return media + _attribute_lines(self.attributes)


@dataclass(frozen=True, slots=True)
class SessionDescription(_Attributes):
    """A session description (RFC 8866): origin, session attributes and media sections."""

    origin: Origin
    media: tuple[MediaDescription, ...] = ()
    connection: str | None = None
    attributes: tuple[Attribute, ...] = ()
    name: str = "-"
    bandwidths: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes) -> SessionDescription:
        """Parses a description with CRLF or LF. Raises MalformedSdp (400) for malformed SDP, or beyond the
        bounds of 64 KiB, 32 media, and in each 256 attributes and 128 formats."""
        if len(data) > MAX_BYTES:
            raise MalformedSdp("session description too large", 400)
        lines = _lines(data)
        if not lines or lines[0] != ("v", "0"):
            raise MalformedSdp("not a session description of version 0", 400)
        blocks: list[list[tuple[str, str]]] = [[]]
        for kind, value in lines[1:]:
            if kind == "m":
                blocks.append([])
            blocks[-1].append((kind, value))
        if len(blocks) - 1 > MAX_MEDIA:
            raise MalformedSdp("session description with too many media", 400)
        session, *media = blocks
        return cls(
            _origin(session),
            tuple(_media(block) for block in media),
            connection=_connection(session),
            attributes=_attributes(session),
            name=_first(session, "s") or "-",
            bandwidths=_bandwidths(session),
        )

    def address_of(self, media: MediaDescription) -> str:
        """Returns the address of a media section. Raises MalformedSdp where no c= line states it."""
        address = media.connection if media.connection is not None else self.connection
        if address is None:
            raise MalformedSdp("media without an address", 400)
        return address

    def direction_of(self, media: MediaDescription) -> str:
        """Returns the direction of a media section, from the view of its sender; sendrecv where none is
        stated."""
        return media.direction or self.direction or "sendrecv"

    def to_bytes(self) -> bytes:
        """Serialises the description with CRLF line ends."""
        lines = ["v=0", f"o={self.origin}", f"s={self.name}"]
        if self.connection is not None:
            lines.append(f"c={_address(self.connection)}")
        lines += [f"b={kind}:{value}" for kind, value in self.bandwidths.items()]
        lines.append("t=0 0")
        lines += _attribute_lines(self.attributes)
        for media in self.media:
            lines += media.lines()
        return "".join(f"{line}\r\n" for line in lines).encode("utf-8", "surrogateescape")


def _lines(data: bytes) -> list[tuple[str, str]]:
    """Returns (type, value) of each well-formed line; others are skipped, as RFC 8866 section 5 asks for
    unknown types."""
    text = data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    matches = (_LINE.fullmatch(line) for line in text.split("\n"))
    return [(match[1], match[2].strip()) for match in matches if match is not None]


def _first(block: list[tuple[str, str]], kind: str) -> str | None:
    return next((value for key, value in block if key == kind), None)


def _origin(block: list[tuple[str, str]]) -> Origin:
    match = _ORIGIN.fullmatch(_first(block, "o") or "")
    return Origin(int(match[2]), int(match[3]), match[4], match[1]) if match else _NOBODY


def _connection(block: list[tuple[str, str]]) -> str | None:
    value = _first(block, "c")
    if value is None:
        return None
    match = _CONNECTION.fullmatch(value)
    if match is None:
        raise MalformedSdp("broken c= line", 400)
    # Names are legal (RFC 8866 5.7), but resolving one would make a call's media wait for DNS.
    try:
        return str(ip_address(match[2].split("/")[0]))
    except ValueError:
        raise MalformedSdp("c= line without an IP address") from None


def _attributes(block: list[tuple[str, str]]) -> tuple[Attribute, ...]:
    found: list[Attribute] = []
    for kind, value in block:
        if kind == "a":
            name, colon, rest = value.partition(":")
            found.append((name.strip().lower(), rest.strip() if colon else None))
    if len(found) > MAX_ATTRIBUTES:
        raise MalformedSdp("session description with too many attributes", 400)
    return tuple(found)


def _bandwidths(block: list[tuple[str, str]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind, value in block:
        name, _, number = value.partition(":")
        if kind == "b" and number.isascii() and number.isdigit() and len(number) <= 12:
            found[name] = int(number)
    return found


def _media(block: list[tuple[str, str]]) -> MediaDescription:
    match = _MEDIA.fullmatch(block[0][1])
    if match is None or int(match[2]) > 65535:
        raise MalformedSdp("broken m= line", 400)
    formats = tuple(match[5].split())
    if len(formats) > MAX_FORMATS:
        raise MalformedSdp("session description with too many formats", 400)
    return MediaDescription(
        match[1].lower(),
        int(match[2]),
        match[4],
        formats,
        connection=_connection(block),
        attributes=_attributes(block),
        port_count=int(match[3] or 1),
        bandwidths=_bandwidths(block),
    )


def _address(host: str) -> str:
    return f"IN {'IP6' if ':' in host else 'IP4'} {host}"


def _attribute_lines(attributes: tuple[Attribute, ...]) -> list[str]:
    return [f"a={name}" if value is None else f"a={name}:{value}" for name, value in attributes]
