"""Peers without manners, over real sockets: no ACK, BYE too early, glare, bursts, the same request twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from sip.call import Call, CallFailed
from sip.endpoint import Endpoint, EndpointSettings
from sip.states import HangupCause
from sip.trunk_settings import TrunkSettings
from tests.support.ports import free_rtp_range
from tests.support.sip.raw_call import RawCall
from tests.support.sip.sip_phones import address
from tests.support.speech.leg import Party
from tests.support.speech.tones import tone
from tests.support.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("engine")]

NUMBER = "+14155550101"
PATIENCE_S = 20.0


@pytest.fixture
async def phone() -> AsyncIterator[Endpoint]:
    settings = EndpointSettings(udp="127.0.0.1:0", rtp_ports=free_rtp_range(), max_calls=2)
    async with Endpoint(settings) as endpoint:
        endpoint.add_trunk(
            TrunkSettings(id="in", uri="sip:127.0.0.1:9", allow_from=("127.0.0.1",), inband_dtmf=True)
        )
        yield endpoint


async def offered(phone: Endpoint) -> Call:
    return await asyncio.wait_for(anext(phone.incoming()), PATIENCE_S)


async def talking(phone: Endpoint, peer: RawCall) -> Call:
    """The call of `peer`, answered by `phone`."""
    answering = asyncio.create_task(peer.answered())
    call = await offered(phone)
    await call.answer()
    await answering
    return call


@pytest.mark.native("PJSIP waits 32 s for an ACK, whatever the test says")
async def test_an_answer_that_is_never_acknowledged(monkeypatch: pytest.MonkeyPatch, phone: Endpoint) -> None:
    monkeypatch.setattr("sip.dialog.reliable_response.GIVE_UP_S", 1.2)  # half a minute otherwise
    async with RawCall(address(phone)[1], NUMBER) as peer:
        peer.invite()
        call = await offered(phone)
        await call.answer()
        assert [(await peer.final()).status for _ in range(2)] == [200, 200]
        peer.reply(await peer.asked("BYE"))
        assert await call.ended() is HangupCause.NO_ACK
    assert (phone.stats.calls, phone.stats.rtp_ports_used) == (0, 0)


async def test_a_bye_before_the_answer(phone: Endpoint) -> None:
    async with RawCall(address(phone)[1], NUMBER) as peer:
        peer.invite()
        call = await offered(phone)
        await call.ring()
        while (ringing := await peer.message()).to.tag is None:
            pass
        peer.take_tag(ringing)
        peer.send(peer.request("BYE"))
        finals = {(each.cseq.method, each.status) for each in [await peer.final("") for _ in range(2)]}
        assert finals == {("BYE", 200), ("INVITE", 487)}
        assert await call.ended() is HangupCause.CANCELLED
        with pytest.raises(CallFailed):
            await call.answered()


async def test_the_same_invite_again_and_by_another_way(phone: Endpoint) -> None:
    async with RawCall(address(phone)[1], NUMBER) as peer:
        invite = peer.invite()
        call = await offered(phone)
        peer.send(invite)
        peer.send(invite.replace(b"branch=z9hG4bK", b"branch=z9hG4bKother"))
        merged = await peer.final()
        assert merged.status == 482
        assert len(phone.calls) == 1
        await call.reject(486)
        assert (await peer.final()).status == 486


async def test_both_change_the_call_at_once(phone: Endpoint) -> None:
    """Theirs is refused with 491 while ours is under way; ours is repeated after theirs was refused."""
    async with RawCall(address(phone)[1], NUMBER) as peer:
        call = await talking(phone, peer)
        holding = asyncio.create_task(call.hold())
        ours = await peer.asked("INVITE")
        peer.send(peer.request("INVITE", "Content-Type: application/sdp", body=peer.offer))
        assert (await peer.final()).status == 491
        peer.reply(ours, 491)
        again = await peer.asked("INVITE")
        assert again.cseq.number > ours.cseq.number
        peer.reply(again, body=peer.offer + "a=recvonly\r\n")
        await asyncio.wait_for(holding, PATIENCE_S)
        assert call.held
        await peer.hang_up()


async def test_a_burst_at_capacity_is_refused_until_later(phone: Endpoint) -> None:
    """How soon is measured by bench overload."""
    async with RawCall(address(phone)[1], NUMBER) as first, RawCall(address(phone)[1], NUMBER) as second:
        for peer in (first, second):
            peer.invite()
            await offered(phone)
        async with RawCall(address(phone)[1], NUMBER) as burst:
            for number in range(100):
                burst.call_id = f"burst-{number}"
                burst.invite()
            answers = [await burst.final() for _ in range(100)]
        assert {response.header("Call-ID") for response in answers} == {f"burst-{n}" for n in range(100)}
        assert {response.status for response in answers} == {503}
        assert all(int(response.header("Retry-After") or 0) > 0 for response in answers)
    assert len(phone.calls) == 2


async def test_a_key_that_is_signalled_twice_counts_once(phone: Endpoint) -> None:
    async with RawCall(address(phone)[1], NUMBER) as peer:
        call = await talking(phone, peer)
        ear = Party(call)
        for key in (1, 1, 2):
            peer.key(key)
            await peer.play(np.zeros(800, np.int16))
        for key in (1, 1, 2):  # when they are let go, a fast typist has pressed the next ones
            body = f"Signal={key}\r\n"
            peer.send(peer.request("INFO", "Content-Type: application/dtmf-relay", body=body))
            assert (await peer.final("INFO")).status == 200
        peer.key(3)
        await until(lambda: ear.keyed.endswith("3"))
        assert ear.keyed == "1123"


async def test_digits_by_event_by_info_and_by_tone(phone: Endpoint) -> None:
    async with RawCall(address(phone)[1], NUMBER) as peer:
        call = await talking(phone, peer)
        ear = Party(call)
        peer.send(peer.request("INFO", "Content-Type: application/dtmf-relay", body="Signal=5\r\n"))
        assert (await peer.final("INFO")).status == 200
        assert ear.keyed == "5"
        low, high = (tone(frequency_hz, 0.1, 8000, 6000) for frequency_hz in (770, 1477))  # the key 6
        await peer.play(low + high)
        await peer.hum(300, 0.1)
        await until(lambda: ear.keyed == "56")
        peer.key(7)
        await until(lambda: ear.keyed == "567")
        await call.send_dtmf("8")
        assert peer.keys_heard() == [8]
        await peer.hang_up()
