"""Splits a byte stream into SIP messages (RFC 3261 18.3, RFC 5626 3.5.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sip.errors import MalformedMessage
from sip.message.grammar import read_head
from sip.message.message import MAX_MESSAGE, Request, Response, assemble

PING = b"\r\n\r\n"
PONG = b"\r\n"

_CONTENT_LENGTH = re.compile(
    rb"^(?:content-length|l)[ \t]*:[ \t]*(?:\r\n[ \t]+)?([^\r\n]*)", re.IGNORECASE | re.MULTILINE
)
_LENGTH = re.compile(rb"0*([0-9]{1,9})[ \t]*")


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """The peer sent a ping (CRLF CRLF) between two messages; answer `PONG` (RFC 5626)."""


def is_keepalive(datagram: bytes) -> bool:
    """Whether a datagram only keeps a NAT binding open: line breaks, or zero bytes."""
    return not datagram.strip(b"\r\n\0")


class StreamParser:
    """Splits the bytes of one connection into messages.

    Holds at most one head and one body of `MAX_MESSAGE` bytes each. Where the start of the next message
    cannot be found (no Content-Length, or a message beyond the limits) the stream is `broken`: the fault is
    returned with the status to answer with, and every later byte is ignored. Close the connection then."""

    __slots__ = ("_buffer", "_scanned", "broken")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self.broken = False

    @property
    def idle(self) -> bool:
        """Whether the stream is between two messages."""
        return not self._buffer

    def receive(self, data: bytes) -> list[Request | Response | MalformedMessage | KeepAlive]:
        """Takes bytes, returns the messages that these completed, in order. MalformedMessage is returned, not
        raised: a malformed message in a sound frame leaves the stream usable."""
        found: list[Request | Response | MalformedMessage | KeepAlive] = []
        if self.broken:
            return found
        self._buffer += data
        while (event := self._next()) is not None:
            found.append(event)
        if self.broken:
            self._buffer.clear()
        return found

    def _next(self) -> Request | Response | MalformedMessage | KeepAlive | None:
        if self.broken:
            return None
        if self._pinged():
            return KeepAlive()
        end = self._buffer.find(PING, self._scanned)
        if end < 0:
            self._scanned = max(0, len(self._buffer) - 3)
            return self._break("message head too large", 513) if len(self._buffer) > MAX_MESSAGE else None
        if end > MAX_MESSAGE:
            return self._break("message head too large", 513)
        self._scanned = end
        return self._message(end)

    def _pinged(self) -> bool:
        """Drops line breaks before a message; True where these were a ping. A run of pings counts as one, so
        that a flood of pings is not answered with a flood."""
        blank = len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))
        if blank == len(self._buffer) and blank < len(PING):
            return False  # the rest of a ping may follow
        pinged = self._buffer.startswith(PING)
        del self._buffer[:blank]
        return pinged

    def _message(self, end: int) -> Request | Response | MalformedMessage | None:
        length = _content_length(bytes(self._buffer[:end]))
        if length is None:
            return self._break("stream message without one Content-Length", 400, end)
        if length > MAX_MESSAGE:
            return self._break("message too large", 513, end)
        total = end + len(PING) + length
        if len(self._buffer) < total:
            return None
        head, body = bytes(self._buffer[:end]), bytes(self._buffer[end + len(PING) : total])
        del self._buffer[:total]
        self._scanned = 0
        try:
            return assemble(read_head(head), body)
        except MalformedMessage as fault:
            return fault

    def _break(self, error: str, code: int, end: int = 0) -> MalformedMessage:
        self.broken = True
        head = read_head(bytes(self._buffer[:end]))
        head.error, head.code = error, code
        try:
            assemble(head, b"")
        except MalformedMessage as fault:
            return fault
        raise AssertionError("a head with an error was assembled")


def _content_length(head: bytes) -> int | None:
    """Returns the length on which all Content-Length lines agree, else None."""
    values = [_LENGTH.fullmatch(match[1]) for match in _CONTENT_LENGTH.finditer(head)]
    lengths = {int(value[1]) if value else -1 for value in values}
    return lengths.pop() if len(lengths) == 1 and -1 not in lengths else None
