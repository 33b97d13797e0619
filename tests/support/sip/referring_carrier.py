"""A carrier of one socket that answers its calls and treats a REFER as a script says."""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import unquote

from sip.message.message import Request, Response, parse
from tests.support.udp import UdpServer, response_to

SDP = (
    "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
    "m=audio {port} RTP/AVP 0 101\r\na=rtpmap:101 telephone-event/8000\r\n"
)

FRAME = 160


class Ear(asyncio.DatagramProtocol):
    """Counts the RTP that arrives, and the longest pause between two packets that were sent one after the
    other, in seconds by their timestamps: a machine that is busy makes none, nor does a packet that was
    `lost`. Where this process has no time for its sockets for some seconds, the kernel drops what it cannot
    keep, and the sender knows nothing of it."""

    def __init__(self) -> None:
        self.packets = self.lost = 0
        self.longest_gap_s = 0.0
        self._last: tuple[int, int, int] | None = None

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Counts a packet."""
        sequence, timestamp, ssrc = struct.unpack_from("!HII", data, 2)
        self.packets += 1
        if self._last is not None and self._last[2] == ssrc:
            steps = (sequence - self._last[0] + 2**15) % 2**16 - 2**15
            if steps <= 0:
                return  # late, or once more
            passed = (timestamp - self._last[1] + 2**31) % 2**32 - 2**31
            self.lost += steps - 1
            self.longest_gap_s = max(self.longest_gap_s, (passed - (steps - 1) * FRAME) / 8000)
        self._last = (sequence, timestamp, ssrc)


@dataclass
class Telephone:
    """One call of the carrier, seen from its side. `referred`: the Refer-To of every REFER, unescaped."""

    carrier: ReferringCarrier
    invite: Request
    number: str
    tag: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    referred: list[str] = field(default_factory=list)
    ear: Ear = field(default_factory=Ear)
    notified: list[Request] = field(default_factory=list)
    hung_up_by: str = ""
    answers: list[int] = field(default_factory=list)
    """Status of the server's response to each request of the carrier."""
    _cseq: int = 0

    async def listen(self) -> int:
        """Opens the socket for RTP; returns its port."""
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: self.ear, local_addr=("127.0.0.1", 0)
        )
        self.carrier.transports.append(transport)
        return int(transport.get_extra_info("sockname")[1])

    def request(self, method: str, *lines: str, body: str = "") -> None:
        """Sends a request within the call."""
        self._cseq += 1
        contact = self.invite.contacts[0].uri
        head = [
            f"{method} {contact} SIP/2.0",
            f"Via: SIP/2.0/UDP 127.0.0.1:{self.carrier.port};branch=z9hG4bK{uuid.uuid4().hex}",
            "Max-Forwards: 70",
            f"From: {self.invite.header('To')};tag={self.tag}",
            f"To: {self.invite.header('From')}",
            f"Call-ID: {self.invite.call_id}",
            f"CSeq: {self._cseq} {method}",
            f"Contact: <sip:carrier@127.0.0.1:{self.carrier.port}>",
            *lines,
            f"Content-Length: {len(body)}",
        ]
        self.carrier.send("\r\n".join([*head, "", body]).encode())

    def refer(self, to: str) -> None:
        """Asks the server to call somebody else."""
        self.request("REFER", f"Refer-To: <{to}>")

    def notify(self, status: int, *, last: bool = False) -> None:
        """Tells how the referred call goes."""
        state = "terminated;reason=noresource" if last else "active;expires=60"
        body = f"SIP/2.0 {status} Said\r\n"
        lines = ("Event: refer", f"Subscription-State: {state}", "Content-Type: message/sipfrag;version=2.0")
        self.request("NOTIFY", *lines, body=body)

    def key(self, digit: str) -> None:
        """Presses a key."""
        self.request("INFO", "Content-Type: application/dtmf-relay", body=f"Signal={digit}\r\n")

    def bye(self) -> None:
        """Hangs up."""
        self.hung_up_by = self.hung_up_by or "carrier"
        self.request("BYE")

    def replaced(self, refer_to: str) -> Telephone | None:
        """The other call that a Refer-To with Replaces names."""
        call_id = unquote(refer_to).partition("Replaces=")[2].partition(";")[0]
        return self.carrier.calls.get(call_id)


Treatment: TypeAlias = Callable[[Telephone, Request], Awaitable[None]]
"""What is done with a REFER that came in a call."""


