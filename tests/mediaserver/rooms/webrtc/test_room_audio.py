"""A participant's audio on the media plane, over a path whose pairs the test nominates."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import ExitStack
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Final

import pytest
from aioice import ice
from pylibsrtp import Policy, Session

from mediaserver.rooms.webrtc.audio_track import RoomAudio, SecureLink
from mediaserver.rooms.webrtc.udp_mux import Path
from pipeline.audio.opus import RATE_HZ
from pipeline.media.playout import Playout
from pipeline.plane.drive.plane import Plane, PlaneFull
from sip.rtp.rtcp import PACKET_TYPES, SenderReport, parse
from tests.support.speech.tones import tone
from tests.support.waiting import until

KEY: Final = bytes(range(30))
SSRC: Final = 0x1234


@pytest.fixture(params=[True, False], ids=["on its thread", "on the loop"])
async def plane(request: pytest.FixtureRequest) -> AsyncIterator[Plane]:
    opened = Plane(asyncio.get_running_loop(), capacity=1, on_thread=request.param)
    yield opened
    opened.close()


class FarEnd:
    """A socket of the participant's, and what came there."""

    def __init__(self, cleanup: ExitStack) -> None:
        self.socket = cleanup.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)

    def packets(self) -> list[bytes]:
        found = []
        while True:
            try:
                found.append(self.socket.recv(2048))
            except BlockingIOError:
                return found

    def pair(self, own: socket.socket) -> Any:
        """What ICE nominates."""
        lane = SimpleNamespace(socket=own, deliver=lambda data, addr: own.sendto(data, addr) > 0)
        return SimpleNamespace(
            protocol=SimpleNamespace(transport=lane), remote_addr=self.socket.getsockname()
        )


def link() -> tuple[SecureLink, ice.Connection]:
    connection = ice.Connection(ice_controlling=False)
    chosen = SimpleNamespace(get_selected_srtp_profile=lambda: b"SRTP_AES128_CM_SHA1_80")
    sealer = Session(Policy(KEY, Policy.SSRC_ANY_OUTBOUND))
    opener = Session(Policy(KEY, Policy.SSRC_ANY_INBOUND))
    dtls: Any = SimpleNamespace(_tx_srtp=sealer, _rx_srtp=opener, _ssl=chosen)
    port: Any = None
    return SecureLink(dtls, Path(port, connection)), connection


def speaking(seconds: float) -> Playout:
    playout = Playout(RATE_HZ)
    playout.begin().begin_piece("a tone")
    playout.write(tone(300, seconds, RATE_HZ))
    playout.end()
    return playout


async def test_media_goes_where_ice_says_and_reports_count_it(plane: Plane) -> None:
    """Nowhere before a pair is nominated; to the new pair at once; nowhere once the connection is closed."""
    with ExitStack() as cleanup:
        one, other, own = FarEnd(cleanup), FarEnd(cleanup), FarEnd(cleanup).socket
        audio, (secure, connection) = RoomAudio(plane, loop=asyncio.get_running_loop()), link()
        audio.attach(None, speaking(5.0))
        secure_opener = Session(Policy(KEY, Policy.SSRC_ANY_INBOUND))
        connection._nominated[1] = one.pair(own)
        audio.speak_on(secure, payload_type=111, ssrc=SSRC)
        await until(lambda: audio.stats.packets_sent >= 30)
        connection._nominated[1] = other.pair(own)
        first = one.packets()
        await until(lambda: audio.stats.packets_sent >= 60)
        connection._nominated.clear()
        count, second = audio.stats.packets_sent, other.packets()
        await asyncio.sleep(0.1)
        assert audio.stats.packets_sent == count
        assert one.packets() == []
        audio.close()
    media = [secure_opener.unprotect(each) for each in first + second if each[1] not in PACKET_TYPES]
    fields = [struct.unpack_from("!BBHII", each) for each in media]
    assert len(media) == count
    assert {(each[1] & 0x7F, each[4]) for each in fields} == {(111, SSRC)}
    assert [each[2] for each in fields] == list(range(fields[0][2], fields[0][2] + count))
    assert all((later[3] - each[3]) % 960 == 0 for each, later in pairwise(fields))
    (report,) = (each for each in first + second if each[1] in PACKET_TYPES)
    (sent,) = (each for each in parse(secure_opener.unprotect_rtcp(report)) if isinstance(each, SenderReport))
    before = (first + second).index(report)
    assert sent.ssrc == SSRC
    assert 0 <= before - sent.packets <= 1  # the plane may send a packet between the count and the report
    assert sent.octets == sum(len(each) - 12 for each in media[: sent.packets])


async def test_a_participant_gives_its_row_back(plane: Plane) -> None:
    audio = RoomAudio(plane, loop=asyncio.get_running_loop())
    with pytest.raises(PlaneFull):
        RoomAudio(plane, loop=asyncio.get_running_loop())
    audio.close()
    assert audio.stats.packets_sent == 0

    def again() -> bool:
        try:
            RoomAudio(plane, loop=asyncio.get_running_loop()).close()
        except PlaneFull:
            return False
        return True

    await until(again)
