"""A whole person over loopback: aiortc, in a process of its own, is the browser."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from collections.abc import AsyncIterator
from itertools import pairwise

import numpy as np
import pytest

from mediaserver.rooms import participant_leg
from mediaserver.rooms.errors import BadOffer, RoomFull
from mediaserver.rooms.participant import Participant
from mediaserver.rooms.participant_leg import LegState, ParticipantLeg
from mediaserver.rooms.webrtc.peer_state import PeerState
from mediaserver.rooms.webrtc.udp_mux import MediaPort
from pipeline.media.playout import Playout
from pipeline.net.egress import EgressPolicy
from pipeline.plane.drive.plane import Plane
from pipeline.plane.srtp_sources import SOURCES
from tests.support.ports import free_rtp_range
from tests.support.speech.leg import Listener
from tests.support.speech.tones import share_at, tone
from tests.support.waiting import until
from tests.support.webrtc.rtc import rtc_client
from tests.support.webrtc.sources import known

RATE_HZ = 16000


def has_ipv6() -> bool:
    """Whether ::1 is an address of this machine."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.fixture
async def port() -> AsyncIterator[MediaPort]:
    plane = Plane(asyncio.get_running_loop(), on_thread=True)
    opened = MediaPort.open(plane, free_rtp_range(), addresses=["127.0.0.1"])
    yield opened
    opened.close()
    plane.close()


@pytest.fixture(params=[True, False], ids=["on its thread", "on the loop"])
async def either(request: pytest.FixtureRequest) -> AsyncIterator[MediaPort]:
    plane = Plane(asyncio.get_running_loop(), on_thread=request.param)
    opened = MediaPort.open(plane, free_rtp_range(), addresses=["127.0.0.1"])
    yield opened
    opened.close()
    plane.close()


def person(port: MediaPort) -> ParticipantLeg:
    return ParticipantLeg(Participant("ann"), port, stream="PA_1|TR_1", track="TR_1")


async def test_a_person_is_heard_hears_and_leaves_nothing_behind(either: MediaPort) -> None:
    tasks = len(asyncio.all_tasks())
    ann = person(either)
    listener, playout = Listener(), Playout(RATE_HZ)
    ann.attach(listener, playout)
    peer = ann.new_peer()
    messages: list[tuple[str, bytes]] = []
    peer.on_message = lambda label, body: messages.append((label, body))
    async with rtc_client(tone=440, video=True) as client:
        client.tell(answer=await peer.answer((await client.line())["offer"]))
        client.follow()
        await until(lambda: len(listener.frames) > 30)
        assert share_at(np.concatenate(listener.frames[10:]), RATE_HZ, 440) > 0.9
        assert ann.state is LegState.CONNECTED
        playout.begin().begin_piece("a tone")
        playout.write(tone(300, 0.5, RATE_HZ))
        playout.end()
        await client.event("sound")
        await until(lambda: ann.audio.stats.packets_sent == 25)  # the half second said, then nothing
        await until(lambda: "events" in peer.channels)
        client.tell(message="hello")
        await until(lambda: messages)
        assert messages == [("events", b"hello")]
        assert peer.send("events", "back")
        assert (await client.event("message"))["text"] == "back"
        report = await client.end()
    assert report["loudest"] > 1000
    assert ann.audio.stats.packets_sent == 25
    await until(lambda: peer.state is PeerState.LEFT)
    await ann.hang_up()
    await ann.hang_up()
    assert listener.ended == ["hung_up"]
    assert len(either) == len(either.plane) == 0
    await until(lambda: len(asyncio.all_tasks()) == tasks)


def stand_still(seconds: float) -> None:
    """Keeps the GIL, and with it the event loop."""
    over = time.monotonic() + seconds
    while time.monotonic() < over:
        pass


async def test_a_person_hears_no_gap_while_python_stands_still(port: MediaPort) -> None:
    """Three seconds of speech, and 200 ms of each in which no Python runs."""
    ann, playout, meanwhile = person(port), Playout(RATE_HZ), []
    ann.attach(Listener(), playout)
    async with rtc_client(packets=True) as client:
        client.tell(answer=await ann.new_peer().answer((await client.line())["offer"]))
        client.follow()
        await until(lambda: ann.state is LegState.CONNECTED)
        playout.begin().begin_piece("a tone")
        playout.write(tone(300, 3.0, RATE_HZ))
        playout.end()
        await client.event("sound")
        for _ in range(3):
            await asyncio.sleep(0.4)
            before = ann.audio.stats.packets_sent
            stand_still(0.2)
            meanwhile.append(ann.audio.stats.packets_sent - before)
        await until(lambda: playout.current is None)
        await asyncio.sleep(0.3)
        packets = (await client.end())["packets"]
    assert min(meanwhile) >= 5  # of ten
    assert len(packets) == ann.audio.stats.packets_sent == 150
    markers, numbers, stamps = zip(*packets, strict=True)
    assert list(numbers) == list(range(numbers[0], numbers[0] + 150))
    assert [later - stamp for stamp, later in pairwise(stamps)] == [960] * 149  # no time was skipped
    assert markers == (True,) + (False,) * 149
    await ann.gone("test")


