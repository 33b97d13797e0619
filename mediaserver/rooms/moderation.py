"""Moderation of a room: calling telephones in, removing participants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mediaserver.calls.outbound_legs import CALLED_BEFORE, DialRefused, LinesBusy, OutboundLegs
from mediaserver.calls.transfers.carrier_referral import Said
from mediaserver.calls.transfers.transfer import ANSWER_S
from mediaserver.errors import Conflict, NotConfigured, NotFound, TooMany, Unavailable
from mediaserver.rooms.errors import RoomError
from mediaserver.rooms.open_room import OpenRoom
from mediaserver.rooms.participant import Participant
from mediaserver.rooms.registry import RoomRegistry
from mediaserver.rooms.sip_participant import call_in, new_identity, phone_participant
from sip.errors import SipError

UNKNOWN_PARTICIPANT = "Participant not found"


@dataclass(frozen=True, slots=True)
class Shown:
    """How a telephone is shown in a room. `identity`: "" for one that is made up."""

    identity: str = ""
    name: str = ""
    metadata: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


class Moderation:
    """Moderates the rooms of `room_registry` for the company's API clients."""

    def __init__(self, room_registry: RoomRegistry, outbound_legs: OutboundLegs | None) -> None:
        self._room_registry = room_registry
        self._outbound_legs = outbound_legs

    async def call_in(self, opened: OpenRoom, number: str, shown: Shown) -> Participant:
        """Dials a number and adds it to a room as a participant, by the rules for calls of the room's agent.
        Returns while the call is being set up: the participant's attributes show its state. Raises
        `DialRefused`, `TooMany`, `RoomError` and its kinds, `Unavailable`, `NotConfigured`."""
        if self._outbound_legs is None:
            raise NotConfigured("Service not configured")
        self._room_registry.check_open()
        route = await self._outbound_legs.route(opened.request.agent_id, number)
        identity = shown.identity or new_identity()
        if identity in opened.dialling:  # the same request again: nobody is called twice
            raise RoomError("that identity is being called")
        opened.dialling.add(identity)
        try:
            phone = phone_participant(route.number, name=shown.name, identity=identity)
            phone.metadata = shown.metadata
            phone.attributes.update(shown.attributes)
            sip_participant = await call_in(opened.room, self._outbound_legs, route, phone)
        except LinesBusy as busy:
            raise TooMany(str(busy)) from None
        except (SipError, OSError) as error:
            raise Unavailable(f"The call cannot be placed now: {error}") from None
        finally:
            opened.dialling.discard(identity)
        opened.sip_participants[sip_participant.participant.sid] = sip_participant
        sip_participant.on_arrival = lambda sip_participant: self._room_registry.arrived(
            opened, sip_participant
        )
        sip_participant.on_leaving = lambda sip_participant: self._room_registry.departed(
            opened, sip_participant
        )
        sip_participant.follow()
        return sip_participant.participant

    async def transfer(self, opened: OpenRoom, identity: str, number: str) -> None:
        """Has the carrier of a telephone in a room connect it with `number`, by the rules for calls of the
        room's agent; returns when the telephone has left the room for it. A number that a transfer of this
        room, the agent's or another, has called is not called again. Raises `DialRefused`, `NotFound`,
        `Conflict` where the carrier does not or the telephone is not on the line, `NotConfigured`."""
        if self._outbound_legs is None:
            raise NotConfigured("Service not configured")
        participant = opened.room.participants.get(identity)
        phone = opened.sip_participants.get(participant.sid) if participant is not None else None
        if phone is None:
            raise NotFound(UNKNOWN_PARTICIPANT)
        route = await self._outbound_legs.route(opened.request.agent_id, number)
        if route.trunk.transfer == "bridge":
            raise Conflict("The trunk of the room's agent has its carrier transfer no calls")
        if route.number in opened.dialled:
            raise DialRefused(CALLED_BEFORE)
        opened.dialled.add(route.number)
        limit_s = route.agent.transfer_ring_s + ANSWER_S
        try:
            attempt = await phone.refer(self._outbound_legs, route, limit_s=limit_s)
        except RoomError as error:
            opened.dialled.discard(route.number)
            raise Conflict(str(error)) from None
        if not attempt.served and attempt.outcome != Said.UNKNOWN:
            opened.dialled.discard(route.number)
        if not attempt.served:
            raise Conflict(f"The carrier did not transfer the call: {attempt.outcome}")

    async def remove(self, opened: OpenRoom, identity: str) -> None:
        """Removes the participant `identity` from the room. Raises `NotFound`, also for the agent, which
        cannot be removed."""
        participant = opened.room.participants.get(identity)
        sid = participant.sid if participant is not None else ""
        if sid in opened.sip_participants:
            await opened.sip_participants[sid].gone()
        elif sid in opened.participant_legs:
            await self._room_registry.remove_participant(opened, opened.participant_legs[sid])
        else:
            raise NotFound(UNKNOWN_PARTICIPANT)
