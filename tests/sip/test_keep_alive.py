"""The flow of a trunk's registration: kept open by CRLF (RFC 5626, RFC 6223), and made anew when it is gone.
Registrars are sockets; of the waiting times only the lengths are changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sip.endpoint import Endpoint, EndpointSettings
from sip.message.framing import StreamParser
from sip.message.message import Request, Response
from sip.stack import keep_alive
from sip.trunk_settings import TrunkSettings
from tests.support.udp import UdpServer, bound, response_to
from tests.support.waiting import until

PING = b"\r\n\r\n"


class Registrar:
    """A registrar behind TCP. `answers`: what it does with a ping; `keep`: what it writes into Via; `closes`:
    the connection after each answer."""

    def __init__(self, *, keep: str = "", answers: bool = True, closes: bool = False) -> None:
        self.closes = closes
        self.responses: list[Response] = []
        self.keep = keep
        self.answers = answers
        self.registered: list[Request] = []
        self.pings = self.pongs = 0
        self.port = 0
        self.flows: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser = StreamParser()
        self.flows.append(writer)
        while data := await reader.read(65536):
            if data == PING:
                self.pings += 1
                if self.answers:
                    writer.write(b"\r\n")
                continue
            if data == b"\r\n":
                self.pongs += 1
                continue
            for request in parser.receive(data):
                if isinstance(request, Response):
                    self.responses.append(request)
                    continue
                assert isinstance(request, Request)
                self.registered.append(request)
                writer.write(self._granted(request))
                if self.closes:
                    writer.close()
        writer.close()

    def _granted(self, request: Request) -> bytes:
        granted = response_to(request, 200, f"Contact: {request.header('Contact')};expires=600", tag="r")
        return granted.replace(b";keep\r\n", f";keep={self.keep}\r\n".encode()) if self.keep else granted


@asynccontextmanager
async def registrar(**options: bool | str) -> AsyncIterator[Registrar]:
    here = Registrar(**options)  # type: ignore[arg-type]
    server = await asyncio.start_server(here.serve, "127.0.0.1", 0)
    here.port = server.sockets[0].getsockname()[1]
    try:
        yield here
    finally:
        server.close()
        for each in here.flows:
            each.close()


@asynccontextmanager
async def registering(port: int, transport: str, **options: float) -> AsyncIterator[Endpoint]:
    settings = EndpointSettings(udp="127.0.0.1:0", tcp="127.0.0.1:0", rtp_ports=(25300, 25319))
    async with Endpoint(settings) as phone:
        uri = f"sip:127.0.0.1:{port};transport={transport}"
        phone.add_trunk(TrunkSettings(id="reg", uri=uri, username="acme", register=True, **options))  # type: ignore[arg-type]
        yield phone


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep_alive, "PONG_S", 0.3)
    monkeypatch.setattr(keep_alive, "LOOK_S", 0.02)
    monkeypatch.setattr(keep_alive, "SHORTEST_S", 0.05)
    monkeypatch.setattr(keep_alive, "STREAM_S", 0.05)
    monkeypatch.setattr(keep_alive, "DATAGRAM_S", 0.05)


async def test_a_flow_whose_pings_are_answered_is_kept() -> None:
    async with registrar() as far, registering(far.port, "tcp", keep_alive_s=0.05):
        await until(lambda: far.pings >= 3)
    assert (len(far.flows), far.pongs) == (1, 0)  # answers are not answered
    assert [each.header("Expires") for each in far.registered] in (["3600"], ["3600", "0"])


@pytest.mark.parametrize("keep", ["1", "0"])
async def test_keep_alives_are_offered_and_sent_to_a_registrar_that_wants_them(keep: str) -> None:
    async with registrar(keep=keep) as far, registering(far.port, "tcp"):
        await until(lambda: far.registered)
        assert "keep" in far.registered[0].via.params
        if keep == "0":
            await until(lambda: far.pings >= 2)
        else:
            await until(lambda: far.pings >= 1, timeout_s=5.0)


async def test_a_registrar_that_wants_no_keep_alives_gets_none() -> None:
    async with registrar() as far, registering(far.port, "tcp"):
        await until(lambda: far.registered)
        await asyncio.sleep(0.3)
        assert far.pings == 0


async def test_a_flow_without_a_pong_is_given_up_and_registered_anew() -> None:
    async with registrar(keep="0") as far, registering(far.port, "tcp") as phone:
        await until(lambda: far.pings >= 2)
        far.answers = False
        await until(lambda: len(far.registered) == 2, timeout_s=2.0)  # at once, before any back-off
        assert len(far.flows) == 2
        far.answers = True
        first, second = far.registered[:2]
        assert (first.call_id, first.from_.tag) == (second.call_id, second.from_.tag)
        pings = far.pings
        await until(lambda: far.pings > pings)
        assert phone.trunks["reg"].registered


async def test_a_connection_that_the_registrar_closes_is_made_anew() -> None:
    async with registrar() as far, registering(far.port, "tcp", keep_alive_s=0.05):
        await until(lambda: far.pings)
        far.flows[0].close()
        await until(lambda: len(far.registered) >= 2)
    assert len(far.flows) == 2


async def test_flows_that_are_lost_again_and_again_are_made_anew_ever_more_seldom() -> None:
    async with registrar(closes=True) as far, registering(far.port, "tcp", keep_alive_s=0.05):
        await until(lambda: len(far.registered) == 2)  # the first at once
        await asyncio.sleep(0.5)
        assert len(far.registered) == 2


async def test_a_registrar_that_asks_for_pings_and_never_answers_loses_one_flow() -> None:
    async with registrar(keep="0", answers=False) as far, registering(far.port, "tcp"):
        await until(lambda: len(far.flows) == 2)
        pings = far.pings
        await until(lambda: far.pings >= pings + 3)
        assert len(far.flows) == 2


@pytest.mark.parametrize(("keep", "every_s"), [("0", 100.0), ("4000000000", 0.0), ("4000000000", 0.05)])
async def test_pings_come_as_often_as_registrar_and_trunk_both_need(
    monkeypatch: pytest.MonkeyPatch, keep: str, every_s: float
) -> None:
    monkeypatch.setattr(keep_alive, "LONGEST_S", 0.05 if every_s == 0.0 else 1800.0)
    async with registrar(keep=keep) as far, registering(far.port, "tcp", keep_alive_s=every_s):
        await until(lambda: far.pings >= 2)


async def test_a_message_in_pieces_is_whole_after_a_ping_without_a_pong() -> None:
    """The line break that ends a head is no pong, though it comes alone."""
    async with registrar(answers=False) as far, registering(far.port, "tcp", keep_alive_s=0.05):
        await until(lambda: far.pings)
        head = (
            "OPTIONS sip:acme@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1:5060;branch=z9hG4bKpieces\r\n"
            "From: <sip:a@127.0.0.1>;tag=1\r\nTo: <sip:acme@127.0.0.1>\r\nCall-ID: pieces\r\n"
            "CSeq: 1 OPTIONS\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n"
        )
        far.flows[0].write(head.encode())
        await asyncio.sleep(0.02)
        far.flows[0].write(b"\r\n")
        await until(lambda: far.responses, timeout_s=2.0)
        assert far.responses[0].call_id == "pieces"


async def test_a_peer_that_never_answered_a_ping_keeps_its_connection() -> None:
    """Line breaks before a message say nothing in RFC 3261: without `keep` or a pong none is promised."""
    async with registrar(answers=False) as far, registering(far.port, "tcp", keep_alive_s=0.05):
        await until(lambda: far.pings >= 3)
        assert (len(far.flows), len(far.registered)) == (1, 1)


class DatagramRegistrar(UdpServer):
    """A registrar behind UDP."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.sources: set[tuple[str, int]] = set()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.seen.append(data)
        self.sources.add(addr)
        if data == PING:
            return
        request = StreamParser().receive(data)[0]
        assert isinstance(request, Request)
        granted = response_to(request, 200, f"Contact: {request.header('Contact')};expires=600", tag="r")
        self.transport.sendto(granted, addr)


async def test_over_udp_a_ping_keeps_the_nat_open() -> None:
    """Without an offer: RFC 6223 asks for STUN there."""
    async with bound(DatagramRegistrar()) as far, registering(far.port, "udp", keep_alive_s=0.05):
        await until(lambda: far.seen.count(PING) >= 2)
        assert len(far.sources) == 1
        (register,) = (each for each in far.seen if each.startswith(b"REGISTER"))
        assert b";keep" not in register


async def test_a_trunk_that_is_removed_pings_no_more() -> None:
    async with registrar() as far, registering(far.port, "tcp", keep_alive_s=0.05) as phone:
        await until(lambda: far.pings)
        phone.remove_trunk("reg")
        await asyncio.sleep(0.1)
        pings = far.pings
        await asyncio.sleep(0.3)
        assert far.pings == pings
