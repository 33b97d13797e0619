"""Who is in a room and what the others are told; tokens that open it, and those that must not."""

from __future__ import annotations

import base64
import json

import jwt
import pytest

from mediaserver.rooms.active_speakers import Speakers
from mediaserver.rooms.errors import RoomClosed, RoomError, RoomFull, TokenRefused
from mediaserver.rooms.participant import Kind, Participant, ParticipantState, Permissions, Track
from mediaserver.rooms.room import (
    EMPTY_TIMEOUT_S,
    MAX_PARTICIPANTS,
    LeaveReason,
    Message,
    Room,
    RoomObserver,
    RoomState,
    Words,
)
from mediaserver.rooms.tokens import LIFETIME_S, Grant, mint, verify

SECRET = "a-secret-of-thirty-two-characters"
NOW = 1_800_000_000.0


class Told(RoomObserver):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.news: list[tuple[str, str]] = []

    def participant_joined(self, participant: Participant, now: float) -> None:
        self.news.append(("joined", participant.identity))

    def participant_changed(self, participant: Participant, now: float) -> None:
        self.news.append(("changed", participant.identity))

    def participant_left(self, participant: Participant, reason: LeaveReason, now: float) -> None:
        self.news.append((reason.value, participant.identity))

    def words_spoken(self, words: Words, now: float) -> None:
        self.news.append(("words", words.text))

    def message_sent(self, message: Message, now: float) -> None:
        self.news.append(("message", message.body.decode()))

    def room_closed(self, reason: LeaveReason, now: float) -> None:
        self.news.append(("closed", reason.value))


def room() -> tuple[Room, Told]:
    made = Room("call-1", agent=Participant("agent", kind=Kind.AGENT), now=0.0)
    told = Told()
    made.observe(told)
    return made, told


def test_the_agent_is_there_before_anybody_comes() -> None:
    made, _ = room()
    assert list(made.participants) == ["agent"]
    assert made.state is RoomState.EMPTY
    assert made.people == []


def test_everybody_is_told_of_a_person_from_joining_to_leaving() -> None:
    made, told = room()
    person = Participant("ann")
    made.join(person, 1.0)
    made.active(person, 1.1)
    made.publish(person, Track("TR_1", cid="mic"), 1.2)
    made.mute(person, "TR_1", True, 1.3)
    made.leave(person, LeaveReason.CLIENT, 2.0)
    kinds = [kind for kind, _ in told.news]
    assert kinds == ["joined", "changed", "changed", "changed", "client_initiated"]
    assert person.state is ParticipantState.GONE


def test_the_version_of_a_participant_only_rises() -> None:
    made, _ = room()
    person = Participant("ann")
    made.join(person, 1.0)
    seen = []
    for attribute in ("1", "2", "3"):
        made.describe(person, 1.0, attributes={"step": attribute})
        seen.append(person.version)
    assert seen == sorted(set(seen))


def test_muting_what_is_muted_tells_nobody() -> None:
    made, told = room()
    person = Participant("ann")
    made.join(person, 1.0)
    made.publish(person, Track("TR_1"), 1.0)
    made.mute(person, "TR_1", True, 1.0)
    before = len(told.news)
    made.mute(person, "TR_1", True, 1.0)
    made.mute(person, "TR_unknown", True, 1.0)
    assert len(told.news) == before


def test_the_second_of_an_identity_evicts_the_first() -> None:
    made, told = room()
    first, second = Participant("ann"), Participant("ann")
    made.join(first, 1.0)
    assert made.join(second, 2.0) is first
    assert ("duplicate_identity", "ann") in told.news
    assert made.participants["ann"] is second
    made.leave(first, LeaveReason.CLIENT, 3.0)  # its own late goodbye
    assert made.participants["ann"] is second


def test_nobody_takes_the_agents_identity() -> None:
    made, _ = room()
    with pytest.raises(RoomError):
        made.join(Participant("agent"), 1.0)
    assert made.participants["agent"] is made.agent


def test_a_full_room_still_lets_somebody_come_back() -> None:
    made, _ = room()
    for number in range(MAX_PARTICIPANTS - 1):
        made.join(Participant(f"p{number}"), 1.0)
    with pytest.raises(RoomFull):
        made.join(Participant("late"), 1.0)
    assert made.join(Participant("p3"), 1.0) is not None


def test_a_listener_may_not_publish_and_does_not_keep_the_room_open() -> None:
    made, _ = room()
    listener = Participant("boss", permissions=Permissions(publish=False, publish_data=False))
    made.join(listener, 1.0)
    with pytest.raises(RoomError):
        made.publish(listener, Track("TR_1"), 1.0)
    with pytest.raises(RoomError):
        made.send(Message(listener, b"hello"), 1.0)
    assert made.speakers == []
    assert made.people == [listener]


def test_attributes_are_bounded_and_empty_ones_removed() -> None:
    made, _ = room()
    person = Participant("ann", attributes={"a": "1"})
    made.join(person, 1.0)
    made.describe(person, 1.0, attributes={"a": "", "b": "2"})
    assert person.attributes == {"b": "2"}
    with pytest.raises(RoomError):
        made.describe(person, 1.0, attributes={"big": "x" * 70_000})
    with pytest.raises(RoomError):
        made.describe(person, 1.0, metadata="x" * 70_000)
    assert person.attributes == {"b": "2"}


