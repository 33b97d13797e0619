"""Supervisors of calls for the API: tokens, roles and words to the agent, by phone and web alike."""

from __future__ import annotations

import asyncio
import uuid
from functools import partial

from mediaserver.admin.access import Access
from mediaserver.calls.live_conversation import LiveConversation
from mediaserver.calls.phone_call import PhoneCall
from mediaserver.errors import Conflict, NotFound
from mediaserver.rooms.open_room import JoinGrant, OpenRoom
from mediaserver.rooms.participant import Kind, Participant, Permissions
from mediaserver.rooms.registry import RoomRegistry
from mediaserver.rooms.room import Room
from mediaserver.rooms.sip_participant import phone_participant
from mediaserver.rooms.tokens import Grant
from mediaserver.rooms.web_call import WebCallRequest
from pipeline.media.who_hears import Role

UNKNOWN_SUPERVISOR = "Supervisor not found"
ELSEWHERE = "The call is over, has not begun, or is on another node"


class Supervisors:
    """The supervisors of the calls of this node, for the company's API clients."""

    def __init__(self, room_registry: RoomRegistry) -> None:
        self._room_registry = room_registry

    def invite(self, access: Access, call_id: str, role: str, *, identity: str, name: str) -> JoinGrant:
        """Makes the token with which a supervisor joins a live call, in a role. `identity`: "" for one that
        is made up. Raises `Conflict` where nobody talks in the call, and for somebody else's identity."""
        opened = self._opened(access, call_id)
        identity = identity or f"supervisor-{uuid.uuid4().hex[:8]}"
        there = opened.room.participants.get(identity)
        if there is not None and not there.supervises:
            raise Conflict("That identity is somebody else's in this call")
        grant = Grant(
            room=opened.room.name,
            identity=identity,
            name=name or identity,
            permissions=Permissions(publish_data=False, update_own_metadata=False, hidden=True),
            role=Role(role),
        )
        opened.supervision.invited(identity, Role(role))
        token = self._room_registry.mint(grant)
        return JoinGrant(self._room_registry.server_url(), opened.room.name, token, identity)

    def of_call(self, access: Access, call_id: str) -> list[Participant]:
        """Returns the supervisors who are in a live call. Raises `Conflict`."""
        found = self._found(access, call_id)
        people = found.room.people if isinstance(found, OpenRoom) else []
        return [each for each in people if each.supervises]

    def change(self, access: Access, call_id: str, identity: str, role: str) -> Participant:
        """Gives a supervisor another role. Raises `NotFound`, and `Conflict` where that cannot be now."""
        opened, participant = self._supervisor(access, call_id, identity)
        opened.supervision.change(participant, Role(role), asyncio.get_running_loop().time())
        return participant

    async def remove(self, access: Access, call_id: str, identity: str) -> Role:
        """Puts a supervisor out of a call; the agent has it back where they had taken it over. Returns the
        role that they had. Raises `NotFound`."""
        opened, participant = self._supervisor(access, call_id, identity)
        role = participant.role
        await self._room_registry.remove_participant(opened, opened.participant_legs[participant.sid])
        return role

    def whisper(self, access: Access, call_id: str, text: str) -> None:
        """Tells the agent of a live call something that the caller does not hear. Raises `Conflict`."""
        conversation = self._found(access, call_id).conversation
        if conversation is None or not conversation.whisper(text):
            raise Conflict("This call's agent cannot be told anything")

    def _supervisor(self, access: Access, call_id: str, identity: str) -> tuple[OpenRoom, Participant]:
        opened = self._found(access, call_id)
        if isinstance(opened, OpenRoom):
            participant = opened.room.participants.get(identity)
            if (
                participant is not None
                and participant.sid in opened.participant_legs
                and participant.supervises
            ):
                return opened, participant
        raise NotFound(UNKNOWN_SUPERVISOR)

    def _opened(self, access: Access, call_id: str) -> OpenRoom:
        """Returns the room of a call, which a phone call has from now on. Raises `Conflict`."""
        found = self._found(access, call_id)
        return found if isinstance(found, OpenRoom) else self._room_of(found)

    def _found(self, access: Access, call_id: str) -> OpenRoom | PhoneCall:
        """Returns the room of a call, or the phone call that nobody has been invited to. The caller of this
        method has checked that `access` reaches the call. Raises `Conflict`."""
        if call_id in self._room_registry:
            opened = self._room_registry.opened(access, call_id, supervised=True)
            if not opened.begun:
                raise Conflict(ELSEWHERE)
            return opened
        call = self._room_registry.phone_call(call_id)
        if call is None or call.leg is None:
            raise Conflict(ELSEWHERE)
        return call

    def _room_of(self, call: PhoneCall) -> OpenRoom:
        if call.leg is None:
            raise Conflict(ELSEWHERE)
        claim, bridge = call.cdr.claim, call.leg.bridge()
        now = asyncio.get_running_loop().time()
        room = Room(claim.call_id, agent=Participant("agent", kind=Kind.AGENT), now=now)
        opened = OpenRoom(room, claim.company_id, WebCallRequest(agent_id=claim.agent_id), bridge, phone=call)
        caller = phone_participant(claim.phone_number, status="active")
        room.on_text = partial(_written, call.conversation)
        room.join(caller, now)
        room.active(caller, now)
        call.on_over = self._room_registry.adopt(opened)
        return opened


def _written(conversation: LiveConversation, who: Participant, text: str) -> None:
    if who.supervises and who.role is Role.WHISPER:
        conversation.whisper(text)
