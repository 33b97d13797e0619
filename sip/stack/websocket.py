"""SIP over WebSocket (RFC 7118): each frame is one message. The HTTP server owns the socket; here its frames
become messages of the transport, and a connection that peers are reached by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sip.egress import canonical
from sip.errors import MalformedMessage
from sip.message.framing import PING, PONG
from sip.message.message import Request, Response, parse
from sip.transaction.hop import Hop, Transmission


class FrameOwner(Protocol):
    """The transport, as its connections use it."""

    message_received: Callable[[Request | Response | MalformedMessage, Hop], None]


class Frames:
    """One WebSocket. `send` queues a frame and `shut` closes the socket; each is called on the loop. The host
    of a Contact or Via in a browser is made up (`.invalid`): whoever is at the other end is reached here."""

    def __init__(
        self, owner: FrameOwner, source: Hop, *, send: Callable[[bytes], bool], shut: Callable[[], None]
    ) -> None:
        self.number, self.source = source.connection, source
        self.heard_at = 0.0
        self.spoke_sip = False
        self.unread: list[Transmission] | None = None
        self._owner, self._send, self._shut = owner, send, shut
        self._open = True

    def received(self, data: bytes, now: float) -> None:
        """Takes one frame: a message, or a keep-alive (RFC 5626 3.5.1), whose ping is answered."""
        self.heard_at = now
        if not data.strip(b"\r\n\0"):
            if data == PING:
                self.write(PONG)
            return
        message: Request | Response | MalformedMessage
        try:
            message = parse(data)
            self.spoke_sip = True
        except MalformedMessage as fault:
            message = fault
        self._owner.message_received(message, self.source)

    def write(self, data: bytes) -> bool:
        """Queues a frame. False: the socket is closed, or its peer does not read."""
        return self._open and self._send(data)

    def close(self) -> None:
        """Closes the socket after what was queued; later frames are not sent."""
        if self._open:
            self._open = False
            self._shut()

    abort = close


def flow_from(host: str, port: int, number: int) -> Hop:
    """Returns the flow that the connection `number` of a browser at `host` and `port` is."""
    return Hop("ws", canonical(host), port, number)
