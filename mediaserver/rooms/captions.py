"""A conversation as its room sees it: the words, the agent's state, and how long each answer took."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from mediaserver.rooms.participant import AGENT_STATE, Participant
from mediaserver.rooms.room import Room, Words
from pipeline.leg import Leg
from pipeline.result import SessionObserver, TurnRecord
from pipeline.transcript import Role, TranscriptEntry

AGENT_STATES: Mapping[str, str] = {
    "opening": "thinking",
    "listening": "listening",
    "hearing": "listening",
    "endpointing": "thinking",
    "replying": "thinking",
    "speaking": "speaking",
    "overlapping": "speaking",
    "overlapped": "speaking",
    "keying": "listening",
    "leaving": "speaking",
    "closing": "speaking",
}
"""The value of `lk.agent.state`, as LiveKit's clients know it, by the state of turn-taking."""


class RoomCaptions(SessionObserver):
    """Shows a conversation to everybody in `room`, the agent's words as they are heard; `record` keeps its
    turns and its transcript."""

    follows_words = True

    def __init__(self, room: Room, record: SessionObserver) -> None:
        self.speaking: Callable[[float], Participant | None] = lambda now: None
        """Returns the participant who speaks; set by the owner of the room."""
        self.participant_of: Callable[[Leg], Participant | None] = lambda leg: None
        """Returns the participant behind a leg, also one who has left; set by the owner of the room."""
        self._room = room
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._segments = 0
        self._open: dict[Role, tuple[str, Participant]] = {}  # the segment being spoken, with its speaker
        self._wrote: tuple[Participant, str] | None = None  # the last text to the agent

    def written(self, who: Participant, text: str) -> None:
        """Notes that `who` wrote `text` to the agent; the transcript has it as the caller's words."""
        self._wrote = who, text

    def state_changed(self, state: str, now: float) -> None:
        """Sets the agent's attribute `lk.agent.state`."""
        self._record.state_changed(state, now)
        shown = AGENT_STATES.get(state)
        if shown is not None and self._room.agent.attributes.get(AGENT_STATE) != shown:
            self._room.describe(self._room.agent, now, attributes={AGENT_STATE: shown})

    def words_heard(self, text: str, now: float) -> None:
        """Sends the interim transcript of the caller to the room."""
        self._say(Role.CALLER, text, now, final=False)

    def agent_speaking(self, text: str, now: float) -> None:
        """Sends the words of the agent that have begun to be heard to the room."""
        self._say(Role.AGENT, text, now, final=False)

    def transcript_added(self, entry: TranscriptEntry) -> None:
        """Records the entry and sends it to the room as final."""
        self._record.transcript_added(entry)
        self._say(entry.role, entry.text, self._loop.time(), final=True, interrupted=entry.interrupted)

    def person_said(self, leg: Leg, entry: TranscriptEntry) -> None:
        """Records the entry and sends it to the room as the words of who was behind the leg."""
        speaker = self.participant_of(leg)
        if speaker is None:
            self.transcript_added(entry)
            return
        self._record.transcript_added(entry)
        self._segments += 1
        words = Words(speaker, f"SG_{self._segments}", entry.text, final=True)
        self._room.spoken(words, self._loop.time())

    def turn_completed(self, turn: TurnRecord) -> None:
        """Records the turn and sends its latency to the room. Words of an interrupted agent that nobody heard
        to their half are in no transcript, and are taken back."""
        self._record.turn_completed(turn)
        if turn.interrupted and Role.AGENT in self._open:
            self._say(Role.AGENT, "", self._loop.time(), final=True, interrupted=True)
        if turn.latency is not None:
            self._room.turn_taken(turn.latency.voice_to_voice_ms, self._loop.time())

    def _say(self, role: Role, text: str, now: float, *, final: bool, interrupted: bool = False) -> None:
        """Sends a piece of a segment, which belongs to its first speaker to its end."""
        if role not in self._open:
            self._segments += 1
            self._open[role] = f"SG_{self._segments}", self._speaker(role, text, now)
        segment, speaker = self._open[role]
        if final:
            del self._open[role]
        self._room.spoken(Words(speaker, segment, text, final=final, interrupted=interrupted), now)

    def _speaker(self, role: Role, text: str, now: float) -> Participant:
        wrote, speakers = self._wrote, self._room.speakers
        if role is not Role.CALLER or not speakers:
            return self._room.agent
        if wrote is not None and wrote[1].strip() == text:
            self._wrote = None
            return wrote[0]
        speaking = self.speaking(now) if len(speakers) > 1 else None
        return speaking if speaking in speakers else speakers[0]
