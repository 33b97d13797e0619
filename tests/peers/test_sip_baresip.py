"""Calls with baresip: another independent stack, and the one with Opus."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from pipeline.audio import wav
from sip.endpoint import Endpoint, EndpointSettings
from sip.states import HangupCause
from sip.trunk_settings import TrunkSettings
from tests.support.ports import free_rtp_range
from tests.support.sip.baresip import baresip
from tests.support.speech.leg import Party
from tests.support.speech.tones import loud_part, share_at, tone

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("engine")]


@pytest.mark.parametrize(
    ("codec", "rate_hz", "transport"),
    [("opus/48000/2", 16000, "udp"), ("G722/16000/1", 16000, "udp"), ("PCMA/8000/1", 8000, "tcp")],
)
async def test_both_hear_each_other(tmp_path: Path, codec: str, rate_hz: int, transport: str) -> None:
    line_hz = 48000 if codec.startswith("opus") else rate_hz
    async with (
        baresip(tmp_path, codec, tone(440, 4.0, line_hz), line_hz, transport=transport) as port,
        Endpoint(EndpointSettings(udp="127.0.0.1:0", tcp="127.0.0.1:0", rtp_ports=free_rtp_range())) as phone,
    ):
        trunk = phone.add_trunk(TrunkSettings(id="bs", uri=f"sip:127.0.0.1:{port};transport={transport}"))
        call = await trunk.call("bs")
        await call.answered()
        assert call.rate_hz == rate_hz
        party = Party(call, tone(700, 1.5, rate_hz))
        await asyncio.sleep(2.0)
        await call.hang_up()
        assert await call.ended() is HangupCause.NORMAL
        assert call.stats.lost == 0
    assert share_at(loud_part(party.heard, rate_hz), rate_hz, 440) > 0.9
    (recording,) = [path for path in os.listdir(tmp_path) if path.endswith("dec.wav")]
    theirs, theirs_hz = wav.read(tmp_path / recording)
    assert share_at(loud_part(theirs, theirs_hz), theirs_hz, 700) > 0.9
