"""Words to the agent of a phone call: by the API, and written by a supervisor who has joined."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mediaserver.calls.journal import Journal
from mediaserver.calls.phone_call import PhoneCall
from mediaserver.calls.services import CallProfile, CallServices
from mediaserver.errors import Conflict
from mediaserver.rooms.open_room import OpenRoom
from mediaserver.rooms.participant import Participant
from mediaserver.rooms.supervisors import Supervisors
from mediaserver.telemetry.metrics import Metrics
from pipeline.media.bridge import Bridge
from pipeline.media.pacer import Pacer
from pipeline.media.recording import RecordingWriter
from pipeline.media.who_hears import Role
from tests.support.claims import claim
from tests.support.speech.bridged import RATE_HZ, ByHand

ANYBODY = cast(Any, None)


class Told:
    """An agent's conversation that keeps what supervisors tell it."""

    def __init__(self) -> None:
        self.whispers: list[str] = []

    def advise(self, text: str) -> bool:
        self.whispers.append(text)
        return True


class Node:
    """A node with one phone call; stands for its registry of rooms."""

    def __init__(self, directory: Path) -> None:
        services = CallServices(
            store=cast(Any, None), journal=Journal(), metrics=Metrics(), recorder=RecordingWriter(),
            recordings=directory, lease_ms=1000,
        )  # fmt: skip
        profile = CallProfile(engines=cast(Any, None), language="en", greeting="", records=False)
        self.call, self.agent = PhoneCall(claim(), profile, services), Told()
        self.call.conversation._agent = cast(Any, self.agent)
        bridge = Bridge(Pacer(ByHand()), rate_hz=RATE_HZ)
        self.call.leg = cast(Any, SimpleNamespace(bridge=lambda: bridge))
        self.adopted: list[OpenRoom] = []

    def phone_call(self, call_id: str) -> PhoneCall | None:
        return self.call if call_id == "call-1" else None

    def __contains__(self, name: str) -> bool:
        return bool(self.adopted) and name == "call-1"

    def opened(self, access: Any, name: str) -> OpenRoom:
        return self.adopted[0]

    def adopt(self, opened: OpenRoom) -> Any:
        self.adopted.append(opened)
        return lambda: None

    def mint(self, grant: Any) -> str:
        return "token"

    def server_url(self) -> str:
        return "ws://127.0.0.1"


async def test_a_whisper_needs_no_bridge(tmp_path: Path) -> None:
    node = Node(tmp_path)
    supervisors = Supervisors(cast(Any, node))
    assert supervisors.of_call(ANYBODY, "call-1") == []
    supervisors.whisper(ANYBODY, "call-1", "offer Saturday")
    assert node.agent.whispers == ["offer Saturday"]
    assert node.adopted == []
    node.call.leg = None
    with pytest.raises(Conflict):
        supervisors.of_call(ANYBODY, "call-1")
    with pytest.raises(Conflict):
        supervisors.whisper(ANYBODY, "call-1", "too late")


async def test_what_a_supervisor_writes_is_a_whisper_in_a_phone_call_too(tmp_path: Path) -> None:
    node = Node(tmp_path)
    Supervisors(cast(Any, node)).invite(ANYBODY, "call-1", "whisper", identity="boss", name="")
    room = node.adopted[0].room
    for who in (
        Participant("boss", supervises=True, role=Role.WHISPER),
        Participant("ear", supervises=True, role=Role.MONITOR),
        Participant("ann"),
    ):
        room.join(who, 0.0)
        assert room.on_text is not None
        room.on_text(who, f"from {who.identity}")
    assert node.agent.whispers == ["from boss"]
