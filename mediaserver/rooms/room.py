"""A room: its agent, its participants, and what each of them is notified of.

Everything is synchronous and on the event loop's thread; observers (`RoomObserver`), such as the signalling
of a participant, are notified at once. A room knows nothing of protobufs, HTTP or WebRTC.

    room = Room("call-1", agent=Participant("agent-1", kind=Kind.AGENT), now=...)
    room.observe(signalling)
    evicted = room.join(participant, now)       # an earlier participant of the same identity is removed first
    room.active(participant, now)               # its media is up
    room.leave(participant, LeaveReason.CLIENT, now)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from mediaserver.rooms.active_speakers import Speaking
from mediaserver.rooms.errors import RoomClosed, RoomError, RoomFull
from mediaserver.rooms.participant import (
    AGENT_STATE,
    MAX_ATTRIBUTES_BYTES,
    Kind,
    Participant,
    ParticipantState,
    Track,
    check_description,
    new_sid,
)

MAX_PARTICIPANTS = 50
"""A call with listeners, not a conference hall: every participant is notified of every other."""

EMPTY_TIMEOUT_S = 900.0
"""A room that nobody has joined is closed when the token for it expires (15 minutes)."""


class RoomState(Enum):
    """EMPTY: nobody has joined yet; OPEN: a participant has joined; CLOSED: final."""

    EMPTY = "empty"
    OPEN = "open"
    CLOSED = "closed"


class LeaveReason(Enum):
    """Why a participant left: the names of LiveKit's `DisconnectReason`, and ENCRYPTED: the client encrypts
    end to end, so that the agent cannot hear it."""

    CLIENT = "client_initiated"
    DUPLICATE_IDENTITY = "duplicate_identity"
    SERVER_SHUTDOWN = "server_shutdown"
    REMOVED = "participant_removed"
    ROOM_CLOSED = "room_closed"
    ROOM_DELETED = "room_deleted"
    STATE_MISMATCH = "state_mismatch"
    JOIN_FAILURE = "join_failure"
    SIGNAL_CLOSE = "signal_close"
    MEDIA_FAILURE = "media_failure"
    ENCRYPTED = "encrypted"


@dataclass(frozen=True, slots=True)
class Words:
    """A piece of the transcript. The text of a `segment` grows until it is `final`; a later piece of the same
    segment replaces the earlier."""

    speaker: Participant
    segment: str
    text: str
    final: bool
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """Data from one participant to others. `to`: identities, () for all; `body`: the message in the sender's
    protocol (for LiveKit a serialised DataPacket)."""

    sender: Participant
    body: bytes
    reliable: bool = True
    to: tuple[str, ...] = ()


class RoomObserver:
    """The observer of a room, called on the loop: methods return at once and never raise. The methods of this
    base class do nothing."""

    def participant_joined(self, participant: Participant, now: float) -> None:
        """Takes a participant who has joined (JOINED or later)."""

    def participant_changed(self, participant: Participant, now: float) -> None:
        """Takes a change of state, name, metadata, attributes, tracks or mute: `version` has gone up."""

    def participant_left(self, participant: Participant, reason: LeaveReason, now: float) -> None:
        """Takes a participant who has left, with the reason."""

    def room_changed(self, now: float) -> None:
        """Takes a change of the room's metadata."""

    def muted_remotely(self, participant: Participant, sid: str, now: float) -> None:
        """Takes that the server has muted the track `sid` of a participant."""

    def words_spoken(self, words: Words, now: float) -> None:
        """Takes a piece of the transcript, interim or final."""

    def turn_taken(self, latency_ms: float, now: float) -> None:
        """Takes the latency of a turn: milliseconds from the person's last sound to the agent's first."""

    def message_sent(self, message: Message, now: float) -> None:
        """Takes data of a participant; the observer checks whether its own participant is addressed."""

    def speakers_changed(self, changes: Sequence[Speaking], now: float) -> None:
        """Takes the participants who began or stopped speaking. Not the agent, whose state attribute shows
        when it speaks."""

    def room_closed(self, reason: LeaveReason, now: float) -> None:
        """Takes the end of the room; no other method is called after."""


