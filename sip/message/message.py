"""SIP requests and responses: parsed from bytes and serialised (RFC 3261 sections 7, 8.2.6, 18.3, 20, 25)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sip.errors import LocalError, MalformedMessage
from sip.message.grammar import Head, check, read_head
from sip.message.headers import TOKEN, CSeq, Headers, NameAddr, Via, split_list
from sip.message.uri import Uri

MAX_MESSAGE = 65_535
"""Bytes of one message: the limit of a UDP datagram, applied to streams too."""

REASONS: Mapping[int, str] = {
    100: "Trying",
    180: "Ringing",
    181: "Call Is Being Forwarded",
    182: "Queued",
    183: "Session Progress",
    199: "Early Dialog Terminated",
    200: "OK",
    202: "Accepted",
    204: "No Notification",
    300: "Multiple Choices",
    301: "Moved Permanently",
    302: "Moved Temporarily",
    305: "Use Proxy",
    380: "Alternative Service",
    400: "Bad Request",
    401: "Unauthorized",
    402: "Payment Required",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    407: "Proxy Authentication Required",
    408: "Request Timeout",
    410: "Gone",
    412: "Conditional Request Failed",
    413: "Request Entity Too Large",
    414: "Request-URI Too Long",
    415: "Unsupported Media Type",
    416: "Unsupported URI Scheme",
    417: "Unknown Resource-Priority",
    420: "Bad Extension",
    421: "Extension Required",
    422: "Session Interval Too Small",
    423: "Interval Too Brief",
    424: "Bad Location Information",
    428: "Use Identity Header",
    429: "Provide Referrer Identity",
    430: "Flow Failed",
    433: "Anonymity Disallowed",
    436: "Bad Identity Info",
    437: "Unsupported Credential",
    438: "Invalid Identity Header",
    439: "First Hop Lacks Outbound Support",
    440: "Max-Breadth Exceeded",
    469: "Bad Info Package",
    470: "Consent Needed",
    480: "Temporarily Unavailable",
    481: "Call/Transaction Does Not Exist",
    482: "Loop Detected",
    483: "Too Many Hops",
    484: "Address Incomplete",
    485: "Ambiguous",
    486: "Busy Here",
    487: "Request Terminated",
    488: "Not Acceptable Here",
    489: "Bad Event",
    491: "Request Pending",
    493: "Undecipherable",
    494: "Security Agreement Required",
    500: "Server Internal Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Server Time-out",
    505: "Version Not Supported",
    513: "Message Too Large",
    555: "Push Notification Service Not Supported",
    580: "Precondition Failure",
    600: "Busy Everywhere",
    603: "Decline",
    604: "Does Not Exist Anywhere",
    606: "Not Acceptable",
    607: "Unwanted",
    608: "Rejected",
}
"""Status codes and their reason phrases (the IANA registry of SIP response codes)."""

_LINE_BREAK = re.compile(r"[\r\n]")
_DIALOG_METHODS = ("INVITE", "SUBSCRIBE", "REFER")


class _Fields:
    """The parsed header fields that requests and responses share.

    Structured ones raise MalformedMessage where a value is missing or malformed. `parse` has checked the
    values of every one, so on a parsed message only absent fields raise."""

    __slots__ = ()

    headers: Headers
    body: bytes

    def header(self, name: str) -> str | None:
        """Returns the first line of that name as text, or None."""
        return self.headers.get(name)

    @property
    def via(self) -> Via:
        """The topmost Via."""
        return Via.parse(next(iter(split_list(self._mandatory("Via"))), ""))

    @property
    def vias(self) -> list[Via]:
        """Every Via, topmost first."""
        return Via.parse_list(self.headers.get_all("Via"))

    @property
    def from_(self) -> NameAddr:
        """From."""
        return NameAddr.parse(self._mandatory("From"))

    @property
    def to(self) -> NameAddr:
        """To."""
        return NameAddr.parse(self._mandatory("To"))

    @property
    def call_id(self) -> str:
        """Call-ID."""
        return self._mandatory("Call-ID")

    @property
    def cseq(self) -> CSeq:
        """CSeq."""
        return CSeq.parse(self._mandatory("CSeq"))

    @property
    def contacts(self) -> list[NameAddr]:
        """Every Contact; `*` is one with `is_wildcard`."""
        return NameAddr.parse_list(self.headers.get_all("Contact"))

    @property
    def routes(self) -> list[NameAddr]:
        """Every Route, topmost first."""
        return NameAddr.parse_list(self.headers.get_all("Route"))

    @property
    def record_routes(self) -> list[NameAddr]:
        """Every Record-Route, topmost first."""
        return NameAddr.parse_list(self.headers.get_all("Record-Route"))

    @property
    def content_type(self) -> str | None:
        """The body's media type in lower case, without parameters; None where there is none."""
        value = self.headers.get("Content-Type")
        return None if value is None else value.partition(";")[0].strip().lower()

    @property
    def supported(self) -> frozenset[str]:
        """Option tags of Supported, in lower case."""
        return self._tags("Supported")

    @property
    def require(self) -> frozenset[str]:
        """Option tags of Require, in lower case."""
        return self._tags("Require")

    def _tags(self, name: str) -> frozenset[str]:
        parts = ",".join(self.headers.get_all(name)).split(",")
        return frozenset(part.strip().lower() for part in parts if part.strip())

    def _mandatory(self, name: str) -> str:
        value = self.headers.get(name)
        if value is None:
            raise MalformedMessage("message without a mandatory header")
        return value


