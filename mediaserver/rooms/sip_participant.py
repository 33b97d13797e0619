"""Telephones in a room: dialled, bridged, removed. Clients see such a participant as one of kind SIP, with
LiveKit's attributes `sip.callStatus` and `sip.phoneNumber`."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Final

from mediaserver.calls.outbound_legs import OutboundLegs, Route
from mediaserver.calls.transfers.carrier_referral import Attempt, CarrierReferral, Rung, Said
from mediaserver.rooms.errors import RoomError
from mediaserver.rooms.participant import Kind, Participant, check_description
from mediaserver.rooms.room import LeaveReason, Room
from sip.call import Call, CallFailed
from sip.states import CallState

log = logging.getLogger(__name__)

STATUS: Final = "sip.callStatus"
NUMBER: Final = "sip.phoneNumber"

_SHOWN: Final = {
    CallState.DIALING: "dialing",
    CallState.RINGING: "ringing",
    CallState.ANSWERED: "active",
    CallState.ENDED: "hangup",
}


def new_identity() -> str:
    """Makes an identity for a telephone that nobody has named."""
    return f"phone-{uuid.uuid4().hex[:8]}"


def phone_participant(
    number: str, *, name: str = "", identity: str = "", status: str = "dialing"
) -> Participant:
    """Makes the participant (LiveKit: kind SIP) that stands for a phone in a room."""
    attributes = {STATUS: status, NUMBER: number}
    identity = identity or new_identity()
    return Participant(identity, kind=Kind.PHONE, name=name or identity, attributes=attributes)


class SipParticipant:
    """A phone dialled into a room. `on_arrival` is called once the phone has answered, `on_leaving`
    once the call has ended, answered or not; each at most once."""

    def __init__(self, room: Room, participant: Participant, call: Call) -> None:
        self.participant = participant
        self.call = call
        self.on_arrival: Callable[[SipParticipant], None] | None = None
        self.on_leaving: Callable[[SipParticipant], None] | None = None
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._referral: CarrierReferral | None = None
        self._referred = False
        self._task: asyncio.Task[None] | None = None

    def follow(self) -> None:
        """Follows the call's state in a task of its own."""
        self.call.on_state(self._moved)
        self._task = asyncio.create_task(self._follow(), name=f"phone in room {self._room.name}")

    async def gone(self) -> None:
        """Hangs up; `on_leaving` is called when the call has ended."""
        await self.call.hang_up()

    async def refer(self, lines: OutboundLegs, route: Route, *, limit_s: float) -> Attempt:
        """Has the phone's carrier connect it with `route` instead (REFER) and waits for `limit_s` at most for
        how that ends; a phone whose carrier has it is hung up. Raises `RoomError` for a phone that is not up,
        while it is referred already, and for one of which nobody knows whether somebody was called."""
        if self.call.state is not CallState.ANSWERED:
            raise RoomError("that telephone is not on the line")
        if self._referred:
            raise RoomError("that telephone is being transferred, or it is not known whether it was")
        self._referred = True
        self._referral = CarrierReferral(self.call, lines.refer_to(route), rung=Rung.REFER, limit_s=limit_s)
        attempt = await self._referral.run()
        self._referral = None
        self._referred = attempt.outcome == Said.UNKNOWN
        if attempt.served:
            await self.gone()
        return attempt

    async def _follow(self) -> None:
        try:
            await self.call.answered()
            self._room.active(self.participant, self._loop.time())
            if self.on_arrival is not None:
                self.on_arrival(self)
            await self.call.ended()
        except CallFailed as failed:
            log.info("phone not reached", extra={"call_id": self._room.name, "cause": failed.cause.value})
        finally:
            self._room.leave(self.participant, LeaveReason.CLIENT, self._loop.time())
            if self.on_leaving is not None:
                self.on_leaving(self)

    def _moved(self, call: Call, state: CallState, now: float) -> None:
        if state is CallState.ENDED and self._referral is not None:
            self._referral.left()
        if self._room.participants.get(self.participant.identity) is self.participant:
            self._room.describe(self.participant, now, attributes={STATUS: _SHOWN.get(state, "")})


async def call_in(room: Room, lines: OutboundLegs, route: Route, participant: Participant) -> SipParticipant:
    """Dials `route` and adds the telephone, which is `participant`, to the room at once; the caller then
    starts `follow`. Raises `DialRefused`, `SipError`, OSError, `RoomClosed`, `RoomFull`, `RoomError` for an
    identity that is in the room, and for too long a description."""
    if participant.identity in room.participants:
        raise RoomError("that identity is in the room")
    check_description(participant.metadata, participant.attributes)
    call = await lines.dial(route, call_id=f"{room.name}-{participant.identity}", leg_of=room.name)
    try:
        room.join(participant, asyncio.get_running_loop().time())
    except RoomError:
        await call.hang_up()
        raise
    return SipParticipant(room, participant, call)
