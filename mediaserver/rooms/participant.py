"""Participants of a room, as the others see them.

`Participant` holds what every participant has (the LiveKit `ParticipantInfo`): identity, permissions,
metadata, attributes, tracks, state. `mediaserver.rooms.participant_leg.ParticipantLeg` is the connection
behind one, and a `pipeline.leg.Leg`.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from mediaserver.rooms.errors import RoomError
from pipeline.media.who_hears import Role

AGENT_STATE = "lk.agent.state"
"""The attribute by which LiveKit's clients show what the agent does: listening, thinking, speaking."""

AGENT_NAME = "lk.agent.name"
"""The attribute by which LiveKit's server SDKs find the agent that was asked for."""

MAX_ATTRIBUTES_BYTES = 64 * 1024
"""The most bytes of keys and values together, LiveKit's limit: every change goes to every participant."""


class Kind(Enum):
    """The kind of a participant: a person's client, the agent, or a telephone."""

    PERSON = "person"
    AGENT = "agent"
    PHONE = "phone"


class ParticipantState(Enum):
    """JOINING: known, its media not up; JOINED: signalling up; ACTIVE: media up; GONE: final."""

    JOINING = "joining"
    JOINED = "joined"
    ACTIVE = "active"
    GONE = "gone"


NEXT_STATES: Mapping[ParticipantState, frozenset[ParticipantState]] = {
    ParticipantState.JOINING: frozenset(
        {ParticipantState.JOINED, ParticipantState.ACTIVE, ParticipantState.GONE}
    ),
    ParticipantState.JOINED: frozenset({ParticipantState.ACTIVE, ParticipantState.GONE}),
    # Back to JOINED: the media was lost and the client resumes.
    ParticipantState.ACTIVE: frozenset({ParticipantState.JOINED, ParticipantState.GONE}),
    ParticipantState.GONE: frozenset(),
}


def new_sid(prefix: str) -> str:
    """Makes a server id in LiveKit's form: "PA" for a participant, "TR" a track, "RM" a room."""
    return f"{prefix}_{base64.b32encode(secrets.token_bytes(8)).decode().rstrip('=')[:12]}"


def check_description(metadata: str, attributes: Mapping[str, str]) -> None:
    """Raises `RoomError` for metadata or attributes above `MAX_ATTRIBUTES_BYTES`."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in attributes.items())
    if size > MAX_ATTRIBUTES_BYTES or len(metadata.encode()) > MAX_ATTRIBUTES_BYTES:
        raise RoomError(f"metadata and attributes are limited to {MAX_ATTRIBUTES_BYTES} bytes each")


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a participant may do. The only source that the server accepts is the microphone."""

    publish: bool = True
    subscribe: bool = True
    publish_data: bool = True
    update_own_metadata: bool = True
    hidden: bool = False


@dataclass(slots=True)
class Track:
    """A published microphone. `silenced`: muted by the server, which lets none of its sound through until its
    owner unmutes it. `cid`: the client's own id of the track; `mid`: its section in the session
    description; `offered_as`: its id in that section, a new one in Firefox."""

    sid: str
    cid: str = ""
    name: str = ""
    muted: bool = False
    silenced: bool = False
    mid: str = ""
    stream: str = ""
    offered_as: str = ""


@dataclass(slots=True)
class Participant:
    """A participant as the room knows it. Changed through `Room` alone, which notifies the observers."""

    identity: str
    kind: Kind = Kind.PERSON
    name: str = ""
    sid: str = field(default_factory=lambda: new_sid("PA"))
    permissions: Permissions = field(default_factory=Permissions)
    metadata: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    tracks: dict[str, Track] = field(default_factory=dict)
    state: ParticipantState = ParticipantState.JOINING
    joined_at_ms: int = 0
    role: Role = Role.CALLER
    """Whom the participant hears, and who hears them."""
    supervises: bool = False
    """Whether the participant's token is a supervisor's."""
    key_released: bool = False
    """Whether the participant pushes to talk, and does not hold the key."""
    version: int = 0
    """Raised with every change: clients drop older updates."""

    @property
    def silenced(self) -> bool:
        """Whether the participant may not be heard: the server has muted a track of theirs, or they push to
        talk and do not."""
        return self.key_released or any(track.silenced for track in self.tracks.values())

    def become(self, state: ParticipantState) -> None:
        """Moves to `state`. Raises `RoomError` for a transition that `NEXT_STATES` does not have."""
        if state not in NEXT_STATES[self.state]:
            raise RoomError(f"a participant cannot become {state.value} from {self.state.value}")
        self.state = state
