"""Reads the bodies of requests: session descriptions, also inside multipart, and DTMF in INFO."""

from __future__ import annotations

from email.errors import MessageError
from email.parser import BytesParser

from sip.errors import RemoteError
from sip.message.message import Request, Response

SDP = "application/sdp"
DTMF_RELAY = "application/dtmf-relay"
DTMF = "application/dtmf"

_DIGITS = frozenset("0123456789*#ABCD")
_EVENT_DIGITS = {"10": "*", "11": "#", "12": "A", "13": "B", "14": "C", "15": "D"}  # numbers of RFC 4733
_MAX_PARTS = 16


class UnsupportedBody(RemoteError):
    """A body of a type that is not supported: answer 415 with `accept` in Accept."""

    def __init__(self, message: str, *, accept: str) -> None:
        super().__init__(message, 415)
        self.accept = accept


def session_description(message: Request | Response) -> bytes:
    """Returns the SDP of a message, b"" for none. Carriers wrap SDP in multipart/mixed beside ISUP (RFC 3204,
    SIP-I).

    Raises `UnsupportedBody` for any other type and for a compressed body."""
    if not message.body:
        return b""
    encoding = (message.header("Content-Encoding") or "identity").strip().lower()
    kind = message.content_type or ""
    if encoding == "identity" and kind == SDP:
        return message.body
    if encoding == "identity" and kind.startswith("multipart/"):
        found = _within_multipart(message)
        if found is not None:
            return found
    raise UnsupportedBody("body that is not a session description", accept=SDP)


def _within_multipart(message: Request | Response) -> bytes | None:
    head = f"Content-Type: {message.header('Content-Type')}\r\n\r\n".encode("utf-8", "surrogateescape")
    try:
        parsed = BytesParser().parsebytes(head + message.body)
    except (MessageError, ValueError, LookupError):
        return None
    for count, part in enumerate(parsed.walk()):
        if count > _MAX_PARTS:
            return None
        if part.get_content_type() == SDP:
            payload = part.get_payload(decode=True)
            return payload if isinstance(payload, bytes) else None
    return None


def info_digit(request: Request) -> str | None:
    """Returns the DTMF digit of an INFO, None for an INFO without a body (a keep-alive).

    Reads application/dtmf-relay ("Signal=5", as Cisco writes it) and application/dtmf ("5"). Raises
    `UnsupportedBody` for other types, `RemoteError` 400 for a body without a valid digit."""
    if not request.body.strip():
        return None
    text = request.body[:256].decode("ascii", "replace")
    if request.content_type == DTMF_RELAY:
        lines = (line.partition("=") for line in text.splitlines())
        signal = next((value for name, _, value in lines if name.strip().lower() == "signal"), "")
    elif request.content_type == DTMF:
        signal = text
    else:
        raise UnsupportedBody("INFO with a body that is not DTMF", accept=f"{DTMF_RELAY}, {DTMF}")
    signal = signal.strip().upper()
    digit = _EVENT_DIGITS.get(signal, signal)
    if digit not in _DIGITS:
        raise RemoteError("INFO without a DTMF digit", 400)
    return digit
