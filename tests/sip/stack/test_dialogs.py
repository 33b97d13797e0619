"""Who may speak in a call, over real sockets: the far end from wherever it shows itself, and nobody who
merely knows the ids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pipeline.net.egress import EgressPolicy
from sip.call import Call
from sip.endpoint import Endpoint, EndpointSettings
from sip.message.message import Request, Response, parse
from sip.states import CallState, HangupCause
from sip.trunk_settings import TrunkSettings
from tests.support.hostile.rogue import CLOSED, Rogue, Socket, rogue, traps, udp
from tests.support.ports import free_rtp_range
from tests.support.sip.raw_call import RawCall
from tests.support.sip.sip_phones import address
from tests.support.waiting import until

ELSEWHERE = "127.0.0.99"
PATIENCE_S = 20.0


@pytest.fixture
async def phone() -> AsyncIterator[Endpoint]:
    settings = EndpointSettings(udp="127.0.0.1:0", tcp="127.0.0.1:0", rtp_ports=free_rtp_range())
    async with Endpoint(settings) as endpoint:
        yield endpoint


@pytest.fixture
async def far() -> AsyncIterator[Rogue]:
    async with rogue() as made:
        yield made


async def placed(phone: Endpoint, far: Rogue, contact: str = "", **settings: Any) -> Call:
    """A call of ours that the far end has answered."""
    far.say(200, contact or far.contact, body=far.media)
    call = await phone.add_trunk(TrunkSettings(id="out", uri=far.uri, **settings)).call("1")
    await asyncio.wait_for(call.answered(), PATIENCE_S)
    await until(lambda: far.asked("ACK"))
    return call


async def offered(phone: Endpoint) -> Call:
    return await asyncio.wait_for(anext(phone.incoming()), PATIENCE_S)


def line(**settings: Any) -> TrunkSettings:
    return TrunkSettings(id="in", uri="sip:192.0.2.1", allow_from=("127.0.0.1/32",), **settings)


def statuses(socket: Socket) -> list[int]:
    """The final responses that a socket got."""
    heard = [parse(data) for data, _ in socket.arrived]
    return [each.status for each in heard if isinstance(each, Response) and each.status >= 200]


@pytest.mark.parametrize("method", ["BYE", "INVITE", "UPDATE", "INFO", "OPTIONS"])
async def test_the_right_ids_from_elsewhere_are_481_and_change_nothing(
    phone: Endpoint, far: Rogue, method: str
) -> None:
    call = await placed(phone, far)
    async with udp(ELSEWHERE) as stranger:
        far.send(far.request(method, 5, far.contact), by=stranger)
        await until(lambda: statuses(stranger))
        assert statuses(stranger) == [481]
    assert (call.state, phone.stats.foreign) == (CallState.ANSWERED, 1)
    far.send(far.request("BYE", 6))  # the CSeq of the stranger was not taken note of either
    assert await asyncio.wait_for(call.ended(), PATIENCE_S) is HangupCause.NORMAL
    assert call.ended_by == "remote"


@pytest.mark.parametrize(
    ("method", "status"), [("REFER", 481), ("NOTIFY", 481), ("SUBSCRIBE", 405), ("MESSAGE", 405)]
)
async def test_what_we_do_not_do_is_not_done_for_a_stranger(
    phone: Endpoint, far: Rogue, method: str, status: int
) -> None:
    call = await placed(phone, far)
    async with udp(ELSEWHERE) as stranger:
        far.send(far.request(method, 5), by=stranger)
        await until(lambda: statuses(stranger))
        assert statuses(stranger) == [status]
    assert call.state is CallState.ANSWERED
    await call.hang_up()


async def test_another_port_of_the_far_end_is_the_far_end(phone: Endpoint, far: Rogue) -> None:
    """A NAT on the way forgot the binding."""
    call = await placed(phone, far)
    async with udp("127.0.0.1") as moved:
        far.send(far.request("BYE", 5), by=moved)
        await until(lambda: statuses(moved))
        assert statuses(moved) == [200]
    assert await asyncio.wait_for(call.ended(), PATIENCE_S) is HangupCause.NORMAL


@pytest.mark.parametrize("shown", ["contact", "route", "allow_from", "name"])
async def test_the_far_end_may_speak_from_where_it_shows_itself(
    phone: Endpoint, far: Rogue, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo

    async def named(host: Any, *more: Any, **others: Any) -> Any:
        found = await resolve("127.0.0.1" if host == "gw.carrier.example" else host, *more, **others)
        if host == "gw.carrier.example":  # two gateways of one name
            found += await resolve(ELSEWHERE, *more, **others)
        return found

    monkeypatch.setattr(loop, "getaddrinfo", named)
    async with udp(ELSEWHERE) as second:
        port = far.sip.port
        second.on_datagram = far.sip.on_datagram
        lines = {
            "contact": f"Contact: <sip:x@{ELSEWHERE}:{second.port}>",
            "route": f"{far.contact}\r\nRecord-Route: <sip:{ELSEWHERE};lr>, <sip:127.0.0.1:{port};lr>",
            "allow_from": far.contact,
            "name": f"Contact: <sip:x@gw.carrier.example:{port}>",
        }
        allow_from = (f"{ELSEWHERE}/32",) if shown == "allow_from" else ()
        call = await placed(phone, far, lines[shown], allow_from=allow_from)
        far.server = address(phone) or ("", 0)
        second.arrived.clear()
        far.send(far.request("BYE", 5), by=second)
        assert await asyncio.wait_for(call.ended(), PATIENCE_S) is HangupCause.NORMAL
        await until(lambda: statuses(second))
        assert statuses(second) == [200]
    assert phone.stats.foreign == 0


async def test_a_cancel_with_the_right_branch_from_elsewhere_cancels_nothing(phone: Endpoint) -> None:
    phone.add_trunk(line())
    async with RawCall(address(phone)[1], "100") as caller, udp(ELSEWHERE, caller.sip.port) as stranger:
        cancel = caller.invite().replace(b"INVITE", b"CANCEL")
        call = await offered(phone)
        await call.ring()
        stranger.transport.sendto(cancel, address(phone))
        await until(lambda: statuses(stranger))
        assert (statuses(stranger), call.state) == ([481], CallState.RINGING)
        assert phone.stats.foreign == 1
        caller.send(cancel)
        assert await asyncio.wait_for(call.ended(), PATIENCE_S) is HangupCause.CANCELLED


async def test_an_ack_from_elsewhere_brings_no_media_address(phone: Endpoint) -> None:
    """The caller offers nothing in its INVITE: the ACK has the answer, and says where the audio goes."""
    phone.add_trunk(line())
    async with RawCall(address(phone)[1], "100") as caller, udp(ELSEWHERE, caller.sip.port) as stranger:
        caller.send(caller.request("INVITE", cseq=1))
        call = await offered(phone)
        answering = asyncio.ensure_future(call.answer())
        caller.take_answer(await caller.final())
        theirs = caller.offer.replace(str(caller.rtp.port), "9").replace("127.0.0.1", ELSEWHERE)
        kind = "Content-Type: application/sdp"
        stranger.transport.sendto(caller.request("ACK", kind, body=theirs, cseq=1), address(phone))
        await until(lambda: phone.stats.foreign)
        assert not answering.done()
        caller.send(caller.request("ACK", kind, body=caller.offer, cseq=1))
        await asyncio.wait_for(answering, PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            await caller.rtp.arrived.get()
        await call.hang_up()


async def test_a_prack_from_elsewhere_acknowledges_nothing(phone: Endpoint) -> None:
    phone.add_trunk(line())
    async with RawCall(address(phone)[1], "100") as caller, udp(ELSEWHERE, caller.sip.port) as stranger:
        lines = ("Require: 100rel", "Content-Type: application/sdp")
        caller.send(caller.request("INVITE", *lines, body=caller.offer, cseq=1))
        call = await offered(phone)
        await call.ring()
        while not isinstance(ringing := await caller.message(), Response) or ringing.status != 180:
            pass
        caller.take_tag(ringing)
        rack = f"RAck: {ringing.header('RSeq')} 1 INVITE"
        stranger.transport.sendto(caller.request("PRACK", rack, cseq=2), address(phone))
        await until(lambda: statuses(stranger))
        assert statuses(stranger) == [481]
        caller.send(caller.request("PRACK", rack, cseq=2))
        assert (await caller.final("PRACK")).status == 200


async def test_the_connection_of_the_invite_counts_and_another_address_does_not(phone: Endpoint) -> None:
    phone.add_trunk(line())
    reader, writer = await asyncio.open_connection(*address(phone, "tcp"), local_addr=("127.0.0.1", 0))
    strange_reader, stranger = await asyncio.open_connection(
        *address(phone, "tcp"), local_addr=(ELSEWHERE, 0)
    )
    async with RawCall(address(phone, "tcp")[1], "100") as caller:
        kind = "Content-Type: application/sdp"

        def over_tcp(data: bytes) -> bytes:
            return data.replace(b"SIP/2.0/UDP", b"SIP/2.0/TCP")

        writer.write(over_tcp(caller.request("INVITE", kind, body=caller.offer, cseq=1)))
        call = await offered(phone)
        answering = asyncio.ensure_future(call.answer())
        data = b""
        while b"SIP/2.0 200" not in data or b"m=audio" not in data:
            data += await asyncio.wait_for(reader.read(65536), PATIENCE_S)
        final = parse(data[data.index(b"SIP/2.0 200") :])
        assert isinstance(final, Response)
        caller.take_tag(final)
        writer.write(over_tcp(caller.request("ACK", cseq=1)))
        await asyncio.wait_for(answering, PATIENCE_S)
        stranger.write(over_tcp(caller.request("BYE")))
        told = await asyncio.wait_for(strange_reader.read(65536), PATIENCE_S)
        assert told.startswith(b"SIP/2.0 481")
        assert call.state is CallState.ANSWERED
        writer.write(over_tcp(caller.request("BYE")))
        assert await asyncio.wait_for(call.ended(), PATIENCE_S) is HangupCause.NORMAL
    for each in (writer, stranger):
        each.close()
        await each.wait_closed()


async def test_a_caller_behind_a_nat_is_hung_up_where_it_called_from(phone: Endpoint) -> None:
    """Its Contact is an address of its own network, which is closed to us: the BYE goes the way that its
    INVITE came."""
    phone.add_trunk(line(egress=EgressPolicy(["127.0.0.1/32"])))
    async with traps() as lure, RawCall(address(phone)[1], "100") as caller:
        contact = f"sip:raw@127.0.0.1:{caller.sip.port}".encode()

        def behind_nat(data: bytes) -> bytes:
            return data.replace(contact, f"sip:raw@{CLOSED}:{lure.port}".encode())

        kind = "Content-Type: application/sdp"
        caller.send(behind_nat(caller.request("INVITE", kind, body=caller.offer, cseq=1)))
        call = await offered(phone)
        answering = asyncio.ensure_future(call.answer())
        caller.take_answer(await caller.final())
        caller.send(behind_nat(caller.request("ACK", cseq=1)))
        await asyncio.wait_for(answering, PATIENCE_S)
        await call.hang_up()
        bye = await caller.asked("BYE")
        assert isinstance(bye, Request)
        assert CLOSED in bye.uri.host
        assert lure.caught == []


async def test_an_offer_of_media_at_a_closed_address_is_488(
    phone: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    phone.add_trunk(line(egress=EgressPolicy(["127.0.0.1/32"])))
    async with RawCall(address(phone)[1], "100") as caller:
        offer = caller.offer.replace("c=IN IP4 127.0.0.1", f"c=IN IP4 {CLOSED}")
        caller.send(caller.request("INVITE", "Content-Type: application/sdp", body=offer, cseq=1))
        assert (await caller.final()).status == 488
        assert (len(phone.calls), phone.stats.blocked) == (0, 1)
    (told,) = [each for each in caplog.records if each.getMessage() == "call may not send there"]
    assert vars(told)["sip_call_id"] == caller.call_id


async def test_media_of_the_caller_itself_is_open_without_a_network_that_says_so(phone: Endpoint) -> None:
    phone.add_trunk(line(egress=EgressPolicy()))
    async with RawCall(address(phone)[1], "100") as caller:
        caller.invite()
        call = await offered(phone)
        answering = asyncio.ensure_future(call.answer())
        caller.take_answer(await caller.final())
        caller.send(caller.request("ACK", cseq=1))
        await asyncio.wait_for(answering, PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            await caller.rtp.arrived.get()
        await call.hang_up()
        await caller.asked("BYE")
        assert phone.stats.blocked == 0
