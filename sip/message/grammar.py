"""Parses a message's head: start line, header lines, and the checks of RFC 3261.

A head with a fault is still read to its end, because the answer to a bad request needs its Via, From, To,
Call-ID and CSeq: the first fault is kept, and reported when all is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sip.errors import MalformedMessage
from sip.message.headers import TOKEN, CSeq, Headers, NameAddr, Via
from sip.message.uri import Uri

MAX_HEADERS = 256
MAX_LINE = 8192

_MANDATORY = ("Via", "From", "To", "Call-ID", "CSeq")
_SINGLE = (
    "From", "To", "Call-ID", "CSeq", "Max-Forwards", "Content-Length", "Content-Type", "Expires",
    "Min-Expires", "Session-Expires", "Min-SE", "RSeq", "RAck", "Event", "Refer-To", "Date", "Retry-After",
)  # fmt: skip

_REQUEST_LINE = re.compile(r"([^ ]+) ([^ ]+) SIP/2\.0", re.IGNORECASE)
_STATUS_LINE = re.compile(r"SIP/2\.0 ([1-6][0-9]{2})(?: (.*))?", re.IGNORECASE | re.DOTALL)
_VERSION = re.compile(r".* SIP/([0-9]+\.[0-9]+)", re.IGNORECASE | re.DOTALL)
_HEADER_LINE = re.compile(r"([A-Za-z0-9\-.!%*_+`'~]+)[ \t]*:[ \t]*(.*)", re.DOTALL)
_FOLD = re.compile(rb"\r\n[ \t]+")
_DIGITS = re.compile(r"[0-9]{1,20}")  # leading zeros are allowed, int() of thousands of digits is not
_MEDIA_TYPE = re.compile(rf"{TOKEN.pattern}\s*/\s*{TOKEN.pattern}\s*(;.*)?", re.DOTALL)
_INTERVAL = re.compile(r"[0-9]+\s*([;(].*)?", re.DOTALL)


@dataclass(slots=True)
class Head:
    """A head as far as it could be parsed. `status` is None for a request; `error` and `code` are its first
    fault; `answerable`: the head has a Via that a response can be sent to."""

    method: str = ""
    uri: Uri = field(default_factory=lambda: Uri("unknown"))
    status: int | None = None
    reason: str = ""
    headers: Headers = field(default_factory=Headers)
    error: str | None = None
    code: int = 400
    answerable: bool = False

    def fault(self, error: str, code: int) -> None:
        """Notes a fault, unless there was one before."""
        if self.error is None:
            self.error, self.code = error, code


def read_head(data: bytes) -> Head:
    """Parses start line and header lines (without the empty line after them); never raises."""
    head = Head()
    start, *lines = _FOLD.sub(b" ", data).decode("utf-8", "surrogateescape").split("\r\n")
    _read_start_line(head, start)
    if len(lines) > MAX_HEADERS:
        head.fault("too many header fields", 513)
    for line in lines[:MAX_HEADERS]:
        _read_header_line(head, line)
    return head


def check(head: Head, body_length: int) -> None:
    """Checks all that RFC 3261 demands of a head, given the bytes that follow it; faults are noted in
    `head`."""
    try:
        vias = head.headers.get_all("Via")
        _vias(vias)
        head.answerable = bool(vias and TOKEN.fullmatch(head.method))
    except MalformedMessage:
        head.answerable = False
    try:
        _check_counts(head.headers)
        for name, rule in _RULES.items():
            rule(head.headers.get_all(name))
        _check_method(head)
        _check_length(head.headers, body_length)
    except MalformedMessage as fault:
        head.fault(str(fault), fault.code)


def _read_start_line(head: Head, line: str) -> None:
    if "\n" in line or "\r" in line:
        head.fault("line break within the start line", 400)
    if line[:4].upper() == "SIP/":
        _read_status_line(head, line)
        return
    head.method = line.split(" ", 1)[0]
    match = _REQUEST_LINE.fullmatch(line)
    if match is None or not TOKEN.fullmatch(head.method):
        version = _VERSION.fullmatch(line)
        unknown_version = version is not None and version[1] != "2.0"
        head.fault("not a SIP/2.0 request line", 505 if unknown_version else 400)
        return
    try:
        head.uri = Uri.parse(match[2])
    except MalformedMessage as fault:
        head.fault(str(fault), 400)
    if head.uri.headers:
        head.fault("Request-URI with headers", 400)


def _read_status_line(head: Head, line: str) -> None:
    match = _STATUS_LINE.fullmatch(line)
    head.status = int(match[1]) if match else 0
    head.reason = (match[2] or "") if match else ""
    if match is None:
        head.fault("not a SIP/2.0 status line", 400)


def _read_header_line(head: Head, line: str) -> None:
    match = _HEADER_LINE.fullmatch(line) if len(line) <= MAX_LINE else None
    if match is None or "\n" in line or "\r" in line:
        head.fault("broken or overlong header line", 400)
        return
    head.headers.add(match[1], match[2].rstrip(" \t"))


def _check_counts(headers: Headers) -> None:
    for name in _MANDATORY:
        if not headers.get(name):
            raise MalformedMessage(f"message without {name}")
    for name in _SINGLE:
        if len(headers.get_all(name)) > 1:
            raise MalformedMessage(f"more than one {name}")


def _check_method(head: Head) -> None:
    cseq = CSeq.parse(head.headers.get("CSeq") or "")
    if head.status is None and cseq.method != head.method:
        raise MalformedMessage("CSeq of another method")


def _check_length(headers: Headers, body_length: int) -> None:
    length = headers.get("Content-Length")
    if length is not None and int(length) > body_length:
        raise MalformedMessage("body shorter than Content-Length")


def _address(values: Sequence[str]) -> None:
    for value in values:
        if NameAddr.parse(value).is_wildcard:
            raise MalformedMessage("* where an address must be")


def _bounded(values: Sequence[str]) -> None:
    """Limits the values of a header: parsing 64 KiB of addresses takes 64 ms, during which every call
    waits."""
    if sum(value.count(",") for value in values) > MAX_HEADERS:
        raise MalformedMessage("too many values in a header", 513)


def _contacts(values: Sequence[str]) -> None:
    _bounded(values)
    for contact in NameAddr.parse_list(values):
        expires = contact.params.get("expires")
        if expires is not None:
            _number(2**32 - 1)([expires])


def _routes(values: Sequence[str]) -> None:
    _bounded(values)
    NameAddr.parse_list(values)


def _vias(values: Sequence[str]) -> None:
    _bounded(values)
    if not all(values):
        raise MalformedMessage("empty Via")
    Via.parse_list(values)


def _number(maximum: int) -> Callable[[Sequence[str]], None]:
    def rule(values: Sequence[str]) -> None:
        for value in values:
            if not _DIGITS.fullmatch(value) or int(value) > maximum:
                raise MalformedMessage("number out of range")

    return rule


def _interval(values: Sequence[str]) -> None:
    for value in values:
        if not _INTERVAL.fullmatch(value):
            raise MalformedMessage("not a number of seconds")
        _number(2**32 - 1)([re.split(r"[\s;(]", value, maxsplit=1)[0]])


def _media_type(values: Sequence[str]) -> None:
    for value in values:
        if not _MEDIA_TYPE.fullmatch(value):
            raise MalformedMessage("not a media type")


# Via comes first: where it is malformed nothing can be answered, which outweighs any other fault.
_RULES: Mapping[str, Callable[[Sequence[str]], None]] = {
    "Via": _vias,
    "From": _address,
    "To": _address,
    "Contact": _contacts,
    "Route": _routes,
    "Record-Route": _routes,
    "Max-Forwards": _number(255),
    "Expires": _number(2**32 - 1),
    "Min-Expires": _number(2**32 - 1),
    "RSeq": _number(2**32 - 1),
    "Content-Length": _number(2**32 - 1),
    "Session-Expires": _interval,
    "Min-SE": _interval,
    "Retry-After": _interval,
    "Content-Type": _media_type,
}
