"""A caller made of two sockets: SIP by hand and RTP packet by packet, to do what no telephone would."""

from __future__ import annotations

import asyncio
import re
import struct
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np

from bench.support.codecs import from_ulaw, ulaw
from pipeline.audio import Pcm
from sip.message.message import Request, Response, parse
from sip.rtp.packet import RtpPacket
from tests.support.speech.tones import tone
from tests.support.udp import UdpServer, response_to

PATIENCE_S = 20.0
FRAME = 160
SOUND = 2_000
"""Peak above which a frame of the agent's is sound, not the end of a word."""


class _Socket(UdpServer):
    """Keeps what arrives, with the time."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.arrived.put_nowait((asyncio.get_running_loop().time(), data))


async def _bound(port: int = 0) -> _Socket:
    _, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
        _Socket, local_addr=("127.0.0.1", port)
    )
    return protocol


async def _bound_with_rtcp() -> tuple[_Socket, _Socket]:
    """Binds a port for RTP and the next one, where reports go (RFC 3550 11): another's socket otherwise."""
    while True:
        rtp = await _bound()
        try:
            return rtp, await _bound(rtp.port + 1)
        except OSError:
            rtp.transport.close()


class RawCall:
    """`async with RawCall(port, "+14155550101") as call: await call.answered()`. Offers PCMU and events.
    `user`: that of the Request-URI where it is not the number; `caller`: the From; `lines`: further header
    fields of the INVITE."""

    def __init__(
        self,
        port: int,
        number: str,
        *,
        user: str = "",
        caller: str = "<sip:+14155550177@127.0.0.1>",
        lines: Sequence[str] = (),
    ) -> None:
        self.call_id = uuid.uuid4().hex
        self.remote_rtp = ("127.0.0.1", 0)
        self.ssrc = 0x1234ABCD
        self.sequence, self.timestamp = 1, 0
        self._port, self._number = port, number
        self._user, self._caller, self._lines = user or number, caller, tuple(lines)
        self._to = f"<sip:{number}@127.0.0.1>"
        self._cseq = 1

    async def __aenter__(self) -> Self:
        self.rtp, self._rtcp = await _bound_with_rtcp()
        self.sip = await _bound()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sip.transport.close()
        self.rtp.transport.close()
        self._rtcp.transport.close()
        await asyncio.sleep(0)

    # SIP --------------------------------------------------------------------------------------------------

    def request(self, method: str, *lines: str, body: str = "", cseq: int | None = None) -> bytes:
        """A request of this call, in its dialog once there is one."""
        self._cseq += cseq is None
        extra = "".join(f"{line}\r\n" for line in lines)
        return (
            f"{method} sip:{self._user}@127.0.0.1:{self._port} SIP/2.0\r\n"
            f"Via: SIP/2.0/UDP 127.0.0.1:{self.sip.port};branch=z9hG4bK{uuid.uuid4().hex}\r\n"
            f"Max-Forwards: 70\r\nFrom: {self._caller};tag=raw\r\nTo: {self._to}\r\n"
            f"Call-ID: {self.call_id}\r\nCSeq: {self._cseq if cseq is None else cseq} {method}\r\n"
            f"Contact: <sip:raw@127.0.0.1:{self.sip.port}>\r\n{extra}"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()

    @property
    def offer(self) -> str:
        """What we can receive, and where."""
        return (
            f"v=0\r\no=- 1 {self._cseq} IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
            f"m=audio {self.rtp.port} RTP/AVP 0 101\r\na=rtpmap:101 telephone-event/8000\r\n"
        )

    def send(self, data: bytes) -> None:
        """A SIP datagram to the server."""
        self.sip.transport.sendto(data, ("127.0.0.1", self._port))

    def invite(self) -> bytes:
        """Sends the INVITE, and gives it for repetition."""
        lines = ("Content-Type: application/sdp", *self._lines)
        data = self.request("INVITE", *lines, body=self.offer, cseq=1)
        self.send(data)
        return data

    async def message(self, *, patience_s: float = PATIENCE_S) -> Request | Response:
        """The next SIP message from the server."""
        async with asyncio.timeout(patience_s):
            return parse((await self.sip.arrived.get())[1])

    async def final(self, method: str = "INVITE") -> Response:
        """The next final response to `method`, to any where it is ""; others are passed over."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = await self.message()
                if not isinstance(message, Response) or message.status < 200:
                    continue
                if message.cseq.method == (method or message.cseq.method):
                    return message

    async def asked(self, method: str, *, patience_s: float = PATIENCE_S) -> Request:
        """The next request of `method` from the server; others are passed over."""
        async with asyncio.timeout(patience_s):
            while True:
                message = await self.message(patience_s=patience_s)
                if isinstance(message, Request) and message.method == method:
                    return message

    async def answered(self) -> None:
        """Calls, and acknowledges the answer."""
        self.invite()
        response = await self.final()
        assert response.status == 200, response.status
        self.take_answer(response)
        self.send(self.request("ACK", cseq=1))

    def take_answer(self, response: Response) -> None:
        """Learns the server's tag and its RTP address."""
        self.take_tag(response)
        found = re.search(rb"m=audio (\d+)", response.body)
        assert found is not None
        self.remote_rtp = ("127.0.0.1", int(found[1]))

    def take_tag(self, message: Request | Response) -> None:
        """Learns the server's tag: what follows is within the dialog."""
        self._to = message.header("To") or ""

    def reply(self, request: Request, status: int = 200, *, body: str = "") -> None:
        """Answers a request of the server's."""
        contact = f"Contact: <sip:raw@127.0.0.1:{self.sip.port}>"
        self.send(response_to(request, status, contact, body=body))

    async def hang_up(self) -> None:
        """BYE and its answer; a call that the server has ended is fine too."""
        self.send(self.request("BYE"))
        assert (await self.final("BYE")).status in (200, 481)

    # RTP --------------------------------------------------------------------------------------------------

    def packet(self, payload: bytes, *, payload_type: int = 0, ssrc: int | None = None) -> bytes:
        """The next packet of our stream."""
        self.sequence, self.timestamp = (self.sequence + 1) & 0xFFFF, (self.timestamp + FRAME) & 0xFFFFFFFF
        return RtpPacket(
            payload_type, self.sequence, self.timestamp, self.ssrc if ssrc is None else ssrc, payload
        ).to_bytes()

    def send_rtp(self, data: bytes) -> None:
        """A datagram to the server's RTP port, from where ours is."""
        self.rtp.transport.sendto(data, self.remote_rtp)

    async def hum(self, frequency_hz: float, duration_s: float, *, keep: float = 1.0) -> None:
        """A tone in real time; of every ten packets `10 * keep` are sent."""
        await self.play(tone(frequency_hz, duration_s, 8000), keep=keep)

    async def play(self, samples: Pcm, *, keep: float = 1.0) -> None:
        """Sound in real time."""
        loop, due = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        for index, frame in enumerate(samples[: samples.size // FRAME * FRAME].reshape(-1, FRAME)):
            data = self.packet(ulaw(frame))
            if index % 10 < 10 * keep:
                self.send_rtp(data)
            due += 0.02
            await asyncio.sleep(max(0.0, due - loop.time()))

    def key(self, event: int) -> None:
        """A key by RFC 4733: it grows, and its end comes three times."""
        started = self.timestamp
        for duration, end in ((160, 0), (320, 0), (480, 0x80), (480, 0x80), (480, 0x80)):
            self.timestamp = started
            self.send_rtp(self.packet(struct.pack("!BBH", event, end | 10, duration), payload_type=101))

    def keys_heard(self) -> list[int]:
        """The RFC 4733 events that have arrived, one for each press (its timestamp)."""
        pressed: dict[bytes, int] = {}
        while not self.rtp.arrived.empty():
            _, data = self.rtp.arrived.get_nowait()
            if data[1] & 0x7F == 101:
                pressed[data[4:8]] = data[12]
        return list(pressed.values())

    def heard(self) -> list[tuple[float, Pcm]]:
        """The audio packets that have arrived since this was asked last, with their times."""
        heard = []
        while not self.rtp.arrived.empty():
            at, data = self.rtp.arrived.get_nowait()
            if data[1] & 0x7F == 0:
                heard.append((at, from_ulaw(data[12:])))
        return heard

    async def sound(self, *, patience_s: float = PATIENCE_S) -> float:
        """Waits for the agent to be audible; the time of the packet that was, in the loop's."""
        async with asyncio.timeout(patience_s):
            while True:
                at, data = await self.rtp.arrived.get()
                if data[1] & 0x7F == 0 and np.abs(from_ulaw(data[12:]).astype(np.int32)).max() > SOUND:
                    return at
