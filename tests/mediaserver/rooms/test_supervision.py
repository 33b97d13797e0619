"""Tokens of supervisors, and who sees them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jwt
import pytest
from livekit.protocol import rtc

from mediaserver.admin.access import Access
from mediaserver.calls.take_over import TakeOver, TakeOverEnd
from mediaserver.errors import Conflict, NotFound
from mediaserver.rooms.errors import RoomError, TokenRefused
from mediaserver.rooms.livekit import session
from mediaserver.rooms.open_room import OpenRoom
from mediaserver.rooms.participant import Kind, Participant, Track
from mediaserver.rooms.participant_leg import ParticipantLeg
from mediaserver.rooms.registry import RoomRegistry
from mediaserver.rooms.room import LeaveReason, Room, Words
from mediaserver.rooms.supervision import GONE_S, LOST_S, MUTED_S, REFUSED
from mediaserver.rooms.tokens import Grant, mint, verify
from mediaserver.rooms.whip_events import CHANNEL, TalkEvents
from pipeline.media.who_hears import Role
from tests.support.node.node import Node, running
from tests.support.webrtc.rooms import COMPANY, invite, write_web_site

KEY, SECRET = "devkey", "a-secret-of-thirty-two-characters"


def changed(token: str, **claims: Any) -> str:
    told = jwt.decode(token, SECRET, algorithms=["HS256"], issuer=KEY)
    return jwt.encode(told | claims, SECRET, algorithm="HS256")


def test_a_role_is_in_the_signed_part_of_a_token() -> None:
    token = mint(Grant(room="r", identity="boss", role=Role.WHISPER), key=KEY, secret=SECRET)
    assert verify(token, key=KEY, secret=SECRET).role is Role.WHISPER
    plain = mint(
        Grant(room="r", identity="ann", attributes={"supervisorRole": "barge"}), key=KEY, secret=SECRET
    )
    assert verify(plain, key=KEY, secret=SECRET).role is None


@pytest.mark.parametrize("role", ["agent", "caller", "paused_agent", "owner", "", 1, ["monitor"], {}])
def test_a_token_with_a_role_that_is_no_supervisors_is_refused(role: Any) -> None:
    token = mint(Grant(room="r", identity="boss"), key=KEY, secret=SECRET)
    with pytest.raises(TokenRefused):
        verify(changed(token, supervisorRole=role), key=KEY, secret=SECRET)


def test_a_supervisor_and_a_caller_cannot_put_each_other_out() -> None:
    room = Room("r", agent=Participant("agent", kind=Kind.AGENT), now=0.0)
    room.join(Participant("ann"), 0.0)
    with pytest.raises(RoomError):
        room.join(Participant("ann", supervises=True, role=Role.MONITOR), 0.0)
    room.join(boss := Participant("boss", supervises=True, role=Role.MONITOR), 0.0)
    with pytest.raises(RoomError):
        room.join(Participant("boss"), 0.0)
    assert boss not in room.speakers  # the call does not go on for them


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(write_web_site(tmp_path)) as running_site:
        yield running_site


def room_of(web: Node) -> tuple[RoomRegistry, OpenRoom]:
    registry = web[0].room_registry
    return registry, registry.opened(Access(COMPANY), invite(web[0]).room_name)


def token_of(registry: RoomRegistry, opened: OpenRoom, role: Role | None) -> str:
    return registry.mint(Grant(room=opened.room.name, identity="boss", role=role))


async def join(registry: RoomRegistry, opened: OpenRoom, token: str) -> ParticipantLeg:
    """Joins, with media that is up."""
    leg = (await registry.enter(token, resumable=True)).leg
    assert leg.on_media is not None
    leg.on_media(True, 0.0)
    return leg


async def test_a_refreshed_token_is_a_supervisors_too(web: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "REFRESH_S", 0.0)
    registry, opened = room_of(web)
    query = {"access_token": token_of(registry, opened, Role.BARGE)}
    refreshed = ""
    async with asyncio.timeout(20), web[1].ws_connect("/rtc", params=query, max_msg_size=0) as socket:
        while not refreshed:
            refreshed = rtc.SignalResponse.FromString(await socket.receive_bytes()).refresh_token
    boss = (await registry.enter(refreshed)).leg.participant
    assert (boss.role, boss.supervises, boss in opened.room.speakers) == (Role.BARGE, True, False)


async def test_who_joins_again_has_the_role_given_last(web: Node) -> None:
    registry, opened = room_of(web)
    token = token_of(registry, opened, Role.BARGE)
    leg = await join(registry, opened, token)
    opened.supervision.change(leg.participant, Role.WHISPER, 0.0)
    again = await join(registry, opened, token)
    seat = opened.bridge.seat(again)
    assert again is not leg
    assert seat is not None
    assert (again.participant.role, seat.role) == (Role.WHISPER, Role.WHISPER)


async def test_a_token_takes_a_call_over_once(web: Node) -> None:
    registry, opened = room_of(web)
    token = token_of(registry, opened, Role.TAKE_OVER)

    def speak(leg: ParticipantLeg) -> str:
        """Why the take-over at the first sound was refused, "" for none."""
        seat = opened.bridge.seat(leg)
        assert seat is not None
        seat.heard_s = asyncio.get_running_loop().time()
        opened.supervision.look(seat.heard_s)
        return leg.participant.attributes.get(REFUSED, "")

    silent = await join(registry, opened, token)
    again = await join(registry, opened, token)
    assert silent is not again
    assert speak(again)  # nobody talks in this room yet
    assert not speak(await join(registry, opened, token))


async def test_who_was_put_out_joins_again_with_another_token_only(web: Node) -> None:
    registry, opened = room_of(web)
    token = token_of(registry, opened, Role.MONITOR)
    await registry.enter(registry.mint(Grant(room=opened.room.name, identity="ann")))
    await registry.remove_participant(opened, await join(registry, opened, token))
    with pytest.raises(TokenRefused):
        await registry.enter(token)
    opened.supervision.invited("boss", Role.BARGE)
    assert (await join(registry, opened, token)).participant.role is Role.BARGE


async def test_the_room_of_a_phone_call_is_for_its_supervisors_alone(web: Node) -> None:
    registry, opened = room_of(web)
    opened.phone = cast(Any, SimpleNamespace(conversation=None))
    with pytest.raises(NotFound):
        registry.opened(Access(COMPANY), opened.room.name)
    assert opened not in registry.rooms_of(Access(COMPANY))
    with pytest.raises(TokenRefused):
        await registry.enter(token_of(registry, opened, None))
    await registry.enter(token_of(registry, opened, Role.MONITOR))
    opened.phone = None


class Taken:
    """A conversation of which the test says who has taken it over; its recogniser is never asked."""

    def __init__(self) -> None:
        self.taken_over: TakeOver | None = None
        self.profile = SimpleNamespace(engines=SimpleNamespace(stt=None), language="en")
        self.began = 0.0

    def take_over(self, taken: TakeOver) -> None:
        self.taken_over = taken
        taken.begin()


def call_of(conversation: Taken) -> Any:
    record = SimpleNamespace(supervised=lambda identity, role: None)
    return SimpleNamespace(conversation=conversation, cdr=record, hang_up=lambda: None)


async def taken_over(web: Node) -> tuple[OpenRoom, ParticipantLeg, TakeOver]:
    """A room that its supervisor has taken over; the last sound came at 100 s."""
    registry, opened = room_of(web)
    conversation = Taken()
    opened.call = call_of(conversation)
    leg = await join(registry, opened, token_of(registry, opened, Role.MONITOR))
    seat = opened.bridge.seat(leg)
    assert seat is not None
    seat.heard_s = 100.0
    opened.supervision.change(leg.participant, Role.TAKE_OVER, 100.0)
    assert conversation.taken_over is not None
    return opened, leg, conversation.taken_over


async def test_a_role_changes_also_while_the_call_is_being_handed_back(web: Node) -> None:
    opened, leg, taken = await taken_over(web)
    opened.supervision.change(leg.participant, Role.MONITOR, 100.0)
    opened.supervision.change(leg.participant, Role.BARGE, 100.0)
    seat = opened.bridge.seat(leg)
    assert seat is not None
    assert (seat.role, leg.participant.role) == (Role.BARGE, Role.BARGE)
    with pytest.raises(Conflict):
        opened.supervision.change(leg.participant, Role.TAKE_OVER, 100.0)
    taken.undo()
    assert (seat.role, leg.participant.role) == (Role.BARGE, Role.BARGE)


def ended(taken: TakeOver) -> str:
    return str(taken.data()["ended"])


async def test_a_muted_supervisor_who_is_lost_has_handed_the_call_back(
    web: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, leg, taken = await taken_over(web)
    opened.room.publish(leg.participant, Track("TR_1", muted=True), 100.0)
    monkeypatch.setattr(ParticipantLeg, "heard_s", 105.0)  # the last check of the connection
    opened.supervision.look(105.0 + LOST_S)
    assert ended(taken) == ""
    opened.supervision.look(105.1 + GONE_S)
    assert ended(taken) == TakeOverEnd.LOST


async def test_nobody_keeps_a_caller_in_silence(web: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, leg, taken = await taken_over(web)
    monkeypatch.setattr(ParticipantLeg, "heard_s", 1000.0)
    opened.room.publish(leg.participant, Track("TR_1", muted=True), 100.0)
    opened.supervision.look(101.0)
    opened.supervision.look(101.0 + MUTED_S)
    opened.room.mute(leg.participant, "TR_1", False, 170.0)
    seat = opened.bridge.seat(leg)
    assert seat is not None
    seat.heard_s = 170.0
    opened.supervision.look(170.0)
    opened.room.mute(leg.participant, "TR_1", True, 171.0)
    opened.supervision.look(171.0)
    opened.supervision.look(171.0 + MUTED_S)
    assert ended(taken) == ""
    opened.supervision.look(171.1 + MUTED_S)
    assert ended(taken) == TakeOverEnd.LOST


class Ears:
    """Notes that it was closed."""

    made: list[Ears]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.closed = False
        self.made.append(self)

    def push(self, frame: Any, now: float) -> None: ...

    async def close(self) -> None:
        self.closed = True


async def test_a_whisperer_is_heard_after_a_blip_and_not_after_the_end(
    web: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Ears] = []
    Ears.made = made
    monkeypatch.setattr("mediaserver.rooms.supervision.PersonTranscript", Ears)
    registry, opened = room_of(web)
    opened.call = call_of(Taken())
    token = token_of(registry, opened, Role.WHISPER)
    leg = await join(registry, opened, token)
    assert leg.on_media is not None
    leg.on_media(False, 1.0)
    leg.on_media(True, 2.0)
    seat = opened.bridge.seat(leg)
    assert seat is not None
    assert seat.follower is not None
    await join(registry, opened, token)  # puts the earlier connection out
    await asyncio.sleep(0)
    assert [each.closed for each in made] == [True, True, False]
    await opened.remove_participant(LeaveReason.ROOM_CLOSED, 3.0)
    assert [each.closed for each in made] == [True, True, True]


def test_a_whip_client_tells_the_words_of_a_supervisor_from_its_own() -> None:
    room = Room("r", agent=Participant("agent", kind=Kind.AGENT), now=0.0)
    sent: list[str] = []
    peer = SimpleNamespace(channels={CHANNEL}, send=lambda label, body: sent.append(body))
    ann, boss = Participant("ann"), Participant("boss", supervises=True, role=Role.MONITOR)
    TalkEvents(room, ann, cast(Any, peer))
    for number, speaker in enumerate((ann, boss, room.agent)):
        room.spoken(Words(speaker, f"SG_{number}", "yes", final=True), 1.0)
    assert [json.loads(each)["speaker"] for each in sent] == ["caller", "colleague", "agent"]
