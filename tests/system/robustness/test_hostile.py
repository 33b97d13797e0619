"""A running server, in a process of its own, among peers that break every rule."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bench.support.codecs import ulaw
from bench.support.processes import children, module_of
from pipeline.audio import wav
from tests.support.hostile.hostile import hang_up, wrong_answer
from tests.support.hostile.torture import MESSAGES
from tests.support.node.node import KEY, REAL_ENGINES, ServerProcess, serving, write_site
from tests.support.sip.raw_call import SOUND, RawCall
from tests.support.speech.tones import loud_part, share_at, tone

pytestmark = pytest.mark.peer

STORYTELLER = "+14155550107"
LONG = " ".join(f"This is sentence number {number} of a very long story." for number in range(1, 15))
TELLS = """
[[agent]]
id = "7b0f7e7e-4f5a-4b8e-9f43-5f0f2c3f9f77"
company = "acme"
name = "Storyteller"
direction = "inbound"
trunk = "carrier"
phone_number = "+14155550107"
{engines}
[agent.script]
start = "story"
[[agent.script.step]]
id = "story"
say = "STORY"
interruptible = false
action = "hang_up"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    site = write_site(
        tmp_path_factory.mktemp("hostile"), engines=REAL_ENGINES, more=TELLS.replace("STORY", LONG)
    )
    site.change("ring_timeout_s = 20", "ring_timeout_s = 20\nmedia_timeout_s = 2")
    with serving(site) as process:
        process.wait_ready()
        yield process


def report(server: ServerProcess) -> dict[str, Any]:
    """The call that came last."""
    _, listed = server.get("/api/v1/calls", KEY)
    call: dict[str, Any] = server.get(f"/api/v1/calls/{listed['calls'][0]['callTaskId']}", KEY)[1]
    return call


async def final_report(server: ServerProcess) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while (call := report(server))["endedAt"] is None:
            await asyncio.sleep(0.05)
    return call


async def a_call_works(server: ServerProcess) -> None:
    async with RawCall(server.site.sip, STORYTELLER) as call:
        await call.answered()
        await call.sound()
        await call.hang_up()


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_the_torture_messages_of_strangers(server: ServerProcess, transport: str) -> None:
    for name in MESSAGES:
        assert await wrong_answer(name, server.site.sip, transport) is None, name
    await a_call_works(server)
    assert "Traceback" not in server.log.read_text()


async def test_datagrams_that_are_not_sip_at_all(server: ServerProcess) -> None:
    rng = random.Random(7)
    with socket.socket(type=socket.SOCK_DGRAM) as peer:
        for size in (0, 1, 4, 100, 1500, 65_507):
            for data in (rng.randbytes(size), b"\0" * size, b"INVITE " * (size // 7), b"\r\n" * (size // 2)):
                peer.sendto(data, ("127.0.0.1", server.site.sip))
    _, writer = await asyncio.open_connection("127.0.0.1", server.site.sip)
    writer.write(rng.randbytes(65_536))
    await hang_up(writer)
    await a_call_works(server)
    assert "Traceback" not in server.log.read_text()


def strange_packets(server: ServerProcess) -> float:
    """RTP packets since the server's start that came from an address which is not a call's far end's."""
    counted = re.search(r'rtp_packets_total{kind="strange_address"} (\S+)', server.get("/metrics")[1])
    return float(counted[1]) if counted else 0.0


async def test_rtp_that_breaks_every_rule(server: ServerProcess) -> None:
    """The agent is heard throughout, and hears its caller again after everything."""
    rng = random.Random(3)
    async with RawCall(server.site.sip, STORYTELLER) as call:
        call.sequence = 5000
        await call.answered()
        await call.hum(440, 0.3)
        before = strange_packets(server)  # also what came before the server knew its caller
        theirs = call.packet(ulaw(tone(1500, 0.02, 8000)))
        with socket.socket(type=socket.SOCK_DGRAM) as stranger:
            for number in range(10_000):
                stranger.sendto(theirs, call.remote_rtp)
                if number % 250 == 0:
                    await call.hum(440, 0.02)
        for data in (
            b"",
            b"\x80",
            rng.randbytes(11),
            rng.randbytes(1500),
            b"\xff" * 172,
            b"\x80\0" + bytes(8),
        ):
            call.send_rtp(data)
        frame = ulaw(tone(440, 0.02, 8000))
        for data in (call.packet(frame, payload_type=77), call.packet(frame, ssrc=666), call.packet(b"")):
            call.send_rtp(data)
        call.sequence = 65_525  # a jump, and a wrap a fifth of a second later
        await call.hum(440, 0.4)
        call.timestamp = (call.timestamp + 7_000_000) & 0xFFFFFFFF
        await call.hum(440, 0.3)
        await call.hum(440, 1.0, keep=0.7)
        call.ssrc = 0x0BADCAFE
        await call.hum(880, 0.6)
        heard = call.heard()
        await call.hang_up()
    ended = await final_report(server)
    assert (ended["hangupCause"], ended["endedBy"]) == ("normal", "remote")
    assert np.diff([at for at, _ in heard]).max() < 0.5
    assert sum(np.abs(frame).max() > SOUND for _, frame in heard) > len(heard) / 2
    (caller, _), rate_hz = wav.read_channels(
        server.site.data_dir / "recordings" / f"{ended['callTaskId']}.wav"
    )
    assert share_at(caller, rate_hz, 1500) < 0.01
    assert loud_part(caller, rate_hz).size > 0.7 * caller.size
    assert share_at(loud_part(caller, rate_hz)[-rate_hz // 3 :], rate_hz, 880) > 0.9
    assert strange_packets(server) - before == 10_000


async def test_a_caller_who_vanishes(server: ServerProcess) -> None:
    async with RawCall(server.site.sip, STORYTELLER) as call:
        await call.answered()
        await call.hum(440, 0.2)
        call.reply(await call.asked("BYE"))
    ended = await final_report(server)
    assert (ended["status"], ended["hangupCause"], ended["endedBy"]) == (
        "COMPLETED",
        "media_timeout",
        "local",
    )


async def test_the_voice_is_killed_in_mid_sentence_and_goes_on(server: ServerProcess) -> None:
    async with RawCall(server.site.sip, STORYTELLER) as call:
        await call.answered()
        humming = asyncio.create_task(call.hum(440, 4.5))
        await call.sound()
        before = voice_of(server)
        os.kill(before, signal.SIGKILL)
        await humming
        heard = call.heard()
        assert voice_of(server) != before
        await call.hang_up()
    loud = [at for at, frame in heard if np.abs(frame.astype(np.int32)).max() > SOUND]
    assert np.diff(loud).max() < 2.5
    assert loud[-1] - loud[0] > 3.0
    ended = await final_report(server)
    assert ended["hangupCause"] == "normal"


def voice_of(server: ServerProcess) -> int:
    """The process that speaks."""
    (pid,) = [pid for pid in children(server.process.pid) if module_of(pid).endswith("espeak_process")]
    return int(pid)
