"""Tokens of supervisors, and who sees them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import jwt
import pytest

from mediaserver.rooms.errors import RoomError, TokenRefused
from mediaserver.rooms.livekit import messages
from mediaserver.rooms.participant import Kind, Participant
from mediaserver.rooms.room import Room, Words
from mediaserver.rooms.tokens import Grant, mint, verify
from mediaserver.rooms.whip_events import CHANNEL, TalkEvents
from pipeline.media.who_hears import Role

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


def test_a_whip_client_tells_the_words_of_a_supervisor_from_its_own() -> None:
    room = Room("r", agent=Participant("agent", kind=Kind.AGENT), now=0.0)
    sent: list[str] = []
    peer = SimpleNamespace(channels={CHANNEL}, send=lambda label, body: sent.append(body))
    ann, boss = Participant("ann"), Participant("boss", supervises=True, role=Role.MONITOR)
    TalkEvents(room, ann, cast(Any, peer))
    for number, speaker in enumerate((ann, boss, room.agent)):
        room.spoken(Words(speaker, f"SG_{number}", "yes", final=True), 1.0)
    assert [json.loads(each)["speaker"] for each in sent] == ["caller", "colleague", "agent"]


def test_a_supervisor_who_hides_again_is_gone_for_others() -> None:
    info = messages.vanished(Participant("boss")).update.participants[0]
    assert info.state == info.DISCONNECTED
