"""Calls with baresip: another independent stack, and the one with Opus."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pipeline import wav
from sip.endpoint import Endpoint, EndpointSettings
from sip.states import HangupCause
from sip.trunk import TrunkSettings
from tests.support.leg import Party
from tests.support.ports import free_port
from tests.support.tones import loud_part, share_at, tone, write_wav

pytestmark = pytest.mark.peer

CONFIG = """\
poll_method epoll
sip_listen 127.0.0.1:{port}
audio_source aufile,{directory}/hum.wav
net_interface 127.0.0.1
ausrc_srate {rate}
auplay_srate {rate}
ausrc_channels 1
auplay_channels 1
audio_alert none
rtp_ports 46000-46999
snd_path {directory}
module_path /usr/lib/baresip/modules
module g711.so
module g722.so
module opus.so
module aufile.so
module sndfile.so
module_tmp uuid.so
module_tmp account.so
module_app menu.so
"""


@asynccontextmanager
async def baresip(directory: Path, codec: str, rate_hz: int, transport: str) -> AsyncIterator[int]:
    """baresip that answers every call, hums 440 Hz, and records what it decodes."""
    port = free_port()
    (directory / "config").write_text(CONFIG.format(port=port, directory=directory, rate=rate_hz))
    (directory / "accounts").write_text(
        f"<sip:bs@127.0.0.1:{port};transport={transport}>;regint=0;answermode=auto;audio_codecs={codec}\n"
    )
    (directory / "contacts").touch()
    write_wav(directory / "hum.wav", tone(440, 4.0, rate_hz), rate_hz)
    process = await asyncio.create_subprocess_exec(
        "baresip", "-f", str(directory), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            while b"baresip is ready" not in (line := await process.stdout.readline()):
                assert line, "baresip did not start"
        yield port
    finally:
        process.terminate()
        await process.communicate()


@pytest.mark.parametrize(
    ("codec", "rate_hz", "transport"),
    [("opus/48000/2", 16000, "udp"), ("G722/16000/1", 16000, "udp"), ("PCMA/8000/1", 8000, "tcp")],
)
async def test_both_hear_each_other(tmp_path: Path, codec: str, rate_hz: int, transport: str) -> None:
    line_hz = 48000 if codec.startswith("opus") else rate_hz
    async with (
        baresip(tmp_path, codec, line_hz, transport) as port,
        Endpoint(EndpointSettings(udp="127.0.0.1:0", tcp="127.0.0.1:0", rtp_ports=(24500, 24599))) as phone,
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
    assert share_at(loud_part(party.samples, rate_hz), rate_hz, 440) > 0.9
    (recording,) = [path for path in os.listdir(tmp_path) if path.endswith("dec.wav")]
    theirs, theirs_hz = wav.read(tmp_path / recording)
    assert share_at(loud_part(theirs, theirs_hz), theirs_hz, 700) > 0.9