class Room:
    """One room. `agent` is a participant from the start, without a connection."""

    def __init__(
        self,
        name: str,
        *,
        agent: Participant,
        now: float,
        metadata: str = "",
        empty_timeout_s: float = EMPTY_TIMEOUT_S,
    ) -> None:
        self.name = name
        self.sid = new_sid("RM")
        self.metadata = metadata
        self.agent = agent
        self.agent_track = Track(new_sid("TR"), name="agent_audio")
        self.state = RoomState.EMPTY
        self.created_at_ms = int(time.time() * 1000)
        self.on_text: Callable[[Participant, str], None] | None = None
        """Takes a text message of a participant to the agent (chat); set by the owner of the conversation."""
        self.methods: dict[str, Callable[[Participant, str], str]] = {}
        """The RPC methods of the agent: payload in, payload out; they raise `RoomError`."""
        self._created_s = now
        self._empty_timeout_s = empty_timeout_s
        self._participants: dict[str, Participant] = {agent.identity: agent}
        self._observers: list[RoomObserver] = []
        agent.tracks[self.agent_track.sid] = self.agent_track
        agent.attributes.setdefault(AGENT_STATE, "initializing")
        agent.become(ParticipantState.ACTIVE)

    @property
    def participants(self) -> Mapping[str, Participant]:
        """Every participant by identity, the agent included."""
        return self._participants

    @property
    def people(self) -> list[Participant]:
        """Every participant but the agent."""
        return [each for each in self._participants.values() if each.kind is not Kind.AGENT]

    @property
    def speakers(self) -> list[Participant]:
        """The participants who may publish, without the agent and supervisors: the room ends with the last of
        them."""
        return [each for each in self.people if each.permissions.publish and not each.supervises]

    def observe(self, observer: RoomObserver) -> None:
        """Notifies `observer` from now on."""
        self._observers.append(observer)

    def forget(self, observer: RoomObserver) -> None:
        """Stops notifying `observer`; an unknown one is ignored."""
        if observer in self._observers:
            self._observers.remove(observer)

    def join(self, participant: Participant, now: float) -> Participant | None:
        """Adds `participant`; returns the earlier participant of the same identity, who was removed for it.

        Raises `RoomClosed`, `RoomFull`, `RoomError` for the agent's own identity."""
        if self.state is RoomState.CLOSED:
            raise RoomClosed("the room is closed")
        before = self._participants.get(participant.identity)
        if before is self.agent:
            raise RoomError("that identity is the agent's")
        if before is not None and before.kind is Kind.PHONE:
            raise RoomError("that identity is a telephone's")
        if before is not None and before.supervises is not participant.supervises:
            raise RoomError("that identity is somebody else's in this call")
        if before is None and len(self._participants) >= MAX_PARTICIPANTS:
            raise RoomFull(f"the room has {MAX_PARTICIPANTS} participants")
        if before is not None:
            self._remove(before, LeaveReason.DUPLICATE_IDENTITY, now)
        self.state = RoomState.OPEN
        participant.become(ParticipantState.JOINED)
        participant.joined_at_ms = int(time.time() * 1000)
        self._participants[participant.identity] = participant
        for observer in tuple(self._observers):
            observer.participant_joined(participant, now)
        return before

    def active(self, participant: Participant, now: float) -> None:
        """Marks the participant's media as up, for the first time or again."""
        if participant.state is ParticipantState.JOINED:
            participant.become(ParticipantState.ACTIVE)
            self.changed(participant, now)

    def media_lost(self, participant: Participant, now: float) -> None:
        """Marks the participant's media as down; the client may resume."""
        if participant.state is ParticipantState.ACTIVE:
            participant.become(ParticipantState.JOINED)
            self.changed(participant, now)

    def leave(self, participant: Participant, reason: LeaveReason, now: float) -> None:
        """Removes the participant. Does nothing for one who was removed before."""
        if self._participants.get(participant.identity) is participant:
            self._remove(participant, reason, now)

    def describe(
        self,
        participant: Participant,
        now: float,
        *,
        name: str | None = None,
        metadata: str | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Changes name, metadata and attributes of a participant; an attribute of "" is removed. Raises
        `RoomError` above `MAX_ATTRIBUTES_BYTES`."""
        merged = {**participant.attributes, **(attributes or {})}
        merged = {key: value for key, value in merged.items() if value}
        check_description(metadata or "", merged)
        participant.attributes.clear()
        participant.attributes.update(merged)
        participant.name = participant.name if name is None else name
        participant.metadata = participant.metadata if metadata is None else metadata
        self.changed(participant, now)

    def publish(self, participant: Participant, track: Track, now: float) -> None:
        """Publishes a microphone of the participant. Raises `RoomError` without the permission."""
        if not participant.permissions.publish:
            raise RoomError("not allowed to publish")
        participant.tracks[track.sid] = track
        self.changed(participant, now)

    def unpublish(self, participant: Participant, sid: str, now: float) -> None:
        """Unpublishes the track `sid`; an unknown one is ignored."""
        if participant.tracks.pop(sid, None) is not None:
            self.changed(participant, now)

    def mute(self, participant: Participant, sid: str, muted: bool, now: float) -> None:
        """Sets whether a track is muted, by its owner."""
        track = participant.tracks.get(sid)
        if track is not None and track.muted != muted:
            track.muted, track.silenced = muted, track.silenced and muted
            self.changed(participant, now)

    def mute_remotely(self, participant: Participant, sid: str, now: float) -> None:
        """Mutes a track for the server: none of its sound is let through until its owner unmutes it, whose
        client is asked to stop sending. An unknown track is ignored."""
        track = participant.tracks.get(sid)
        if track is None:
            return
        track.muted = track.silenced = True
        self.changed(participant, now)
        for observer in tuple(self._observers):
            observer.muted_remotely(participant, sid, now)

    def set_metadata(self, metadata: str, now: float) -> None:
        """Replaces the room's metadata. Raises `RoomError` above `MAX_ATTRIBUTES_BYTES`."""
        if len(metadata.encode()) > MAX_ATTRIBUTES_BYTES:
            raise RoomError(f"metadata is limited to {MAX_ATTRIBUTES_BYTES} bytes")
        self.metadata = metadata
        for observer in tuple(self._observers):
            observer.room_changed(now)

    def changed(self, participant: Participant, now: float) -> None:
        """Notifies every observer of the participant's present state."""
        participant.version += 1
        for observer in tuple(self._observers):
            observer.participant_changed(participant, now)

    def spoken(self, words: Words, now: float) -> None:
        """Passes a piece of the transcript to every observer."""
        for observer in tuple(self._observers):
            observer.words_spoken(words, now)

    def turn_taken(self, latency_ms: float, now: float) -> None:
        """Passes the latency of a turn to every observer."""
        for observer in tuple(self._observers):
            observer.turn_taken(latency_ms, now)

    def speaking(self, changes: Sequence[Speaking], now: float) -> None:
        """Passes the participants who began or stopped speaking to every observer."""
        for observer in tuple(self._observers):
            observer.speakers_changed(changes, now)

    def send(self, message: Message, now: float) -> None:
        """Passes a participant's data to every observer. Raises `RoomError` without the permission."""
        if not message.sender.permissions.publish_data:
            raise RoomError("not allowed to publish data")
        for observer in tuple(self._observers):
            observer.message_sent(message, now)

    def expired(self, now: float) -> bool:
        """Whether nobody has joined within the room's `empty_timeout_s`."""
        return self.state is RoomState.EMPTY and now - self._created_s > self._empty_timeout_s

    def close(self, reason: LeaveReason, now: float) -> None:
        """Removes every participant and closes the room. Closing again does nothing."""
        if self.state is RoomState.CLOSED:
            return
        self.state = RoomState.CLOSED
        for participant in self.people:
            self._remove(participant, reason, now)
        self.on_text = None
        self.methods.clear()
        observers, self._observers = self._observers, []
        for observer in observers:
            observer.room_closed(reason, now)

    def _remove(self, participant: Participant, reason: LeaveReason, now: float) -> None:
        del self._participants[participant.identity]
        participant.become(ParticipantState.GONE)
        participant.version += 1
        for observer in tuple(self._observers):
            observer.participant_left(participant, reason, now)