async def test_the_agents_words_go_on_while_a_session_is_negotiated_anew(port: MediaPort) -> None:
    """As a client does that publishes one more track: the same source, whose numbers and time go on."""
    ann, playout = person(port), Playout(RATE_HZ)
    ann.attach(Listener(), playout)
    peer = ann.new_peer()
    async with rtc_client(packets=True) as client:
        offer = (await client.line())["offer"]
        client.tell(answer=await peer.answer(offer))
        client.follow()
        await until(lambda: ann.state is LegState.CONNECTED)
        playout.begin().begin_piece("a tone")
        playout.write(tone(300, 1.0, RATE_HZ))
        playout.end()
        await client.event("sound")
        await peer.answer(offer)
        await until(lambda: playout.current is None)
        await asyncio.sleep(0.3)
        packets = (await client.end())["packets"]
    markers, _, stamps = zip(*packets, strict=True)
    assert [later - stamp for stamp, later in pairwise(stamps)] == [960] * 49
    assert markers == (True,) + (False,) * 49
    await ann.gone("test")


async def test_who_connects_after_leaving_hears_nobodys_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second connection of one who was told to leave comes up when the row is another person's."""
    monkeypatch.setattr(participant_leg, "LEAVE_S", 20.0)
    plane, playout = Plane(asyncio.get_running_loop(), capacity=1), Playout(RATE_HZ)
    port = MediaPort.open(plane, free_rtp_range(), addresses=["127.0.0.1"])
    ann = person(port)
    ann.closes_itself = True
    async with rtc_client() as client, rtc_client() as late:
        client.tell(answer=await ann.new_peer().answer((await client.line())["offer"]))
        client.follow()
        await until(lambda: ann.state is LegState.CONNECTED)
        second = ann.new_peer()
        answer = await second.answer((await late.line())["offer"])
        leaving = asyncio.create_task(ann.gone("removed"))
        await asyncio.sleep(0.2)
        bo = person(port)
        bo.attach(Listener(), playout)
        late.tell(answer=answer)
        late.follow()
        await until(lambda: second.state is PeerState.CONNECTED)
        await asyncio.sleep(0.1)
        playout.begin().begin_piece("a tone")
        playout.write(tone(300, 0.5, RATE_HZ))
        playout.end()
        await asyncio.sleep(0.3)
        assert bo.audio.stats.packets_sent == 0
        assert playout.queued_samples == RATE_HZ // 2
        for each in (client, late):
            await each.end()
    await leaving
    await bo.gone("test")
    port.close()
    plane.close()


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
async def test_a_person_is_heard_and_hears_over_ipv6(port: MediaPort) -> None:
    both = MediaPort.open(port.plane, free_rtp_range(), addresses=["127.0.0.1", "::1"])
    ann, listener, playout = person(both), Listener(), Playout(RATE_HZ)
    ann.attach(listener, playout)
    async with rtc_client(tone=440, hosts=["::1"]) as client:
        answer = await ann.new_peer().answer((await client.line())["offer"])
        assert f" ::1 {both.number} typ host" in answer
        assert f" 127.0.0.1 {both.number} typ host" in answer
        client.tell(answer=answer)
        client.follow()
        await until(lambda: len(listener.frames) > 30)
        playout.begin().begin_piece("a tone")
        playout.write(tone(300, 0.5, RATE_HZ))
        playout.end()
        await client.event("sound")
        await client.end()
    assert share_at(np.concatenate(listener.frames[10:]), RATE_HZ, 440) > 0.9
    await ann.gone("test")
    both.close()


async def test_an_offer_that_cannot_be_answered_is_said_so(port: MediaPort) -> None:
    ann = person(port)
    for offer in ("", "v=0\r\n", "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:0\r\n"):
        with pytest.raises(BadOffer):
            await ann.new_peer().answer(offer)
    await ann.gone("test")
    assert len(port) == 0


