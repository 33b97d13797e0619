"""Moderation of a room: calling telephones in, removing participants."""

from __future__ import annotations

from mediaserver.calls.outbound_legs import LinesBusy, OutboundLegs
from mediaserver.errors import NotConfigured, NotFound, TooMany, Unavailable
from mediaserver.rooms.open_room import OpenRoom
from mediaserver.rooms.participant import Participant
from mediaserver.rooms.registry import RoomRegistry
from mediaserver.rooms.sip_participant import call_in
from sip.errors import SipError

UNKNOWN_PARTICIPANT = "Participant not found"


class Moderation:
    """Moderates the rooms of `lobby` for the company's API clients."""

    def __init__(self, lobby: RoomRegistry, lines: OutboundLegs | None) -> None:
        self._lobby = lobby
        self._lines = lines

    async def call_in(self, opened: OpenRoom, number: str, *, name: str = "") -> Participant:
        """Dials a number and adds it to a room as a participant, by the rules for calls of the room's agent.
        Returns while the call is being set up: the participant's attributes show its state. Raises
        `DialRefused`, `TooMany`, `RoomClosed`, `RoomFull`, `Unavailable`, `NotConfigured`."""
        if self._lines is None:
            raise NotConfigured("Service not configured")
        self._lobby.check_open()
        route = await self._lines.route(opened.request.agent_id, number)
        try:
            guest = await call_in(opened.room, self._lines, route, name=name)
        except LinesBusy as busy:
            raise TooMany(str(busy)) from None
        except (SipError, OSError) as error:
            raise Unavailable(f"The call cannot be placed now: {error}") from None
        opened.guests[guest.participant.sid] = guest
        guest.on_arrival = lambda guest: self._lobby.arrived(opened, guest)
        guest.on_leaving = lambda guest: self._lobby.departed(opened, guest)
        guest.follow()
        return guest.participant

    async def remove(self, opened: OpenRoom, identity: str) -> None:
        """Removes the participant `identity` from the room. Raises `NotFound`, also for the agent, which
        cannot be removed."""
        participant = opened.room.participants.get(identity)
        sid = participant.sid if participant is not None else ""
        if sid in opened.guests:
            await opened.guests[sid].gone()
        elif sid in opened.persons:
            await self._lobby.remove_participant(opened, opened.persons[sid])
        else:
            raise NotFound(UNKNOWN_PARTICIPANT)
