"""Calls with PJSIP, an independent SIP and RTP stack, in another process: both directions, real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sip.call import CallFailed
from sip.endpoint import Endpoint, EndpointSettings
from sip.states import CallState, HangupCause
from sip.trunk import Trunk
from sip.trunk_settings import TrunkSettings
from tests.support.ports import free_rtp_range
from tests.support.sip.sip_phones import address
from tests.support.sip.softphone import SoftphoneProcess
from tests.support.speech.leg import Party
from tests.support.speech.tones import loud_part, share_at, tone, write_wav
from tests.support.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("engine")]


@pytest.fixture
async def phone() -> AsyncIterator[Endpoint]:
    async with Endpoint(
        EndpointSettings(udp="127.0.0.1:0", tcp="127.0.0.1:0", rtp_ports=free_rtp_range(200))
    ) as endpoint:
        yield endpoint


def trunk_to(phone: Endpoint, peer: SoftphoneProcess, transport: str = "udp", **settings: Any) -> Trunk:
    return phone.add_trunk(
        TrunkSettings(
            id="peer",
            uri=f"sip:127.0.0.1:{peer.port};transport={transport}",
            caller_id="+14155550100",
            allow_from=("127.0.0.1/32",),
            **settings,
        )
    )


@pytest.mark.parametrize(("codec", "rate_hz"), [("PCMU", 8000), ("PCMA", 8000), ("G722", 16000)])
async def test_we_call_and_both_hear(phone: Endpoint, tmp_path: Path, codec: str, rate_hz: int) -> None:
    async with SoftphoneProcess(tmp_path, answer_after_s=0.1, codecs=[codec]) as peer:
        call = await trunk_to(phone, peer).call("+14155550123")
        await call.answered()
        assert call.rate_hz == rate_hz
        ear = Party(call, tone(700, 1.5, rate_hz))
        await peer.event("media", active=True)
        peer.do("play", line=0, file=str(write_wav(tmp_path / "say.wav", tone(440, 1.5, 16000), 16000)))
        await asyncio.sleep(2.2)
        await call.hang_up()
        assert await call.ended() is HangupCause.NORMAL
        await peer.event("state", state="DISCONNECTED")
    theirs, theirs_hz = peer.heard()
    assert share_at(loud_part(theirs, theirs_hz), theirs_hz, 700) > 0.9
    assert share_at(loud_part(ear.heard, rate_hz), rate_hz, 440) > 0.9
    assert loud_part(ear.heard, rate_hz).size > 1.3 * rate_hz
    assert ear.ended == ["normal"]


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_they_call_and_hang_up(phone: Endpoint, tmp_path: Path, transport: str) -> None:
    async with SoftphoneProcess(tmp_path, tcp=transport == "tcp") as peer:
        trunk_to(phone, peer, transport)
        port = address(phone, transport)[1]
        peer.do("dial", uri=f"sip:+14155550101@127.0.0.1:{port};transport={transport}")
        call = await anext(phone.incoming())
        assert call.local_number == "+14155550101"
        await call.ring()
        await peer.event("state", state="EARLY")
        await call.answer()
        ear = Party(call, tone(700, 1.0, call.rate_hz))
        await peer.event("state", state="CONFIRMED")
        await asyncio.sleep(1.2)
        peer.do("hang_up", line=0)
        assert await call.ended() is HangupCause.NORMAL
        assert call.ended_by == "remote"
        await peer.event("state", state="DISCONNECTED")
    assert ear.frames
    heard, rate_hz = peer.heard()
    assert share_at(loud_part(heard, rate_hz), rate_hz, 700) > 0.9


async def test_digits_both_ways(phone: Endpoint, tmp_path: Path) -> None:
    async with SoftphoneProcess(tmp_path, answer_after_s=0.1) as peer:
        call = await trunk_to(phone, peer).call("+14155550123")
        await call.answered()
        ear = Party(call)
        await peer.event("media", active=True)
        peer.do("dtmf", line=0, digits="159*#D")
        await call.send_dtmf("0284A")
        await until(lambda: ear.keyed == "159*#D")
        await until(lambda: [e["digit"] for e in peer.events if e["event"] == "digit"] == list("0284A"))
        await call.hang_up()
        await call.ended()


async def test_they_hold_and_resume(phone: Endpoint, tmp_path: Path) -> None:
    async with SoftphoneProcess(tmp_path, answer_after_s=0.1) as peer:
        call = await trunk_to(phone, peer).call("+14155550123")
        await call.answered()
        ear = Party(call)
        await peer.event("state", state="CONFIRMED")
        peer.do("hold", line=0)
        await until(lambda: call.held)
        await peer.event("media", status=2)  # PJSUA_CALL_MEDIA_LOCAL_HOLD: our answer is there
        peer.do("resume", line=0)
        await until(lambda: not call.held)
        before = len(ear.frames)
        await until(lambda: len(ear.frames) > before + 20)
        await call.hang_up()
        assert await call.ended() is HangupCause.NORMAL


async def test_we_hold_and_resume(phone: Endpoint, tmp_path: Path) -> None:
    async with SoftphoneProcess(tmp_path, answer_after_s=0.1) as peer:
        call = await trunk_to(phone, peer).call("+14155550123")
        await call.answered()
        ear = Party(call)
        await call.hold()
        await peer.event("media", status=3)  # PJSUA_CALL_MEDIA_REMOTE_HOLD
        await call.resume()
        before = len(ear.frames)
        await until(lambda: len(ear.frames) > before + 20)
        await call.hang_up()
        assert await call.ended() is HangupCause.NORMAL


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (486, HangupCause.BUSY),
        (603, HangupCause.REJECTED),
        (404, HangupCause.NOT_FOUND),
        (480, HangupCause.NO_ANSWER),
        (503, HangupCause.UNREACHABLE),
        (500, HangupCause.REMOTE_ERROR),
    ],
)
async def test_refusals(phone: Endpoint, tmp_path: Path, code: int, cause: HangupCause) -> None:
    async with SoftphoneProcess(tmp_path, answer_after_s=0.0, answer_code=code) as peer:
        call = await trunk_to(phone, peer).call("+14155550123")
        with pytest.raises(CallFailed) as failed:
            await call.answered()
        assert (failed.value.cause, failed.value.code) == (cause, code)
        assert call.state is CallState.ENDED


async def test_ring_out_and_give_up(phone: Endpoint, tmp_path: Path) -> None:
    async with SoftphoneProcess(tmp_path) as peer:
        trunk = trunk_to(phone, peer)
        call = await trunk.call("+14155550123", ring_timeout_s=0.8)
        assert await call.ended() is HangupCause.NO_ANSWER
        await peer.event("state", line=0, state="DISCONNECTED")
        call = await trunk.call("+14155550123")
        await peer.event("incoming", line=1)
        await call.hang_up()
        assert await call.ended() is HangupCause.CANCELLED
        await peer.event("state", line=1, state="DISCONNECTED")


async def test_a_caller_proves_who_they_are(phone: Endpoint, tmp_path: Path) -> None:
    async with SoftphoneProcess(tmp_path / "known", username="acme", password="secret") as known:
        phone.add_trunk(
            TrunkSettings(id="digest", uri="sip:192.0.2.1", username="acme", password="secret", caller_id="x")
        )
        target = f"sip:+14155550101@127.0.0.1:{address(phone)[1]}"
        known.do("dial", uri=target)
        async with asyncio.timeout(10):
            call = await anext(phone.incoming())
        assert call.trunk_id == "digest"
        await call.answer()
        await known.event("state", state="CONFIRMED")
        await call.hang_up()
        await call.ended()
    async with SoftphoneProcess(tmp_path / "wrong", username="acme", password="guess") as wrong:
        wrong.do("dial", uri=target)
        refused = await wrong.event("state", state="DISCONNECTED")
        assert 400 <= refused["status"] < 500
    assert not phone.calls