async def test_garbage_on_the_port_reaches_nobody(port: MediaPort) -> None:
    ann = person(port)
    listener = Listener()
    ann.attach(listener, None)
    peer = ann.new_peer()
    async with rtc_client() as client:
        client.tell(answer=await peer.answer((await client.line())["offer"]))
        client.follow()
        await until(lambda: listener.frames)
        ufrag = peer._path.connection.local_username  # type: ignore[union-attr]
        forged = b"\x00\x01" + struct.pack("!HI", 12, 0x2112A442) + bytes(12)
        forged += struct.pack("!HH", 6, 8) + ufrag.encode() + b":xyz"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for packet in (
                b"\x00",
                b"\x16\xfe\xfd" + bytes(40),
                b"\x80" + bytes(100),
                forged,
                os.urandom(900),
            ):
                for _ in range(50):
                    stranger.sendto(packet, ("127.0.0.1", port.number))
            count = len(listener.frames)
            await until(lambda: len(listener.frames) > count + 25 and port.strays >= 200)
        assert ann.audio.stats.bad_packets == 0
        assert len(peer._path.addresses) == 1  # type: ignore[union-attr]
        await client.end()
    await ann.gone("test")


async def test_a_person_of_ever_new_sources_fills_no_memory_and_is_heard_on(port: MediaPort) -> None:
    """Each packet and each report is authentic and of another source, and libsrtp looks through all sources
    for each packet."""
    ann, count = person(port), 200
    listener = Listener()
    ann.attach(listener, None)
    peer = ann.new_peer()
    async with rtc_client() as client:
        client.tell(answer=await peer.answer((await client.line())["offer"]))
        client.follow()
        await until(lambda: listener.frames)
        client.tell(flood=count)
        await client.event("flooded")
        await until(lambda: ann.audio.stats.bad_packets > count // 2)
        heard = len(listener.frames)
        await until(lambda: len(listener.frames) > heard + 10)
        transport = peer._transport()
        with port.plane.held(ann.audio._number):
            assert known(transport._rx_srtp, range(1, 2 * count + 1)) <= SOURCES
        assert not transport._rtp_router.ssrc_table
        assert not transport._rtp_router.receivers
        await client.end()
    await ann.gone("test")


@pytest.mark.parametrize("trickled", [False, True])
async def test_nothing_is_sent_where_a_candidate_says_unless_it_is_open_or_has_called(
    port: MediaPort, trickled: bool
) -> None:
    """A participant names a service in our own network; the candidate of the participant's own is closed too,
    and its conversation comes up, since its own checks come from there."""
    reached = {}
    for networks in ((), ("127.0.0.9/32",)):
        numbers = (21000 + os.getpid() % 9000, 40000)
        opened = MediaPort.open(port.plane, numbers, addresses=["127.0.0.1"], egress=EgressPolicy(networks))
        ann, listener = person(opened), Listener()
        ann.attach(listener, None)
        peer = ann.new_peer()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as victim:
            victim.bind(("127.0.0.9", 0))
            victim.setblocking(False)
            forged = f"candidate:9 1 udp 2130706431 127.0.0.9 {victim.getsockname()[1]} typ host"
            async with rtc_client(tone=440) as client:
                offer = (await client.line())["offer"]
                if not trickled:
                    assert "a=candidate" in offer
                    offer = offer.replace("a=candidate", f"a={forged}\r\na=candidate")
                answer = await peer.answer(offer)
                if trickled:
                    await peer.add_candidate(forged)
                await asyncio.sleep(1)  # the client does not know of us yet: all candidates are tried
                client.tell(answer=answer)
                client.follow()
                await until(lambda: len(listener.frames) > 30)  # noqa: B023
                reached[networks] = received(victim)
                await client.end()
        await ann.gone("test")
        opened.close()
    assert reached[()] == 0
    assert reached["127.0.0.9/32",] > 0


def received(own: socket.socket) -> int:
    """How many datagrams wait at a socket."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            own.recvfrom(2048)
            count += 1
    return count


async def test_a_port_that_is_taken_is_passed_over(port: MediaPort) -> None:
    second = MediaPort.open(port.plane, (port.number, port.number + 20), addresses=["127.0.0.1"])
    assert second.number > port.number
    second.close()
    with pytest.raises(RoomFull):
        MediaPort.open(port.plane, (port.number, port.number), addresses=["127.0.0.1"])
