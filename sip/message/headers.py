"""SIP header fields: the ordered list, and the structured values that a user agent needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sip.errors import MalformedMessage
from sip.message.uri import Uri, format_hostport, parse_hostport

COMPACT_FORMS: Mapping[str, str] = {
    "a": "Accept-Contact",
    "b": "Referred-By",
    "c": "Content-Type",
    "d": "Request-Disposition",
    "e": "Content-Encoding",
    "f": "From",
    "i": "Call-ID",
    "j": "Reject-Contact",
    "k": "Supported",
    "l": "Content-Length",
    "m": "Contact",
    "n": "Identity-Info",
    "o": "Event",
    "r": "Refer-To",
    "s": "Subject",
    "t": "To",
    "u": "Allow-Events",
    "v": "Via",
    "x": "Session-Expires",
    "y": "Identity",
}
"""Compact header names and their long forms (RFC 3261 7.3.3 and the IANA registry)."""

TOKEN = re.compile(r"[A-Za-z0-9\-.!%*_+`'~]+")
"""The production "token" of RFC 3261 25.1."""

_BARE_VALUE = re.compile(r"[A-Za-z0-9\-.!%*_+`'~\[\]:]+")
_CSEQ = re.compile(rf"([0-9]{{1,20}})\s+({TOKEN.pattern})")
# Any version: a Via of SIP/7.0 must parse, so that the 505 can be sent along it.
_VIA_PROTOCOL = re.compile(rf"SIP\s*/\s*[0-9.]+\s*/\s*({TOKEN.pattern})\s+(.*)", re.IGNORECASE | re.DOTALL)
_VIA_SENT_BY = re.compile(r"(\[[^\]]*\]|[^:\s]+)\s*(?::\s*([0-9]+))?")


class Headers:
    """The header fields of one message, in order, with names compared without case.

    Compact names are expanded when added, so that `get("Via")` finds a `v:` line. Values are text without
    folding or surrounding blanks; one line may hold several values separated by commas (`split_list`)."""

    __slots__ = ("_fields",)

    def __init__(self, items: Iterable[tuple[str, str]] = ()) -> None:
        self._fields: list[tuple[str, str, str]] = []  # lower-case name, name, value
        for name, value in items:
            self.add(name, value)

    def get(self, name: str) -> str | None:
        """Returns the first line of that name, or None."""
        key = _expand(name).lower()
        return next((value for k, _, value in self._fields if k == key), None)

    def get_all(self, name: str) -> list[str]:
        """Returns every line of that name, in order."""
        key = _expand(name).lower()
        return [value for k, _, value in self._fields if k == key]

    def add(self, name: str, value: str) -> None:
        """Appends a header field; a compact name is expanded."""
        name = _expand(name)
        self._fields.append((name.lower(), name, value))

    def prepend(self, name: str, value: str) -> None:
        """Puts a line before all others (a Via, a Record-Route)."""
        name = _expand(name)
        self._fields.insert(0, (name.lower(), name, value))

    def set(self, name: str, value: str) -> None:
        """Replaces every line of that name by one, at the position of the first, or appends it."""
        name = _expand(name)
        key = name.lower()
        place = next((i for i, entry in enumerate(self._fields) if entry[0] == key), len(self._fields))
        self.remove(name)
        self._fields.insert(place, (key, name, value))

    def remove(self, name: str) -> None:
        """Removes every line of that name."""
        key = _expand(name).lower()
        self._fields = [entry for entry in self._fields if entry[0] != key]

    def pop_first(self, name: str) -> str | None:
        """Removes and returns the first comma-separated value of that name (the topmost Via or Route); None
        without one.

        Raises MalformedMessage where the line's quotes or brackets are unbalanced."""
        key = _expand(name).lower()
        for place, (k, shown, value) in enumerate(self._fields):
            if k != key:
                continue
            first, *rest = split_list(value) or [""]
            if rest:
                self._fields[place] = (k, shown, ", ".join(rest))
            else:
                del self._fields[place]
            return first
        return None

    def copy(self) -> Headers:
        """Copies the fields into an independent `Headers`."""
        other = Headers()
        other._fields = list(self._fields)
        return other

    def items(self) -> list[tuple[str, str]]:
        """Returns every line as (name, value), compact names expanded."""
        return [(name, value) for _, name, value in self._fields]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.items())

    def __len__(self) -> int:
        return len(self._fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Headers):
            return NotImplemented
        return [(k, v) for k, _, v in self._fields] == [(k, v) for k, _, v in other._fields]

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"Headers({self.items()!r})"


