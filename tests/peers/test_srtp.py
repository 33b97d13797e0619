"""SRTP with telephones that others wrote: keys by SDES and by DTLS, both ways, and nobody falls back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.audio import Pcm, wav
from sip.call import Call, CallFailed
from sip.endpoint import Endpoint, EndpointSettings
from sip.sdp.security import Srtp
from sip.states import HangupCause
from sip.trunk import Trunk
from sip.trunk_settings import TrunkSettings
from tests.support.ports import free_rtp_range
from tests.support.sip.baresip import baresip
from tests.support.sip.softphone import SoftphoneProcess
from tests.support.speech.leg import Party
from tests.support.speech.tones import loud_part, share_at, tone
from tests.support.waiting import until

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("engine")]

PCMU = "PCMU/8000/1"
OURS_HZ, THEIRS_HZ = 700, 440


@pytest.fixture
async def phone() -> AsyncIterator[Endpoint]:
    async with Endpoint(EndpointSettings(udp="127.0.0.1:0", rtp_ports=free_rtp_range())) as endpoint:
        yield endpoint


def trunk_to(phone: Endpoint, port: int, srtp: str, **settings: Any) -> Trunk:
    return phone.add_trunk(
        TrunkSettings(
            id="peer", uri=f"sip:127.0.0.1:{port}", allow_from=("127.0.0.1/32",), srtp=Srtp(srtp), **settings
        )
    )


def loudly(samples: Pcm, rate_hz: int, hz: int) -> bool:
    return bool(share_at(loud_part(samples, rate_hz), rate_hz, hz) > 0.9)


def heard_by_baresip(directory: Path) -> bool:
    """Whether it has recorded our tone."""
    (recording,) = [path for path in os.listdir(directory) if path.endswith("dec.wav")]
    return loudly(*wav.read(directory / recording), OURS_HZ)


async def talk(call: Call) -> Party:
    party = Party(call, tone(OURS_HZ, 1.5, call.rate_hz))
    await asyncio.sleep(2.0)
    await call.hang_up()
    assert await call.ended() is HangupCause.NORMAL
    assert loudly(party.heard, call.rate_hz, THEIRS_HZ)
    return party


WE_CALL = [("sdes", "srtp", "sdes"), ("sdes", "srtp-mand", "sdes"), ("optional", "srtp", "sdes")]
WE_CALL += [("optional", "", "none")]


@pytest.mark.parametrize(("srtp", "media", "keys"), WE_CALL)
async def test_we_call_baresip(phone: Endpoint, tmp_path: Path, srtp: str, media: str, keys: str) -> None:
    async with baresip(tmp_path, PCMU, tone(THEIRS_HZ, 4.0, 8000), 8000, media=media) as port:
        call = await trunk_to(phone, port, srtp).call("bs")
        await call.answered()
        await talk(call)
    assert call.encryption.keys == keys
    assert call.stats.forged == call.stats.lost == 0
    assert call.stats.rtt_ms is None or call.stats.rtt_ms < 1000
    assert heard_by_baresip(tmp_path)


THEY_CALL = [("sdes", "srtp", "sdes"), ("sdes", "srtp-mand", "sdes"), ("optional", "srtp-mand", "sdes")]
THEY_CALL += [("optional", "", "none"), ("off", "srtp", "none")]


@pytest.mark.parametrize(("srtp", "media", "keys"), THEY_CALL)
async def test_baresip_calls_us(phone: Endpoint, tmp_path: Path, srtp: str, media: str, keys: str) -> None:
    assert phone.udp_address is not None
    trunk_to(phone, 9, srtp)
    dial = f"/dial sip:1001@127.0.0.1:{phone.udp_address[1]}"
    sound = tone(THEIRS_HZ, 4.0, 8000)
    async with baresip(tmp_path, PCMU, sound, 8000, media=media, command=dial):
        call = await anext(phone.incoming())
        await call.answer()
        await talk(call)
    assert call.encryption.keys == keys
    assert heard_by_baresip(tmp_path)


async def test_a_telephone_without_keys_is_refused(phone: Endpoint, tmp_path: Path) -> None:
    async with baresip(tmp_path, PCMU, tone(THEIRS_HZ, 4.0, 8000), 8000) as port:
        call = await trunk_to(phone, port, "sdes").call("bs")
        with pytest.raises(CallFailed) as failed:
            await call.answered()
    assert (failed.value.code, failed.value.cause) == (488, HangupCause.INCOMPATIBLE)
    assert call.stats.packets_sent == 0


@pytest.mark.parametrize("srtp", ["dtls", "optional"])
async def test_baresip_calls_us_with_a_handshake(phone: Endpoint, tmp_path: Path, srtp: str) -> None:
    assert phone.udp_address is not None
    trunk_to(phone, 9, srtp)
    dial = f"/dial sip:1001@127.0.0.1:{phone.udp_address[1]}"
    sound = tone(THEIRS_HZ, 4.0, 8000)
    async with baresip(tmp_path, PCMU, sound, 8000, media="dtls_srtp", command=dial):
        call = await anext(phone.incoming())
        await call.answer()
        await talk(call)
    assert call.encryption.keys == "dtls"
    assert heard_by_baresip(tmp_path)


async def test_we_call_baresip_with_a_handshake(phone: Endpoint, tmp_path: Path) -> None:
    async with baresip(tmp_path, PCMU, tone(THEIRS_HZ, 4.0, 8000), 8000, media="dtls_srtp") as port:
        call = await trunk_to(phone, port, "dtls").call("bs")
        await call.answered()
        await talk(call)
    assert call.encryption.keys == "dtls"
    assert heard_by_baresip(tmp_path)


@pytest.mark.parametrize(("ours", "theirs"), [("sdes", "mandatory"), ("optional", "optional")])
async def test_pjsip_is_called_held_and_heard(
    phone: Endpoint, tmp_path: Path, ours: str, theirs: str
) -> None:
    async with SoftphoneProcess(tmp_path, answer_after_s=0.1, srtp=theirs) as peer:
        call = await trunk_to(phone, peer.port, ours).call("+14155550123")
        await call.answered()
        ear = Party(call, tone(OURS_HZ, 1.0, call.rate_hz))
        await peer.event("state", state="CONFIRMED")
        peer.do("hold", line=0)
        await until(lambda: call.held)
        await peer.event("media", status=2)  # PJSUA_CALL_MEDIA_LOCAL_HOLD: our answer is there
        peer.do("resume", line=0)
        await until(lambda: not call.held)
        await call.hold()
        await call.resume()
        before = len(ear.frames)
        await until(lambda: len(ear.frames) > before + 20)
        ear = Party(call, tone(OURS_HZ, 1.0, call.rate_hz))
        await asyncio.sleep(1.2)
        await call.hang_up()
        await call.ended()
    assert call.encryption.keys == "sdes"
    assert call.stats.forged == 0
    theirs_heard, theirs_hz = peer.heard()
    assert loudly(theirs_heard, theirs_hz, OURS_HZ)


async def test_pjsip_calls_us(phone: Endpoint, tmp_path: Path) -> None:
    assert phone.udp_address is not None
    trunk_to(phone, 9, "sdes")
    async with SoftphoneProcess(tmp_path, srtp="mandatory") as peer:
        peer.do("dial", uri=f"sip:1001@127.0.0.1:{phone.udp_address[1]}")
        call = await anext(phone.incoming())
        await call.answer()
        ear = Party(call, tone(OURS_HZ, 1.0, call.rate_hz))
        await until(lambda: len(ear.frames) > 40)
        await call.hang_up()
        await call.ended()
    assert (call.encryption.keys, call.stats.forged) == ("sdes", 0)
