"""What a room shows of a conversation: whose words they are, and which piece of them replaces which."""

from __future__ import annotations

import pytest

from mediaserver.rooms.captions import RoomCaptions
from mediaserver.rooms.participant import AGENT_STATE, Kind, Participant
from mediaserver.rooms.room import LeaveReason, Room, RoomObserver, Words
from pipeline.leg import Leg
from pipeline.media.who_hears import Role as Hearer
from pipeline.result import SessionObserver, TurnRecord
from pipeline.transcript import Role, TranscriptEntry
from tests.support.speech.bridged import FakeLeg


class Seen(RoomObserver, SessionObserver):
    """Keeps the words that the room shows, and the transcript that the call's record gets."""

    def __init__(self) -> None:
        self.words: list[Words] = []
        self.entries: list[TranscriptEntry] = []

    def words_spoken(self, words: Words, now: float) -> None:
        self.words.append(words)

    def transcript_added(self, entry: TranscriptEntry) -> None:
        self.entries.append(entry)


def said(role: Role, text: str) -> TranscriptEntry:
    return TranscriptEntry(role, text, 0, 100)


def opened(*people: Participant) -> tuple[RoomCaptions, Room, Seen]:
    room, seen = Room("call-1", agent=Participant("agent", kind=Kind.AGENT), now=0.0), Seen()
    room.observe(seen)
    for person in people:
        room.join(person, 0.0)
    return RoomCaptions(room, seen), room, seen


async def test_interim_words_and_their_final_are_one_segment_of_its_first_speaker() -> None:
    ann, bo = Participant("ann"), Participant("bo")
    captions, _, seen = opened(ann, bo)
    captions.speaking = lambda now: bo
    captions.words_heard("I would", 1.0)
    captions.speaking = lambda now: ann
    captions.transcript_added(said(Role.CALLER, "I would like"))
    captions.words_heard("And", 2.0)
    assert [(each.speaker, each.segment, each.final) for each in seen.words] == [
        (bo, "SG_1", False),
        (bo, "SG_1", True),
        (ann, "SG_2", False),
    ]
    assert [entry.text for entry in seen.entries] == ["I would like"]


async def test_words_that_were_written_are_the_writers() -> None:
    ann, bo = Participant("ann"), Participant("bo")
    captions, room, seen = opened(ann, bo)
    captions.speaking = lambda now: ann
    captions.written(bo, " Yes. ")
    captions.transcript_added(said(Role.CALLER, "Yes."))
    captions.transcript_added(said(Role.CALLER, "Yes."))
    captions.transcript_added(said(Role.AGENT, "Fine."))
    assert [each.speaker for each in seen.words] == [bo, ann, room.agent]


async def test_words_of_people_without_the_agent_are_of_who_was_behind_the_leg() -> None:
    ann, hidden = Participant("ann"), Participant("ear", supervises=True, role=Hearer.MONITOR)
    boss, second = (Participant(name, supervises=True) for name in ("boss", "second"))
    captions, room, seen = opened(ann, hidden, boss, second)
    people: dict[Leg, Participant] = {FakeLeg(): each for each in (boss, second, ann)}
    captions.participant_of = people.get
    room.leave(boss, LeaveReason.CLIENT, 1.0)  # the last words are recognised later
    for leg, each in people.items():
        captions.person_said(leg, said(Role.CALLER if each is ann else Role.COLLEAGUE, each.identity))
    assert [(each.speaker, each.text) for each in seen.words] == [
        (boss, "boss"), (second, "second"), (ann, "ann"),
    ]  # fmt: skip
    assert [entry.text for entry in seen.entries] == ["boss", "second", "ann"]
    captions.transcript_added(said(Role.COLLEAGUE, "of nobody known"))
    assert seen.words[-1].speaker is room.agent


async def test_words_that_nobody_heard_to_their_half_are_taken_back() -> None:
    captions, _, seen = opened(Participant("ann"))
    captions.agent_speaking("Well", 1.0)
    captions.turn_completed(turn(interrupted=False))
    captions.turn_completed(turn(interrupted=True))
    captions.agent_speaking("Yes", 2.0)
    assert [(each.segment, each.text, each.final) for each in seen.words] == [
        ("SG_1", "Well", False),
        ("SG_1", "", True),
        ("SG_2", "Yes", False),
    ]


def turn(*, interrupted: bool) -> TurnRecord:
    return TurnRecord(1, "", "", 0.0, "", interrupted, 0, 0, None)


@pytest.mark.parametrize(
    ("state", "shown"), [("listening", "listening"), ("replying", "thinking"), ("leaving", "speaking")]
)
async def test_the_state_of_turn_taking_is_the_agents(state: str, shown: str) -> None:
    captions, room, _ = opened()
    captions.state_changed(state, 1.0)
    captions.state_changed("no state of LiveKit's", 2.0)
    assert room.agent.attributes[AGENT_STATE] == shown