@dataclass(frozen=True, slots=True)
class NameAddr:
    """The value of From, To, Contact, Route, Record-Route, Refer-To: a URI, the display name, parameters.

    `params` are the header's (tag, q, expires), with lower-case names and None for no value; those of the URI
    are in `uri.params`. `Contact: *` is `WILDCARD`."""

    uri: Uri
    display: str = ""
    params: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> NameAddr:
        """Parses one value. Raises MalformedMessage.

        Accepts what some carriers send against the grammar and is unambiguous: an unquoted display name may
        hold any character but a quote, and blanks within the angle brackets are dropped."""
        text = text.strip()
        if text == "*":
            return WILDCARD
        display, rest = _take_display(text)
        if rest.startswith("<"):
            end = rest.find(">")
            if end < 0:
                raise MalformedMessage("address with an unclosed <")
            return cls(Uri.parse(rest[1:end].strip()), display, parse_params(rest[end + 1 :]))
        # Without brackets every parameter is the header's, and "?" and "," are not allowed (RFC 3261 20).
        address, semicolon, params = text.partition(";")
        if "?" in address or "," in address:
            raise MalformedMessage("address that must be in angle brackets")
        return cls(Uri.parse(address.strip()), "", parse_params(semicolon + params))

    @classmethod
    def parse_list(cls, values: Iterable[str]) -> list[NameAddr]:
        """Parses every value of every line given. Raises MalformedMessage, also for an empty value."""
        return [cls.parse(part) for value in values for part in split_list(value)]

    @property
    def tag(self) -> str | None:
        """The tag of From or To, None where there is none."""
        return self.params.get("tag")

    @property
    def is_wildcard(self) -> bool:
        """Whether the value is the `*` of `Contact: *` (RFC 3261 10.2.2)."""
        return self.uri.scheme == "*"

    def with_tag(self, tag: str) -> NameAddr:
        """Returns a copy with that tag."""
        return replace(self, params={**self.params, "tag": tag})

    def __str__(self) -> str:
        if self.is_wildcard:
            return "*"
        name = f"{_quote(self.display)} " if self.display else ""
        return f"{name}<{self.uri}>{format_params(self.params)}"


WILDCARD = NameAddr(Uri("*"))
"""`Contact: *` (RFC 3261 10.2.2)."""


@dataclass(frozen=True, slots=True)
class Via:
    """One hop of a message's path (RFC 3261 20.42, RFC 3581). `transport` is in upper case."""

    transport: str
    host: str
    port: int | None = None
    params: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Via:
        """Parses one value. Raises MalformedMessage."""
        match = _VIA_PROTOCOL.fullmatch(text.strip())
        if match is None:
            raise MalformedMessage("Via that is not of SIP")
        sent_by, semicolon, params = match[2].partition(";")
        place = _VIA_SENT_BY.fullmatch(sent_by.strip())
        if place is None:
            raise MalformedMessage("Via without an address")
        host, port = parse_hostport(place[1] + (f":{place[2]}" if place[2] else ""))
        return cls(match[1].upper(), host, port, parse_params(semicolon + params))

    @classmethod
    def parse_list(cls, values: Iterable[str]) -> list[Via]:
        """Parses every value of every line given, topmost first. Raises MalformedMessage."""
        return [cls.parse(part) for value in values for part in split_list(value)]

    @property
    def branch(self) -> str | None:
        """The transaction's id, None from an RFC 2543 peer."""
        return self.params.get("branch")

    @property
    def received(self) -> str | None:
        """The address that the next hop saw, without brackets."""
        value = self.params.get("received")
        return value.strip("[]") if value else None

    def with_params(self, **params: str | None) -> Via:
        """Returns a copy with parameters added or replaced."""
        return replace(self, params={**self.params, **params})

    def __str__(self) -> str:
        return f"SIP/2.0/{self.transport} {format_hostport(self.host, self.port)}{format_params(self.params)}"


