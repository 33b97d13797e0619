"""A carrier made of one socket, which rings and then does what a test says when it is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from sip.message.message import Request, parse
from tests.support.udp import UdpServer, bound, response_to

SDP = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\n"


class RawCarrier(UdpServer):
    """`cancelled(carrier, invite)` is called with the INVITE that a CANCEL is for, after the CANCEL was
    answered. `seen`: the requests, repetitions left out."""

    def __init__(self, cancelled: Callable[[RawCarrier, Request], None]) -> None:
        self.seen: list[Request] = []
        self._cancelled = cancelled
        self._branches: set[str] = set()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Rings, agrees to BYE and CANCEL."""
        request = parse(data)
        if not isinstance(request, Request):
            return
        self._address = addr
        if request.method + (request.header("Via") or "") in self._branches:
            return
        self._branches.add(request.method + (request.header("Via") or ""))
        self.seen.append(request)
        if request.method == "INVITE":
            self.answer(request, 180)
        elif request.method in ("BYE", "CANCEL"):
            self.answer(request, 200)
        if request.method == "CANCEL":
            invite = next(each for each in self.seen if each.call_id == request.call_id)
            self._cancelled(self, invite)

    def answer(self, request: Request, status: int, *, body: str = "", lines: Sequence[str] = ()) -> None:
        """A response to `request`, with these header fields besides; with a `body`, an SDP answer."""
        contact = f"Contact: <sip:carrier@127.0.0.1:{self.port}>"
        answer = response_to(request, status, *lines, contact, tag="carrier", body=body)
        self.transport.sendto(answer, self._address)

    def methods(self) -> list[str]:
        """What has arrived, in order."""
        return [each.method for each in self.seen]


def says(status: int) -> Callable[[RawCarrier, Request], None]:
    """The final answer to a cancelled INVITE; 200 crosses the CANCEL."""
    body = SDP.format(port=9) if status == 200 else ""
    return lambda carrier, invite: carrier.answer(invite, status, body=body)


def says_nothing(carrier: RawCarrier, invite: Request) -> None:
    """No final answer: it may ring on."""


def raw_carrier(
    port: int, cancelled: Callable[[RawCarrier, Request], None]
) -> AbstractAsyncContextManager[RawCarrier]:
    """A carrier on a UDP port of this machine."""
    return bound(RawCarrier(cancelled), port=port)