def test_a_closed_room_puts_everybody_out_and_takes_nobody() -> None:
    made, told = room()
    made.join(Participant("ann"), 1.0)
    made.close(LeaveReason.ROOM_CLOSED, 2.0)
    made.close(LeaveReason.ROOM_CLOSED, 2.0)
    assert told.news[-2:] == [("room_closed", "ann"), ("closed", "room_closed")]
    with pytest.raises(RoomClosed):
        made.join(Participant("bob"), 3.0)


def test_a_room_that_nobody_joins_expires() -> None:
    made, _ = room()
    assert not made.expired(EMPTY_TIMEOUT_S)
    assert made.expired(EMPTY_TIMEOUT_S + 1)
    made.join(Participant("ann"), 1.0)
    assert not made.expired(EMPTY_TIMEOUT_S + 1)


# Tokens ----------------------------------------------------------------------------------------------------


def grant() -> Grant:
    return Grant(room="r1", identity="ann", name="Ann", metadata="{}", attributes={"user": "7"})


def test_a_token_says_what_was_put_into_it() -> None:
    token = mint(grant(), key="devkey", secret=SECRET)
    assert verify(token, key="devkey", secret=SECRET) == Grant(
        room="r1",
        identity="ann",
        name="Ann",
        metadata="{}",
        attributes={"user": "7"},
        permissions=Permissions(),
    )


def permissions_by(**video: object) -> Permissions:
    """The permissions of a token that LiveKit's own tools made with these claims."""
    claims = {**GOOD, "video": {"roomJoin": True, "room": "r1", **video}}
    return verify(jwt.encode(claims, SECRET, algorithm="HS256"), key="devkey", secret=SECRET).permissions


def test_a_token_of_livekits_own_tools_is_understood() -> None:
    given = permissions_by(canPublish=False, canSubscribe=True, hidden=True)
    assert given == Permissions(publish=False, update_own_metadata=False, hidden=True)


def test_a_token_for_the_camera_alone_may_not_publish() -> None:
    assert not permissions_by(canPublishSources=["camera"]).publish


def unsigned(claims: dict[str, object]) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(claims)}."


GOOD = {"iss": "devkey", "sub": "ann", "exp": 4_000_000_000, "video": {"roomJoin": True, "room": "r1"}}


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("", id="empty"),
        pytest.param("nonsense", id="no token at all"),
        pytest.param("x" * 100_000, id="oversized"),
        pytest.param(unsigned(GOOD), id="alg none"),
        pytest.param(jwt.encode(GOOD, "another-secret-of-32-characters!!", algorithm="HS256"), id="forged"),
        pytest.param(jwt.encode(GOOD, SECRET * 2, algorithm="HS512"), id="another algorithm"),
        pytest.param(jwt.encode({**GOOD, "iss": "other"}, SECRET, algorithm="HS256"), id="another issuer"),
        pytest.param(jwt.encode({**GOOD, "nbf": 3_900_000_000}, SECRET, algorithm="HS256"), id="not yet"),
        pytest.param(jwt.encode({**GOOD, "sub": ""}, SECRET, algorithm="HS256"), id="nobody"),
        pytest.param(jwt.encode({**GOOD, "video": {}}, SECRET, algorithm="HS256"), id="no grant"),
        pytest.param(jwt.encode({**GOOD, "video": "all"}, SECRET, algorithm="HS256"), id="a grant of text"),
        pytest.param(
            jwt.encode({**GOOD, "video": {"roomJoin": True}}, SECRET, algorithm="HS256"), id="no room"
        ),
        pytest.param(
            jwt.encode({k: v for k, v in GOOD.items() if k != "exp"}, SECRET, algorithm="HS256"), id="eternal"
        ),
        pytest.param(jwt.encode({**GOOD, "name": 7}, SECRET, algorithm="HS256"), id="a name of a number"),
    ],
)
def test_a_token_that_is_not_ours_opens_nothing(token: str) -> None:
    with pytest.raises(TokenRefused):
        verify(token, key="devkey", secret=SECRET)


def test_a_token_is_good_for_a_quarter_of_an_hour() -> None:
    expired = mint(grant(), key="devkey", secret=SECRET, wall_s=NOW - LIFETIME_S - 60 - NOW % 1)
    with pytest.raises(TokenRefused, match="expired"):
        verify(mint(grant(), key="devkey", secret=SECRET, wall_s=1_000_000_000), key="devkey", secret=SECRET)
    claims = jwt.decode(expired, options={"verify_signature": False})
    assert claims["exp"] - claims["nbf"] == 900


def test_without_a_secret_there_are_no_rooms() -> None:
    with pytest.raises(TokenRefused):
        verify(jwt.encode(GOOD, SECRET, algorithm="HS256"), key="devkey", secret="")


# Who speaks ------------------------------------------------------------------------------------------------


def test_a_person_speaks_from_the_first_loud_moment_until_a_pause_that_is_no_pause_between_words() -> None:
    ann, bob, speakers = Participant("ann"), Participant("bob"), Speakers()

    def look(*levels: float) -> list[tuple[str, bool]]:
        changes = speakers.look(zip((ann, bob), levels, strict=False))
        return [(each.participant.identity, each.active) for each in changes]

    assert look(0.001, 0.0) == []
    assert look(0.2, 0.0) == [("ann", True)]
    assert look(0.1, 0.3) == [("bob", True)]
    assert look(0.0, 0.3) == look(0.0, 0.3) == []
    assert look(0.1, 0.3) == []
    assert [look(0.0, 0.3) for _ in range(3)] == [[], [], [("ann", False)]]
    assert look(0.0) == []  # bob is gone
    assert look(0.0, 0.3) == [("bob", True)]