class ReferringCarrier(UdpServer):
    """`treatments` by the number of the call that a REFER comes in; `refused`: the status by number of those
    that do not answer, 0 for nothing at all. `calls` by Call-ID; `dialled`: the numbers of all INVITEs."""

    def __init__(self, treatments: Mapping[str, Treatment], refused: Mapping[str, int]) -> None:
        self.calls: dict[str, Telephone] = {}
        self.dialled: list[str] = []
        self.transports: list[asyncio.BaseTransport] = []
        self._treatments = treatments
        self._refused = refused
        self._seen: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._address = ("127.0.0.1", 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the socket."""
        super().connection_made(transport)
        self.transports.append(transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answers requests; repetitions are left out."""
        message = parse(data)
        if isinstance(message, Response):
            call = self.calls.get(message.call_id)
            if call is not None and message.status >= 200:
                call.answers.append(message.status)
            return
        self._address = addr
        key = message.method + str(message.via)
        if message.method == "ACK" or key in self._seen:
            return
        self._seen.add(key)
        task = asyncio.get_running_loop().create_task(self._treat(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def call_to(self, number: str) -> Telephone:
        """The only call to a number."""
        (call,) = [each for each in self.calls.values() if each.number == number]
        return call

    def send(self, data: bytes) -> None:
        """Sends to the server."""
        self.transport.sendto(data, self._address)

    def answer(self, request: Request, status: int, *lines: str, body: str = "") -> None:
        """Sends a response, with these header fields besides."""
        call = self.calls.get(request.call_id)
        contact = f"Contact: <sip:carrier@127.0.0.1:{self.port}>"
        tag = "" if call is None else call.tag
        self.send(response_to(request, status, contact, *lines, tag=tag, body=body))

    async def _treat(self, request: Request) -> None:
        if request.method == "INVITE" and request.to.tag is None:
            await self._invited(request)
            return
        call = self.calls.get(request.call_id)
        if call is None:
            self.answer(request, 481)
        elif request.method == "REFER":
            refer_to = request.header("Refer-To") or ""
            call.referred.append(refer_to)
            await self._treatments[call.number](call, request)
        else:
            if request.method == "NOTIFY":
                call.notified.append(request)
            if request.method == "BYE":
                call.hung_up_by = call.hung_up_by or "server"
            self.answer(request, 200)

    async def _invited(self, request: Request) -> None:
        number = request.uri.user
        self.dialled.append(number)
        self.calls[request.call_id] = call = Telephone(self, request, number)
        if number in self._refused:
            if self._refused[number]:
                self.answer(request, self._refused[number])
            return
        self.answer(request, 180)
        self.answer(request, 200, body=SDP.format(port=await call.listen()))


@asynccontextmanager
async def referring_carrier(
    port: int, treatments: Mapping[str, Treatment], *, refused: Mapping[str, int] | None = None
) -> AsyncIterator[ReferringCarrier]:
    """A carrier on a UDP port of this machine."""
    _, carrier = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: ReferringCarrier(treatments, refused or {}), local_addr=("127.0.0.1", port)
    )
    try:
        yield carrier
    finally:
        for transport in carrier.transports:
            transport.close()


# What carriers do with a REFER ------------------------------------------------------------------------------


async def _connect(call: Telephone, refer_to: str) -> None:
    """Does what the REFER asks for: another call, or one of the server's calls replaced."""
    other = call.replaced(refer_to)
    if other is not None:
        other.bye()


async def notifies(call: Telephone, refer: Request) -> None:
    """202, then 100, 180 and 200 by NOTIFY."""
    call.carrier.answer(refer, 202)
    call.notify(100)
    await asyncio.sleep(0.05)
    call.notify(180)
    await asyncio.sleep(0.2)
    await _connect(call, call.referred[-1])
    call.notify(200, last=True)


def refuses(status: int) -> Treatment:
    """Answers REFER with a status."""

    async def treat(call: Telephone, refer: Request) -> None:
        lines = ("Contact: <sip:elsewhere@127.0.0.1:9>",) if 300 <= status < 400 else ()
        call.carrier.answer(refer, status, *lines)

    return treat


async def tells_nothing(call: Telephone, refer: Request) -> None:
    """202, and no NOTIFY ever."""
    call.carrier.answer(refer, 202)


async def hangs_up_early(call: Telephone, refer: Request) -> None:
    """202 and NOTIFY 100, then BYE; the NOTIFY of the end comes after the call."""
    call.carrier.answer(refer, 202)
    call.notify(100)
    await asyncio.sleep(0.05)
    call.bye()
    await asyncio.sleep(0.3)
    await _connect(call, call.referred[-1])
    call.notify(200, last=True)


async def takes_tel(call: Telephone, refer: Request) -> None:
    """416 to a sip URI, the rest as usual to a tel URI."""
    if call.referred[-1].startswith("<tel:") or "Replaces=" in call.referred[-1]:
        await notifies(call, refer)
    else:
        call.carrier.answer(refer, 416)


async def hangs_up_at_once(call: Telephone, refer: Request) -> None:
    """202 and BYE, and not a word more."""
    call.carrier.answer(refer, 202)
    await _connect(call, call.referred[-1])
    call.bye()


BEHAVIOURS: Mapping[str, Treatment] = {
    "202+NOTIFY": notifies,
    "603": refuses(603),
    "405": refuses(405),
    "no NOTIFY": tells_nothing,
    "early BYE": hangs_up_early,
    "tel:": takes_tel,
    "BYE on 202": hangs_up_at_once,
    "3xx": refuses(302),
}
"""Eight kinds of carriers."""


def notified_end(status: int) -> Treatment:
    """202, then this status by NOTIFY as the end."""

    async def treat(call: Telephone, refer: Request) -> None:
        call.carrier.answer(refer, 202)
        call.notify(100)
        await asyncio.sleep(0.05)
        call.notify(status, last=True)

    return treat
