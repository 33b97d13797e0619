"""baresip, an independent SIP telephone, as a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pipeline.audio import Pcm
from tests.support.ports import free_port
from tests.support.speech.tones import write_wav

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
module srtp.so
module dtls_srtp.so
module aufile.so
module sndfile.so
module_tmp uuid.so
module_tmp account.so
module_app menu.so
"""


@asynccontextmanager
async def baresip(
    directory: Path,
    codec: str,
    sound: Pcm,
    rate_hz: int,
    *,
    user: str = "bs",
    port: int = 0,
    transport: str = "udp",
    account: str = "",
    media: str = "",
    command: str = "",
) -> AsyncIterator[int]:
    """baresip at a port, which answers every call for `user`, plays `sound` (it hangs up at its end), and
    records what it decodes into the directory. `account`: its line, instead of one without a registrar;
    `media`: how it protects its audio (srtp, srtp-mand, dtls_srtp); `command`: what it does when it has
    started."""
    port = port or free_port()
    (directory / "config").write_text(CONFIG.format(port=port, directory=directory, rate=rate_hz))
    account = account or f"<sip:{user}@127.0.0.1:{port};transport={transport}>;regint=0"
    account += f";mediaenc={media}" if media else ""
    (directory / "accounts").write_text(f"{account};answermode=auto;audio_codecs={codec}\n")
    (directory / "contacts").touch()
    write_wav(directory / "hum.wav", sound, rate_hz)
    process = await asyncio.create_subprocess_exec(
        "baresip",
        *("-f", str(directory), *(("-e", command) if command else ())),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
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
