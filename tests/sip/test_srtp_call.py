"""Calls with SRTP by hand: what no telephone does, and what a carrier that changes its keys does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from bench.call.protected import Keys
from sip.call import Call
from sip.endpoint import Endpoint, EndpointSettings
from sip.errors import SipError
from sip.message.message import Response
from sip.sdp.security import Srtp
from sip.states import CallState, HangupCause
from sip.trunk_settings import TrunkSettings
from tests.support.ports import free_rtp_range
from tests.support.sip.raw_call import RawCall
from tests.support.sip.sip_phones import address
from tests.support.speech.leg import Party
from tests.support.waiting import until

SDP = "Content-Type: application/sdp"


class ProtectedCall(RawCall):
    """A caller whose audio is SRTP; `keys` may be changed."""

    keys = Keys()

    @property
    def offer(self) -> str:
        return super().offer.replace("RTP/AVP", "RTP/SAVP") + self.keys.line

    def take_answer(self, response: Response) -> None:
        super().take_answer(response)
        assert self.keys.take(response.body.decode())

    def send_rtp(self, data: bytes) -> None:
        super().send_rtp(self.keys.seal(data))

    async def changed(self, method: str, body: str) -> Response:
        """What is answered to another offer within the call."""
        self.send(self.request(method, SDP, body=body))
        answer = await self.final(method)
        if method == "INVITE":
            self.send(self.request("ACK", cseq=self._cseq))
        return answer


@pytest.fixture
async def phone() -> AsyncIterator[Endpoint]:
    async with Endpoint(EndpointSettings(udp="127.0.0.1:0", rtp_ports=free_rtp_range())) as endpoint:
        endpoint.add_trunk(
            TrunkSettings(id="peer", uri="sip:127.0.0.1:9", allow_from=("127.0.0.1/32",), srtp=Srtp.SDES)
        )
        yield endpoint


async def up(phone: Endpoint, caller: ProtectedCall) -> tuple[Call, Party]:
    caller.keys = Keys()
    _, call = await asyncio.gather(caller.answered(), _answer(phone))
    return call, Party(call)


async def _answer(phone: Endpoint) -> Call:
    call = await anext(phone.incoming())
    await call.answer()
    return call


@pytest.mark.parametrize("method", ["INVITE", "UPDATE"])
async def test_a_key_that_changes_in_the_call_is_followed(phone: Endpoint, method: str) -> None:
    async with ProtectedCall(address(phone)[1], "1001") as caller:
        call, party = await up(phone, caller)
        await caller.hum(440, 0.4)
        before, caller.keys = caller.keys, Keys()
        answer = await caller.changed(method, caller.offer)
        assert answer.status == 200
        caller.take_answer(answer)
        caller.keys, after = before, caller.keys
        await caller.hum(440, 0.2)  # still under way
        caller.keys = after
        await caller.hum(440, 0.4)
        await until(lambda: call.stats.packets_received == 50)
        assert call.stats.forged == call.stats.bad_packets == 0
        await until(lambda: len(party.frames) == 50)
        caller.keys = before
        await caller.hum(440, 0.1)
        await until(lambda: call.stats.forged == 5)
        assert len(party.frames) == 50
        caller.keys = after
        caller.rtp.arrived.get_nowait()
        newest = [caller.keys.open(caller.rtp.arrived.get_nowait()[1]) for _ in range(10)]
        assert any(newest)
        await caller.hang_up()


async def test_no_change_of_a_call_switches_protection_off(phone: Endpoint) -> None:
    async with ProtectedCall(address(phone)[1], "1001") as caller:
        call, _ = await up(phone, caller)
        plain = caller.offer.replace("RTP/SAVP", "RTP/AVP").replace(caller.keys.line, "")
        for method in ("INVITE", "UPDATE"):
            assert (await caller.changed(method, plain)).status == 488
        await caller.hum(440, 0.2)
        await until(lambda: call.stats.packets_received == 10)
        assert call.state is CallState.ANSWERED
        assert call.encryption.keys == "sdes"
        await caller.hang_up()


async def test_a_plain_answer_to_a_change_of_ours_ends_the_call_instead_of_its_protection(
    phone: Endpoint,
) -> None:
    """The trunk takes both (`optional`), the call had keys, and the far end's answer to a hold has none."""
    phone.remove_trunk("peer")
    phone.add_trunk(
        TrunkSettings(id="peer", uri="sip:127.0.0.1:9", allow_from=("127.0.0.1/32",), srtp=Srtp.OPTIONAL)
    )
    async with ProtectedCall(address(phone)[1], "1001") as caller:
        call, _ = await up(phone, caller)
        await caller.hum(440, 0.2)
        assert call.encryption.keys == "sdes"
        holding = asyncio.create_task(call.hold())
        change = await caller.asked("INVITE")
        assert b"a=crypto" in change.body
        plain = caller.offer.replace("RTP/SAVP", "RTP/AVP").replace(caller.keys.line, "")
        caller.reply(change, body=plain)
        await caller.asked("ACK")
        bye = await caller.asked("BYE")
        caller.reply(bye)
        with pytest.raises(SipError):
            await holding
        assert (call.cause, call.encryption.keys) == (HangupCause.INCOMPATIBLE, "sdes")
        while not caller.rtp.arrived.empty():
            assert caller.keys.open(caller.rtp.arrived.get_nowait()[1])


async def test_a_plain_invite_is_refused_where_keys_are_insisted_on(phone: Endpoint) -> None:
    async with RawCall(address(phone)[1], "1001") as caller:
        caller.invite()
        assert (await caller.final()).status == 488


async def test_packets_that_are_not_authentic_are_logged_once(
    phone: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with ProtectedCall(address(phone)[1], "1001") as caller:
        call, party = await up(phone, caller)
        good, caller.keys = caller.keys, Keys()
        await caller.hum(440, 0.6)
        await until(lambda: call.stats.forged == 30)
        caller.keys = good
        await caller.hum(440, 0.2)
        await until(lambda: len(party.frames) == 10)
        await caller.hum(440, 0.3)
        told = [record for record in caplog.records if record.message == "packets are not authentic"]
        assert [getattr(record, "call_id", "") for record in told] == [call.id]
        await caller.hang_up()