@dataclass(frozen=True, slots=True)
class CSeq:
    """The sequence number of a request in its dialog, and its method (RFC 3261 8.1.1.5)."""

    number: int
    method: str

    @classmethod
    def parse(cls, text: str) -> CSeq:
        """Parses the value. Raises MalformedMessage, also for a number of more than 32 bits."""
        match = _CSEQ.fullmatch(text)
        if match is None:
            raise MalformedMessage("CSeq that is not a number and a method")
        if int(match[1]) > 0xFFFFFFFF:
            raise MalformedMessage("CSeq with more than 32 bits")
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"{self.number} {self.method}"


def split_list(value: str) -> list[str]:
    """Splits at commas outside quotes and angle brackets. Raises MalformedMessage where these are unbalanced,
    or where a value is empty."""
    if not value:
        return []
    if "," not in value and '"' not in value:
        return [value.strip()]
    parts = [part.strip() for part in _cut(value, ",")]
    if not all(parts):
        raise MalformedMessage("empty value in a list")
    return parts


def parse_params(text: str) -> dict[str, str | None]:
    """Parses `;name=value;name` (blanks allowed, values unquoted, names in lower case); empty text gives no
    parameter. Of a name given twice the first counts. Raises MalformedMessage."""
    text = text.strip()
    if not text:
        return {}
    if not text.startswith(";"):
        raise MalformedMessage("text after a value")
    params: dict[str, str | None] = {}
    for part in _cut(text[1:], ";"):
        name, equals, value = part.partition("=")
        name, value = name.strip(), value.strip()
        if not TOKEN.fullmatch(name) or (equals and not value):
            raise MalformedMessage("broken parameter")
        params.setdefault(name.lower(), _unquote(value) if equals else None)
    return params


def format_params(params: Mapping[str, str | None]) -> str:
    """Formats `;name=value;name`, with values quoted that are neither tokens nor hosts."""
    return "".join(
        f";{name}" if value is None else f";{name}={value if _BARE_VALUE.fullmatch(value) else _quote(value)}"
        for name, value in params.items()
    )


def _expand(name: str) -> str:
    return COMPACT_FORMS.get(name.lower(), name) if len(name) == 1 else name


_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PIECE = re.compile(rf'{_QUOTED}|<[^>]*>|[^"<>,;]+|[,;]', re.DOTALL)


def _cut(text: str, separator: str) -> list[str]:
    """Splits `text` at each `separator` outside quotes and brackets. Raises MalformedMessage where these are
    unbalanced."""
    parts: list[str] = []
    current: list[str] = []
    place = 0
    while place < len(text):
        match = _PIECE.match(text, place)
        if match is None:
            raise MalformedMessage("unbalanced quotes or angle brackets")
        piece = match[0]
        if piece == separator:
            parts.append("".join(current))
            current = []
        else:
            current.append(piece)
        place = match.end()
    return [*parts, "".join(current)]


_LEADING_QUOTED = re.compile(rf"({_QUOTED})\s*", re.DOTALL)


def _take_display(text: str) -> tuple[str, str]:
    """Returns the display name, unquoted, and the text after it."""
    match = _LEADING_QUOTED.match(text)
    if match is not None:
        rest = text[match.end() :]
        if not rest.startswith("<"):
            raise MalformedMessage("display name without an address in angle brackets")
        return _unquote(match[1]), rest
    bracket = text.find("<")
    if bracket < 0:
        return "", text
    display = text[:bracket].strip()
    if '"' in display or ">" in display:
        raise MalformedMessage("unbalanced quotes in a display name")
    return display, text[bracket:]


def _unquote(value: str) -> str:
    if len(value) >= 2 and value[0] == '"' == value[-1]:
        return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
    return value


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
