"""What belongs to a room that is open on this node, and what is needed to come in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from mediaserver.rooms.bridge import Bridge
from mediaserver.rooms.guests import Guest
from mediaserver.rooms.person import Person
from mediaserver.rooms.room import Room
from mediaserver.rooms.webcall import WebCall, WebCallRequest


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a client needs to join: the answer of `web-calls/connect`."""

    server_url: str
    room_name: str
    token: str
    identity: str


@dataclass(slots=True)
class OpenRoom:
    """A room with what belongs to it."""

    room: Room
    company_id: str
    request: WebCallRequest
    bridge: Bridge
    persons: dict[str, Person] = field(default_factory=dict)  # by participant sid
    guests: dict[str, Guest] = field(default_factory=dict)  # by participant sid
    call: WebCall | None = None
    task: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """Somebody's place in a room. `evicted`: the connection of the same identity that had to leave for it."""

    room: Room
    person: Person
    evicted: Person | None = None
