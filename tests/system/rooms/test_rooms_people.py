"""Several people in a room with one agent: who said what."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp.test_utils import TestClient

from mediaserver.admin.access import Access
from mediaserver.rooms.room import RoomObserver, Words
from mediaserver.rooms.tokens import Grant
from mediaserver.rooms.web_call import WebCallRequest
from mediaserver.server import Server
from pipeline.leg import AudioSource, LegListener
from pipeline.media.bridge import Bridge
from pipeline.media.pacer import Pacer
from tests.support.http.models import Utterance, fake_models
from tests.support.node.node import running
from tests.support.sip.transfers import LISTENS, write_transfer_site
from tests.support.speech.tones import tone
from tests.support.waiting import until
from tests.support.webrtc.rooms import join, microphone
from tests.support.webrtc.rtc import RtcClient, rtc_client

RATE_HZ = 16000
QUIET_S = 2.5


class Lines(RoomObserver):
    """Who said what, as clients are told: (identity, final)."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []
        self.segments: dict[str, set[str]] = {}

    def words_spoken(self, words: Words, now: float) -> None:
        self.told.append((words.speaker.identity, words.final))
        self.segments.setdefault(words.segment, set()).add(words.speaker.identity)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A recogniser with interim words."""
    monkeypatch.setattr(Utterance, "partial", lambda utterance: utterance.answer)
    with fake_models():
        yield


async def says(rtc: RtcClient, voice: Path, told: list[tuple[str, bool]], identity: str) -> None:
    """Speaks, until what was said is told of, interim and final, and nothing more is; again where the agent
    spoke over it."""
    async with asyncio.timeout(90):
        for turn in count():
            if turn % 160 == 0:
                rtc.tell(wav=str(voice))
            await asyncio.sleep(0.05)
            if {(identity, False), (identity, True)} <= set(told):
                break
        known = -1
        while known != len(told):  # what was said twice is told twice
            known = len(told)
            await asyncio.sleep(QUIET_S)


async def test_interim_and_final_words_are_those_of_who_speaks(models: None, tmp_path: Path) -> None:
    voice = microphone(tmp_path / "voice.wav", "the day after tomorrow in the morning", 1.0)
    quiet = microphone(tmp_path / "quiet.wav", 0.5)
    async with (
        running(write_transfer_site(tmp_path)) as (server, client),
        rtc_client(wav=str(quiet)) as ann,
        rtc_client(wav=str(quiet)) as bob,
    ):
        ticket = server.room_registry.invite("desk", WebCallRequest(agent_id=LISTENS, user_ref="ann"))
        opened = server.room_registry.opened(Access("desk"), ticket.room_name)
        opened.room.observe(lines := Lines())
        await join(client, ann, ticket.token)
        await ann.event("sound")
        await join(client, bob, server.room_registry.mint(Grant(room=ticket.room_name, identity="bob")))
        await until(lambda: len(opened.bridge.seats) >= 2)
        await says(bob, voice, lines.told, "bob")
        assert "ann" not in {identity for identity, _ in lines.told}
        before = len(lines.told)
        await says(ann, voice, lines.told, "ann")
        assert "bob" not in {identity for identity, _ in lines.told[before:]}
        assert {len(who) for who in lines.segments.values()} == {1}
        await chat(server, client, ticket.room_name, lines)


async def chat(server: Server, client: TestClient[Any, Any], name: str, lines: Lines) -> None:
    """What bob writes after ann has spoken is his."""
    room, before = server.room_registry.opened(Access("desk"), name).room, len(lines.told)
    assert room.on_text is not None
    room.on_text(room.participants["bob"], "and I write this")
    await until(lambda: ("bob", True) in lines.told[before:])


async def test_who_speaks_is_who_was_heard_most_lately() -> None:
    bridge, ann, bob = Bridge(Pacer(Still()), rate_hz=RATE_HZ), Mouth(), Mouth()
    bridge.add(ann)
    bridge.add(bob)
    frame = tone(440, 0.02, RATE_HZ)

    def heard(now: float, frames: int, **who: float) -> None:
        for leg, gain in ((ann, who.get("ann", 0.0)), (bob, who.get("bob", 0.0))):
            for _ in range(frames):
                assert leg.listener is not None
                sound = (frame * gain).astype(np.int16)
                leg.listener.audio_received(sound, 0, now, concealed=False)

    assert bridge.speaking(0.0) is None
    heard(1.0, 50, bob=1.0)
    assert bridge.speaking(1.0) is bob
    heard(1.5, 50, ann=1.0, bob=0.2)  # her voice in his microphone
    assert bridge.speaking(1.5) is ann
    heard(3.0, 50)
    assert bridge.speaking(3.5) is ann  # the words come when nobody speaks any more
    heard(6.0, 50, bob=1.0)
    assert bridge.speaking(6.0) is bob
    bridge.remove(bob)
    assert bridge.speaking(6.0) is ann


class Mouth:
    """A leg that the test speaks through."""

    rate_hz = RATE_HZ
    held = False

    def __init__(self) -> None:
        self.listener: LegListener | None = None

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        self.listener = listener

    async def hang_up(self) -> None:
        pass

    async def send_dtmf(self, digits: str) -> None:
        pass


class Still:
    """A clock on which nothing happens."""

    def time(self) -> float:
        return 0.0

    def call_at(self, when: float, callback: Any, /) -> Still:
        return self

    def cancel(self) -> None:
        pass
