"""WHIP (RFC 9725) sessions: one HTTP request with an offer, its answer, and a URL to end the session.

WHIP is written for senders; here the media section is sendrecv, so that the client hears the agent on the
same connection. A data channel "events", if the client opens one, carries what happens in the room
(`mediaserver.rooms.whip_events`)."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mediaserver.rooms.errors import BadOffer, PeerClosed
from mediaserver.rooms.open_room import Entry
from mediaserver.rooms.participant import Participant
from mediaserver.rooms.registry import RoomRegistry
from mediaserver.rooms.room import LeaveReason, RoomObserver
from mediaserver.rooms.webrtc.peer_connection import PeerTransport
from mediaserver.rooms.webrtc.sdp_munging import MAX_CANDIDATES
from mediaserver.rooms.whip_events import TalkEvents

log = logging.getLogger(__name__)

REMEMBERED: Final = 256
"""The most ids remembered of clients that closed their connection, whose DELETE may follow within seconds."""


@dataclass(frozen=True, slots=True)
class WhipSession:
    """One session. `id` is the unguessable last part of its URL: whoever knows it may change and end the
    session."""

    id: str
    entry: Entry
    peer: PeerTransport

    @property
    def participant_sid(self) -> str:
        """The sid of the participant whose session this is."""
        return self.entry.leg.participant.sid


class _Leaving(RoomObserver):
    """Removes a session from `sessions` when its participant has left; `left` gets the id where the client
    itself closed the connection."""

    def __init__(self, sessions: dict[str, WhipSession], session: WhipSession, left: deque[str]) -> None:
        self._sessions = sessions
        self._session = session
        self._left = left

    def participant_left(self, participant: Participant, reason: LeaveReason, now: float) -> None:
        """Removes the session of the participant who has left."""
        if participant is self._session.entry.leg.participant:
            self._sessions.pop(self._session.id, None)
            if reason is LeaveReason.CLIENT:
                self._left.append(self._session.id)
            self._session.entry.room.forget(self)


class Whip:
    """The WHIP sessions of this node."""

    def __init__(self) -> None:
        self._sessions: dict[str, WhipSession] = {}
        self._left: deque[str] = deque(maxlen=REMEMBERED)

    def __len__(self) -> int:
        return len(self._sessions)

    async def open(self, room_registry: RoomRegistry, token: str, offer: str) -> tuple[WhipSession, str]:
        """Joins the room with `token`; returns the session and the SDP answer. Raises as
        `RoomRegistry.enter`, and `BadOffer`."""
        entry = await room_registry.enter(token)
        leg, room = entry.leg, entry.room
        peer = leg.new_peer()
        session = WhipSession(secrets.token_urlsafe(18), entry, peer)
        events = TalkEvents(room, leg.participant, peer)
        leg.on_hang_up = lambda: events.ended(LeaveReason.ROOM_CLOSED)
        try:
            answer = await peer.answer(offer)
        except (BadOffer, PeerClosed, asyncio.CancelledError):
            await room_registry.leave(entry, LeaveReason.JOIN_FAILURE)
            raise
        self._sessions[session.id] = session
        room.observe(_Leaving(self._sessions, session, self._left))
        return session, answer

    async def trickle(self, session_id: str, fragment: str) -> str | None:
        """Takes ICE candidates, or new ICE credentials, of a session (RFC 8840 fragment). Returns the
        server's fragment after an ICE restart. Raises `PeerClosed` for an unknown session, `BadOffer`."""
        session = self._find(session_id)
        lines = fragment.replace("\r\n", "\n").split("\n")
        credentials = [_value(lines, "a=ice-ufrag:"), _value(lines, "a=ice-pwd:")]
        restarted = all(credentials) and session.peer.restart_ice(*credentials)
        candidates = [line for line in lines if line.startswith("a=candidate:")]
        for line in candidates[:MAX_CANDIDATES]:
            await session.peer.add_candidate(line)
        return session.peer.local_fragment() if restarted else None

    async def end(self, room_registry: RoomRegistry, session_id: str) -> None:
        """Ends a session at its client's DELETE; one whose connection the client has closed before is over
        already. Raises `PeerClosed` for an unknown session."""
        if session_id not in self._left:
            await room_registry.leave(self._find(session_id).entry, LeaveReason.CLIENT)
        with suppress(ValueError):  # pushed out by later ids
            self._left.remove(session_id)

    def _find(self, session_id: str) -> WhipSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise PeerClosed("there is no such session")
        return session


def _value(lines: list[str], start: str) -> str:
    return next((line.removeprefix(start) for line in lines if line.startswith(start)), "")