@dataclass(slots=True)
class Request(_Fields):
    """A request. `uri` is the Request-URI; its scheme may be an unsupported one (416)."""

    method: str
    uri: Uri
    headers: Headers = field(default_factory=Headers)
    body: bytes = b""

    def to_bytes(self) -> bytes:
        """Serialises the message, with Content-Length. Raises LocalError for a line break in any part."""
        if not TOKEN.fullmatch(self.method):
            raise LocalError("method that is not a token")
        return _serialise(f"{self.method} {self.uri} SIP/2.0", self.headers, self.body)


@dataclass(slots=True)
class Response(_Fields):
    """A response. `status` is 100 to 699; `reason` is for people only."""

    status: int
    reason: str
    headers: Headers = field(default_factory=Headers)
    body: bytes = b""

    def to_bytes(self) -> bytes:
        """Serialises the message, with Content-Length. Raises LocalError for a line break in any part."""
        return _serialise(f"SIP/2.0 {self.status} {self.reason}", self.headers, self.body)


class MalformedRequest(MalformedMessage):
    """A malformed request that can be answered with `code`. `request` is what could be parsed: enough for
    `response_to`, which copies those of Via, From, To, Call-ID and CSeq that are there."""

    def __init__(self, message: str, code: int, request: Request) -> None:
        super().__init__(message, code)
        self.request = request


def parse(data: bytes) -> Request | Response:
    """Parses one message from one datagram; bytes after Content-Length and line breaks before the message are
    ignored.

    Raises MalformedMessage with the status to answer with: 400, 505 for another SIP version, 513 for a
    message beyond the limits; MalformedRequest where it can be answered."""
    if len(data) > MAX_MESSAGE:
        raise MalformedMessage("message too large", 513)
    text, separator, body = data.lstrip(b"\r\n").partition(b"\r\n\r\n")
    head = read_head(text)
    if not separator:
        head.fault("message without an empty line after its headers", 400)
    return assemble(head, body)


def assemble(head: Head, body: bytes) -> Request | Response:
    """Makes a message from its head and the bytes that follow it. Raises MalformedMessage as `parse` does."""
    check(head, len(body))
    message: Request | Response
    if head.status is None:
        message = Request(head.method, head.uri, head.headers)
    else:
        message = Response(head.status, head.reason, head.headers)
    if head.error is not None:
        if isinstance(message, Request) and head.answerable:
            raise MalformedRequest(head.error, head.code, message)
        raise MalformedMessage(head.error, head.code)
    length = message.headers.get("Content-Length")
    message.body = body if length is None else body[: int(length)]
    return message


def response_to(
    request: Request,
    status: int,
    *,
    reason: str | None = None,
    to_tag: str | None = None,
    headers: Iterable[tuple[str, str]] = (),
) -> Response:
    """Makes a response to `request` (RFC 3261 8.2.6.2), with Via, From, To, Call-ID and CSeq copied.

    `to_tag` is added to a To that has no tag. A 100 copies Timestamp; a 101 to 299 that may create a dialog
    copies Record-Route (12.1.1). Fields that the request lacks are left out, so that a malformed one can be
    answered too."""
    copied = Headers()
    for name in ("Via", "From", "To", "Call-ID", "CSeq"):
        for value in request.headers.get_all(name):
            copied.add(name, value)
    if to_tag is not None and status > 100 and _untagged(copied):
        copied.set("To", f"{copied.get('To')};tag={to_tag}")
    if 100 < status < 300 and request.method in _DIALOG_METHODS:
        for value in request.headers.get_all("Record-Route"):
            copied.add("Record-Route", value)
    if status == 100 and (timestamp := request.headers.get("Timestamp")) is not None:
        copied.add("Timestamp", timestamp)
    for name, value in headers:
        copied.add(name, value)
    return Response(status, reason if reason is not None else REASONS.get(status, "Unknown"), copied)


def _untagged(headers: Headers) -> bool:
    value = headers.get("To")
    if value is None:
        return False
    try:
        return NameAddr.parse(value).tag is None
    except MalformedMessage:
        return False


def _serialise(start_line: str, headers: Headers, body: bytes) -> bytes:
    lines = [start_line]
    for name, value in headers.items():
        if name == "Content-Length":
            continue
        if not TOKEN.fullmatch(name):
            raise LocalError("header name that is not a token")
        lines.append(f"{name}: {value}")
    lines.append(f"Content-Length: {len(body)}")
    if any(_LINE_BREAK.search(line) for line in lines):
        raise LocalError("line break within a header value")
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body
