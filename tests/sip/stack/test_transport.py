"""Real sockets on loopback: what arrives, where answers go, and what a peer cannot do to us."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sip.errors import MalformedMessage
from sip.message.message import Request
from sip.stack import transport as stack_transport
from sip.stack.local_address import LocalAddresses
from sip.stack.transport import Message, Transport
from sip.transaction.hop import Hop, Transmission
from tests.support.certificates import tls_of_localhost
from tests.support.ports import free_port

OPTIONS = (
    b"OPTIONS sip:a@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1;branch=z9hG4bK1\r\nMax-Forwards: 70\r\n"
    b"From: <sip:x@h>;tag=f\r\nTo: <sip:a@h>\r\nCall-ID: c\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
)


class RecordingListener:
    """What a transport heard."""

    def __init__(self) -> None:
        self.datagrams: asyncio.Queue[tuple[bytes, Hop]] = asyncio.Queue()
        self.messages: asyncio.Queue[tuple[Message, Hop]] = asyncio.Queue()
        self.failures: asyncio.Queue[Transmission] = asyncio.Queue()
        self.transport = Transport(
            datagram=lambda data, hop: self.datagrams.put_nowait((data, hop)),
            message=lambda message, hop: self.messages.put_nowait((message, hop)),
            failed=self.failures.put_nowait,
            refused=lambda transmission, address: self.failures.put_nowait(transmission),
        )

    @property
    def tcp_port(self) -> int:
        return self.transport.addresses["tcp"][1]

    async def message(self) -> tuple[Message, Hop]:
        return await asyncio.wait_for(self.messages.get(), 10)


@asynccontextmanager
async def listening() -> AsyncIterator[RecordingListener]:
    recorder = RecordingListener()
    await recorder.transport.listen_udp("127.0.0.1", 0)
    await recorder.transport.listen_stream("tcp", "127.0.0.1", 0, tls=None)
    try:
        yield recorder
    finally:
        await recorder.transport.close()


async def test_a_tls_peer_that_sends_no_sip_and_answers_no_close_holds_up_nothing(
    tmp_path: Path,
) -> None:
    context, certificate = await tls_of_localhost(tmp_path)
    trusting = ssl.create_default_context(cafile=certificate)
    async with listening() as recorder:
        await recorder.transport.listen_stream("tls", "127.0.0.1", 0, tls=context)
        with socket.create_connection(recorder.transport.addresses["tls"]) as plain:
            shaken = asyncio.to_thread(trusting.wrap_socket, plain, server_hostname="localhost")
            with await asyncio.wait_for(shaken, 10) as peer:
                await asyncio.to_thread(peer.sendall, bytes(70_000))
                heard, _ = await recorder.message()
                assert isinstance(heard, MalformedMessage)
                await recorder.transport.close()


async def test_a_datagram_comes_with_its_source_and_can_be_answered() -> None:
    async with listening() as one, listening() as two:
        port = one.transport.addresses["udp"][1]
        two.transport.send(Transmission(b"hello", Hop("udp", "127.0.0.1", port)))
        data, source = await asyncio.wait_for(one.datagrams.get(), 10)
        assert data == b"hello"
        one.transport.send(Transmission(b"yes", source))
        assert (await asyncio.wait_for(two.datagrams.get(), 10))[0] == b"yes"


async def test_a_name_is_looked_up_before_sending() -> None:
    async with listening() as one, listening() as two:
        port = one.transport.addresses["udp"][1]
        two.transport.send(Transmission(b"named", Hop("udp", "localhost", port)))
        assert (await asyncio.wait_for(one.datagrams.get(), 10))[0] == b"named"
        assert two.transport.names.known("localhost") == "127.0.0.1"


async def test_an_answer_takes_the_connection_of_its_request_and_so_does_the_next_request() -> None:
    async with listening() as one, listening() as two:
        hop = Hop("tcp", "127.0.0.1", one.tcp_port)
        for _ in range(3):  # two of them wait for the connection
            two.transport.send(Transmission(OPTIONS, hop, "key"))
        sources = {(await one.message())[1] for _ in range(3)}
        assert len(sources) == 1
        (source,) = sources
        one.transport.send(Transmission(OPTIONS, source))
        message, back = await two.message()
        assert isinstance(message, Request)
        assert (back.host, back.port) == ("127.0.0.1", one.tcp_port)
        assert len(one.transport._connections) == len(two.transport._connections) == 1


async def test_a_refused_connection_fails_what_waited_for_it() -> None:
    async with listening() as recorder:
        hop = Hop("tcp", "127.0.0.1", free_port())
        recorder.transport.send(Transmission(OPTIONS, hop, "a"))
        recorder.transport.send(Transmission(OPTIONS, hop, ""))  # belongs to nothing: nobody to tell
        recorder.transport.send(Transmission(OPTIONS, hop, "b"))
        failed = [(await asyncio.wait_for(recorder.failures.get(), 10)).key for _ in range(2)]
        assert failed == ["a", "b"]
        assert recorder.transport._waiting == {}


async def test_an_unknown_name_and_a_missing_transport_fail() -> None:
    recorder = RecordingListener()
    recorder.transport.send(Transmission(OPTIONS, Hop("udp", "127.0.0.1", 9), "no udp"))
    recorder.transport.send(Transmission(OPTIONS, Hop("tls", "127.0.0.1", 9), "no tls"))
    recorder.transport.send(Transmission(OPTIONS, Hop("tcp", "no such name", 9), "no name"))
    failed = {(await asyncio.wait_for(recorder.failures.get(), 10)).key for _ in range(3)}
    assert failed == {"no udp", "no tls", "no name"}
    await recorder.transport.close()


async def test_a_ping_is_answered_with_a_pong() -> None:
    async with listening() as recorder:
        reader, writer = await asyncio.open_connection("127.0.0.1", recorder.tcp_port)
        writer.write(b"\r\n\r\n" + OPTIONS)
        assert await asyncio.wait_for(reader.readexactly(2), 10) == b"\r\n"
        assert isinstance((await recorder.message())[0], Request)
        writer.close()


async def test_a_stream_that_has_lost_its_frames_is_told_and_closed() -> None:
    async with listening() as recorder:
        reader, writer = await asyncio.open_connection("127.0.0.1", recorder.tcp_port)
        writer.write(OPTIONS.replace(b"Content-Length: 0\r\n", b""))
        assert isinstance((await recorder.message())[0], MalformedMessage)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()


async def test_endless_garbage_is_cut_off() -> None:
    async with listening() as recorder:
        reader, writer = await asyncio.open_connection("127.0.0.1", recorder.tcp_port)
        writer.write(b"x" * 300_000)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 10)
        writer.close()
        assert recorder.transport._connections == {}


async def test_a_peer_that_does_not_read_is_cut_off() -> None:
    async with listening() as recorder:
        reader, writer = await asyncio.open_connection("127.0.0.1", recorder.tcp_port, limit=1)
        writer.write(OPTIONS)
        _, source = await recorder.message()
        for number in range(1000):
            recorder.transport.send(Transmission(b"x" * 65_000, source, str(number)))
            if not recorder.failures.empty():
                break
            await asyncio.sleep(0)
        await asyncio.wait_for(recorder.failures.get(), 10)
        writer.close()
        del reader


async def test_one_host_cannot_take_every_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_transport, "MAX_CONNECTIONS_PER_HOST", 3)
    async with listening() as recorder:
        pairs = [await asyncio.open_connection("127.0.0.1", recorder.tcp_port) for _ in range(3)]
        for _, writer in pairs:
            writer.write(OPTIONS)
            await recorder.message()
        reader, extra = await asyncio.open_connection("127.0.0.1", recorder.tcp_port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 10)
        assert len(recorder.transport._connections) == 3
        for writer in (extra, *(each for _, each in pairs)):
            writer.close()


async def test_a_connection_that_never_says_sip_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_transport, "FIRST_MESSAGE_S", 0.0)
    monkeypatch.setattr(stack_transport, "SWEEP_S", 0.01)
    async with listening() as recorder:
        talker = await asyncio.open_connection("127.0.0.1", recorder.tcp_port)
        talker[1].write(OPTIONS)
        await recorder.message()
        reader, writer = await asyncio.open_connection("127.0.0.1", recorder.tcp_port)
        writer.write(b"INVITE sip:slow")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), 10)
        assert len(recorder.transport._connections) == 1  # the one that talks stays
        for each in (writer, talker[1]):
            each.close()


async def test_closing_with_a_connection_under_way_ends() -> None:
    recorder = RecordingListener()
    recorder.transport.send(Transmission(OPTIONS, Hop("tcp", "localhost", free_port()), "key"))
    await recorder.transport.close()
    assert not recorder.transport._tasks


def test_the_address_that_others_are_told() -> None:
    bound = {"udp": ("127.0.0.1", 5070), "tcp": ("127.0.0.1", 5071)}
    local = LocalAddresses(bound, public=None, known_address=lambda host: None)
    assert local.signalling(Hop("tcp", "192.0.2.1", 5060)) == ("127.0.0.1", 5071)
    assert local.signalling(Hop("tls", "192.0.2.1", 5061)) == ("127.0.0.1", 5061)
    public = LocalAddresses(bound, public="203.0.113.5", known_address=lambda host: None)
    assert public.signalling(Hop("udp", "192.0.2.1", 5060)) == ("203.0.113.5", 5070)
    everywhere = LocalAddresses({"udp": ("0.0.0.0", 5070)}, public=None, known_address=lambda host: host)
    assert everywhere.host(Hop("udp", "127.0.0.1", 5060)) == "127.0.0.1"
