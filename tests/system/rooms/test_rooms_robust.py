"""Rooms under strain: a bad network, two hundred visits, more than one person on the line."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import threading
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from aiortc import RTCBundlePolicy, RTCConfiguration, RTCPeerConnection, RTCSessionDescription

from mediaserver.rooms.participant import Participant
from mediaserver.rooms.participant_leg import ParticipantLeg
from mediaserver.rooms.webrtc.udp_mux import MediaPort
from pipeline.audio import Pcm
from pipeline.media.bridge import Bridge
from pipeline.media.pacer import Pacer
from pipeline.media.playout import Playout
from pipeline.media.who_hears import Role
from pipeline.plane.drive.plane import Plane
from tests.support.speech.bridged import ByHand, FakeLeg
from tests.support.speech.leg import Listener
from tests.support.speech.tones import share_at, tone
from tests.support.waiting import until
from tests.support.webrtc.relay import relay
from tests.support.webrtc.rtc import rtc_client

RATE_HZ = 16000
FRAME = RATE_HZ // 50


@pytest.fixture
async def port() -> AsyncIterator[MediaPort]:
    plane = Plane(asyncio.get_running_loop())
    numbers = (22_000 + os.getpid() % 9000, 40_000)
    opened = MediaPort.open(plane, numbers, addresses=["127.0.0.1"])
    yield opened
    opened.close()
    plane.close()


def person(port: MediaPort, name: str = "ann") -> ParticipantLeg:
    return ParticipantLeg(Participant(name), port, stream="PA_1|TR_1", track="TR_1")


async def test_speech_survives_five_per_cent_of_loss_and_forty_milliseconds_of_jitter(
    port: MediaPort,
) -> None:
    ann, listener = person(port), Listener()
    ann.attach(listener, None)
    async with relay(port.number, loss=0.05, jitter_s=0.04) as network, rtc_client(tone=440) as client:
        # The only way is through the relay: our side does not hear where the client is.
        offer = re.sub(r"a=candidate:.*\r\n", "", (await client.line())["offer"])
        answer = await ann.new_peer().answer(offer)
        client.tell(answer=answer.replace(f" {port.number} typ host", f" {network.port} typ host"))
        client.follow()
        await until(lambda: len(listener.frames) > 250)
        stats = ann.audio.stats
        await client.end()
    assert network.lost > 5
    assert stats.lost > 0
    assert stats.recovered > 0
    span = (listener.positions[-1] - listener.positions[0]) // FRAME + 1
    assert len(listener.frames) >= span * 0.98  # what was lost was made up for
    assert listener.positions == sorted(set(listener.positions))
    assert share_at(np.concatenate(listener.frames[20:]), RATE_HZ, 440) > 0.85
    await ann.gone("test")


async def _visit(port: MediaPort) -> None:
    """One person comes, is connected, and goes; the browser is in this process too."""
    ann = person(port)
    browser = RTCPeerConnection(RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE))
    transceiver = browser.addTransceiver("audio", direction="sendrecv")
    connected = asyncio.Event()

    async def started(parameters: Any) -> None:
        connected.set()

    transceiver.receiver.receive = started  # type: ignore[method-assign]
    transceiver.sender.send = started  # type: ignore[method-assign]
    browser.createDataChannel("events")
    await browser.setLocalDescription(await browser.createOffer())
    answer = await ann.new_peer().answer(browser.localDescription.sdp)
    await browser.setRemoteDescription(RTCSessionDescription(sdp=answer, type="answer"))
    await asyncio.wait_for(connected.wait(), 20)
    await ann.gone("test")
    await browser.close()


def _held() -> tuple[int, int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(asyncio.all_tasks())


@pytest.mark.nightly("ci")
@pytest.mark.slow
async def test_two_hundred_visits_leave_nothing_behind(port: MediaPort) -> None:
    await asyncio.gather(*(_visit(port) for _ in range(5)))
    await asyncio.sleep(0.5)
    before = _held()
    for _ in range(20):
        await asyncio.gather(*(_visit(port) for _ in range(10)))
    await asyncio.sleep(0.5)
    await until(lambda: _held() <= before)
    assert len(port) == 0
    assert len(port.plane) == 0
    assert all(not table for table in port._by_address.values())
    assert not port._asked


# More than one on the line ----------------------------------------------------------------------------------


async def test_one_leg_alone_is_passed_straight_through() -> None:
    bridge, leg, session = Bridge(Pacer(ByHand()), rate_hz=RATE_HZ), FakeLeg(), Listener()
    playout = Playout(RATE_HZ)
    bridge.add(leg)
    bridge.attach(session, playout)
    frame = tone(440, 0.02, RATE_HZ)
    leg.say(frame)
    assert np.array_equal(session.frames[0], frame)
    assert leg.source is playout


async def test_a_person_a_phone_and_the_agent_hear_each_other_and_not_themselves() -> None:
    clock = ByHand()
    bridge, session, playout = Bridge(Pacer(clock), rate_hz=RATE_HZ), Listener(), Playout(RATE_HZ)
    ann, phone, boss = FakeLeg(), FakeLeg(8000), FakeLeg()
    bridge.add(ann)
    bridge.attach(session, playout)
    bridge.add(phone)
    bridge.add(boss, role=Role.MONITOR)
    playout.begin().begin_piece("x")
    playout.write(tone(300, 1.0, RATE_HZ))
    heard: dict[FakeLeg, list[Pcm]] = {ann: [], phone: [], boss: []}
    for at in range(50):
        ann.say(tone(500, 1.0, RATE_HZ)[at * FRAME : (at + 1) * FRAME])
        phone.say(tone(900, 1.0, 8000)[at * 160 : (at + 1) * 160])
        boss.say(tone(2000, 0.02, RATE_HZ))
        clock.pass_frame()
        for leg, frames in heard.items():
            frame = leg.hear()
            if frame is not None:
                frames.append(frame)
    shares = {
        leg: [share_at(np.concatenate(frames[10:]), leg.rate_hz, hz) > 0.2 for hz in (300, 500, 900, 2000)]
        for leg, frames in heard.items()
    }
    assert shares[ann] == [True, False, True, False]
    assert shares[phone] == [True, True, False, False]
    assert shares[boss] == [True, True, True, False]
    to_agent = np.concatenate(session.frames[5:])
    assert [share_at(to_agent, RATE_HZ, hz) > 0.2 for hz in (300, 500, 900, 2000)] == [
        False,
        True,
        True,
        False,
    ]
    assert {len(frame) for frame in heard[phone]} == {160}


async def test_the_conversations_clock_goes_on_when_others_come_and_go() -> None:
    clock = ByHand()
    bridge, session = Bridge(Pacer(clock), rate_hz=RATE_HZ), Listener()
    ann, bob = FakeLeg(), FakeLeg()
    bridge.add(ann)
    bridge.attach(session, Playout(RATE_HZ))
    frame = tone(440, 0.02, RATE_HZ)
    for _ in range(5):
        ann.say(frame)
    bridge.add(bob)
    for _ in range(5):
        ann.say(frame)
        clock.pass_frame()
    bridge.remove(bob)
    for _ in range(5):
        ann.say(frame)
    assert session.positions == sorted(set(session.positions))
    assert session.positions[-1] - session.positions[-5] == 4 * FRAME


async def test_the_last_who_may_speak_ends_the_conversation() -> None:
    bridge, session = Bridge(Pacer(ByHand()), rate_hz=RATE_HZ), Listener()
    ann, bob, boss = FakeLeg(), FakeLeg(), FakeLeg()
    for leg in (ann, bob):
        bridge.add(leg)
    bridge.add(boss, role=Role.MONITOR)
    bridge.attach(session, Playout(RATE_HZ))
    assert ann.listener is not None
    ann.listener.leg_ended("hung_up", 0.0)
    assert session.ended == []
    assert bob.listener is not None
    bob.listener.leg_ended("client_initiated", 0.0)
    assert session.ended == ["client_initiated"]
    await bridge.hang_up()
    assert boss.hung_up == 1


async def test_taking_over_does_not_end_the_conversation() -> None:
    bridge, session = Bridge(Pacer(ByHand()), rate_hz=RATE_HZ), Listener()
    first, second = FakeLeg(), FakeLeg()
    bridge.add(first)
    bridge.attach(session, Playout(RATE_HZ))
    bridge.remove(first)
    assert session.ended == []
    bridge.add(second)
    second.say(tone(440, 0.02, RATE_HZ))
    assert len(session.frames) == 1
    bridge.remove(second)
    bridge.end("join_failure")
    assert session.ended == ["join_failure"]


async def test_a_conversation_that_begins_after_everybody_left_is_told_why_they_did() -> None:
    bridge, session = Bridge(Pacer(ByHand()), rate_hz=RATE_HZ), Listener()
    ann = FakeLeg()
    bridge.add(ann)
    assert ann.listener is not None
    ann.listener.leg_ended("media_failure", 0.0)
    bridge.attach(session, Playout(RATE_HZ))
    await asyncio.sleep(0)
    assert session.ended == ["media_failure"]
