"""What a far end's strange messages, and a process that is ended twice, cost calls that PJSIP has."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

import pytest

from sip.states import CallState, HangupCause
from sip.trunk_settings import TrunkSettings
from tests.peers.test_pjsip_engine import Line, line
from tests.support.sip.sip_phones import address
from tests.support.waiting import until

__all__ = ["line"]

pytestmark = pytest.mark.peer

OFFER = (
    "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
    "m=audio 4000 RTP/AVP 0\r\na=rtpmap:0 PCMU/8000\r\n"
)


@pytest.mark.parametrize("field", ["Supported: " + "y," * 2500 + "z"])
async def test_an_invite_that_pjsip_cannot_read_costs_no_other_call(line: Line, field: str) -> None:
    call, _ = await line.call()
    [process] = [each for each in line.ours.processes.all if each.calls]
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as raw:
        raw.bind(("127.0.0.1", 0))
        raw.setblocking(False)
        await loop.sock_sendto(raw, _invite(line, raw.getsockname()[1], field), address(line.ours))
        offered = await asyncio.wait_for(anext(line.ours.incoming()), 5)
        await offered.ring()
        status = 0
        async with asyncio.timeout(16):
            while status < 180:
                status = int((await loop.sock_recv(raw, 65535)).split()[1])
    assert not process.dead
    assert call.state is CallState.ANSWERED
    await call.hang_up()


async def test_a_process_that_is_killed_twice_still_ends_its_calls(line: Line) -> None:
    call, theirs = await line.call()
    [process] = [each for each in line.ours.processes.all if each.calls]
    process.kill()
    for _ in range(3):
        await asyncio.sleep(0)
    process.kill()
    assert await asyncio.wait_for(call.ended(), 10) is HangupCause.ENGINE_FAILED
    assert await theirs.ended() is HangupCause.NORMAL
    assert process not in line.ours.processes.all


def _invite(line: Line, port: int, field: str) -> bytes:
    head = [
        f"INVITE sip:300@127.0.0.1:{address(line.ours)[1]} SIP/2.0",
        f"Via: SIP/2.0/UDP 127.0.0.1:{port};branch=z9hG4bKstrange;rport",
        "Max-Forwards: 70",
        f"From: <sip:200@127.0.0.1:{port}>;tag=strange",
        "To: <sip:300@127.0.0.1>",
        "Call-ID: strange",
        "CSeq: 1 INVITE",
        f"Contact: <sip:200@127.0.0.1:{port}>",
        field,
        "Content-Type: application/sdp",
        f"Content-Length: {len(OFFER)}",
    ]
    return "\r\n".join([*head, "", OFFER]).encode()


async def test_a_crash_after_a_silent_server_is_no_definite_end(line: Line) -> None:
    loop = asyncio.get_running_loop()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second,
    ):
        for each in (silent, second):
            each.bind(("127.0.0.1", 0))
            each.setblocking(False)
        first_uri, second_uri = (f"sip:127.0.0.1:{each.getsockname()[1]}" for each in (silent, second))
        trunk = line.ours.add_trunk(
            TrunkSettings(
                id="two",
                uri=first_uri,
                backup_uris=(second_uri,),
                caller_id="100",
                failover_s=0.5,
                username="a",
                password="b",
                allow_from=("127.0.0.1",),
                engine="pjsua2",
            )
        )
        call = await trunk.call("200")
        request, source = await asyncio.wait_for(loop.sock_recvfrom(second, 65535), 20)
        [process] = [each for each in line.ours.processes.all if any(each.calls.values())]
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)  # it has no answer to the challenge
        await loop.sock_sendto(second, _challenge(request.decode()), source)
        await until(lambda: call.invite.usage.definite)
        os.kill(process.pid, signal.SIGKILL)
        assert await call.ended() is HangupCause.ENGINE_FAILED
        assert not call.definite  # the phone may ring at the silent server


def _challenge(request: str) -> bytes:
    kept = ("via:", "from:", "to:", "call-id:", "cseq:")
    head = [each for each in request.split("\r\n") if each.lower().startswith(kept)]
    head = [f"{each};tag=x" if each.lower().startswith("to:") else each for each in head]
    asks = 'WWW-Authenticate: Digest realm="r", nonce="n", algorithm=MD5'
    return "\r\n".join(["SIP/2.0 401 Unauthorized", *head, asks, "Content-Length: 0", "", ""]).encode()
