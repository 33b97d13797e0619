"""Who may take the far end's place by an INVITE with Replaces (RFC 3891), over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sip.call import Call
from sip.endpoint import Endpoint, EndpointSettings
from sip.states import CallState
from sip.trunk_settings import TrunkSettings
from tests.sip.stack.test_dialogs import ELSEWHERE, PATIENCE_S, placed, statuses
from tests.support.hostile.rogue import Rogue, Socket, rogue, udp
from tests.support.ports import free_rtp_range
from tests.support.sip.sip_phones import address
from tests.support.waiting import until

BUSY = 486


@pytest.fixture
async def phone() -> AsyncIterator[Endpoint]:
    settings = EndpointSettings(udp="127.0.0.1:0", rtp_ports=free_rtp_range(), max_calls=2)
    async with Endpoint(settings) as endpoint:
        yield endpoint


@pytest.fixture
async def far() -> AsyncIterator[Rogue]:
    async with rogue() as made:
        yield made


async def replaceable(phone: Endpoint, far: Rogue, asked: list[Call], contact: str = "") -> Call:
    """A call whose place may be taken; `asked` by whom it was asked for, who is told that it is busy."""
    call = await placed(phone, far, contact, accept_refer=True)

    def refuse(old: Call, new: Call) -> int:
        asked.append(old)
        return BUSY

    call.on_replace = refuse
    return call


def replacing(far: Rogue, by: Socket, *, method: str = "INVITE", fields: int = 1, to: Any = None) -> None:
    """Sends a request whose Replaces has the right ids, as somebody at `by`."""
    invite = far.asked("INVITE")[0]
    named = f"Replaces: {invite.call_id};to-tag={invite.from_.tag};from-tag=rogue\r\n" * fields
    request = (
        f"{method} sip:us@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:{by.port};branch=z9hG4bKr;rport\r\n"
        "Max-Forwards: 70\r\nFrom: <sip:c@127.0.0.1>;tag=c\r\nTo: <sip:us@127.0.0.1>\r\n"
        f"Call-ID: another\r\nCSeq: 1 {method}\r\nContact: <sip:c@127.0.0.1:{by.port}>\r\n{named}"
        f"Content-Type: application/sdp\r\nContent-Length: {len(far.media)}\r\n\r\n"
    )
    by.transport.sendto(request.encode() + far.media, to)


async def told(far: Rogue, by: Socket, phone: Endpoint, **how: Any) -> int:
    replacing(far, by, to=address(phone), **how)
    await until(lambda: statuses(by), timeout_s=PATIENCE_S)
    return statuses(by)[-1]


@pytest.mark.parametrize("listed", [False, True])
async def test_the_right_ids_from_elsewhere_take_nobodys_place(
    phone: Endpoint, far: Rogue, listed: bool
) -> None:
    """Neither from an unknown address, nor from one of another trunk's."""
    if listed:
        other = TrunkSettings(
            id="other", uri="sip:192.0.2.9", allow_from=(f"{ELSEWHERE}/32",), accept_refer=True
        )
        phone.add_trunk(other)
    asked: list[Call] = []
    call = await replaceable(phone, far, asked)
    async with udp(ELSEWHERE) as stranger:
        assert await told(far, stranger, phone) == (481 if listed else 404)
    assert (asked, call.state) == ([], CallState.ANSWERED)
    async with udp("127.0.0.1") as friend:
        assert await told(far, friend, phone) == BUSY
    assert asked == [call]
    await call.hang_up()


@pytest.mark.parametrize("draining", [False, True])
async def test_a_node_without_room_for_calls_lets_one_take_anothers_place(
    phone: Endpoint, far: Rogue, draining: bool
) -> None:
    asked: list[Call] = []
    call = await replaceable(phone, far, asked)
    if draining:
        phone.drain()
    else:
        await asyncio.wait_for((await phone.trunks["out"].call("2")).answered(), PATIENCE_S)
    async with udp("127.0.0.1") as friend:
        assert await told(far, friend, phone) == BUSY
    assert asked == [call]
    await call.hang_up()


@pytest.mark.parametrize("how", [{"fields": 2}, {"method": "OPTIONS"}])
async def test_two_replaces_or_one_of_another_method_are_400(far: Rogue, how: dict[str, Any]) -> None:
    settings = EndpointSettings(udp="127.0.0.1:0", rtp_ports=free_rtp_range())
    async with Endpoint(settings) as phone, udp("127.0.0.1") as friend:
        inward = TrunkSettings(id="in", uri="sip:192.0.2.9", allow_from=("127.0.0.1/32",), accept_refer=True)
        phone.add_trunk(inward)
        asked: list[Call] = []
        call = await replaceable(phone, far, asked)
        assert await told(far, friend, phone, **how) == 400
        assert asked == []
        await call.hang_up()


async def test_who_is_only_known_by_name_is_waited_for(
    phone: Endpoint, far: Rogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the Contact's name is looked up nothing is said: the INVITE is repeated."""
    loop = asyncio.get_running_loop()
    resolve, known = loop.getaddrinfo, asyncio.Event()

    async def named(host: Any, *more: Any, **others: Any) -> Any:
        if host == "gw.carrier.example":
            await known.wait()
            host = ELSEWHERE
        return await resolve(host, *more, **others)

    monkeypatch.setattr(loop, "getaddrinfo", named)
    contact = f"Contact: <sip:x@gw.carrier.example>\r\nRecord-Route: <sip:127.0.0.1:{far.sip.port};lr>"
    asked: list[Call] = []
    call = await replaceable(phone, far, asked, contact)
    async with udp(ELSEWHERE) as gateway:
        received = phone.stats.received
        replacing(far, gateway, to=address(phone))
        await until(lambda: phone.stats.received > received, timeout_s=PATIENCE_S)
        assert statuses(gateway) == []
        known.set()
        async with asyncio.timeout(PATIENCE_S):
            while not statuses(gateway):
                replacing(far, gateway, to=address(phone))
                await asyncio.sleep(0.1)
        assert (statuses(gateway)[0], asked) == (BUSY, [call])
    await call.hang_up()
