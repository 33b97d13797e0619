"""LiveKit's RoomService over the rooms of this node: each RPC as a function of its request.

What a caller's key may touch is decided by `mediaserver.admin.access`, as for the REST API; what the token
grants by `Grants`. A room of another company or agent is answered as one that does not exist."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import Final

from livekit.protocol import models, room, sip

from mediaserver.admin.access import Access
from mediaserver.errors import Conflict, InvalidRequest, NotFound, ScopeMissing
from mediaserver.rooms.livekit.data import MAX_PACKET_BYTES
from mediaserver.rooms.livekit.messages import participant_info, room_info, track_info
from mediaserver.rooms.moderation import UNKNOWN_PARTICIPANT, Moderation, Shown
from mediaserver.rooms.open_room import OpenRoom
from mediaserver.rooms.participant import Kind, Participant, Permissions
from mediaserver.rooms.registry import RoomRegistry
from mediaserver.rooms.room import Message

UNKNOWN_TRACK: Final = "Track not found"
_IDENTITY: Final = re.compile(r"[\w.@:+-]{1,64}", re.ASCII)
_NUMBER: Final = re.compile(r"(?:tel:)?(?P<number>\+?[\d().\- ]{1,32})", re.ASCII)
AGENTS_OWN: Final = "The agent's own state is not changed from outside"


@dataclass(frozen=True, slots=True)
class Grants:
    """The grants of a server token: the claims `video` and `sip` of LiveKit. `room`: the room that
    `room_admin` is for."""

    room: str = ""
    room_create: bool = False
    room_admin: bool = False
    room_list: bool = False
    sip_call: bool = False


@dataclass(frozen=True, slots=True)
class RoomService:
    """The RPCs of one caller: its `access` and the `grants` of its token. RPCs raise `ScopeMissing` without
    the grant, `NotFound`, `InvalidRequest`, `Conflict`, and what their verbs of the REST API raise."""

    room_registry: RoomRegistry
    moderation: Moderation
    access: Access
    grants: Grants

    async def list_rooms(self, request: room.ListRoomsRequest) -> room.ListRoomsResponse:
        """Lists this node's rooms that the key reaches; with `names`, those of these names."""
        _granted(self.grants.room_list, "roomList")
        wanted = set(request.names)
        found = [each.room for each in self.room_registry.rooms_of(self.access)]
        return room.ListRoomsResponse(
            rooms=[room_info(each) for each in found if not wanted or each.name in wanted]
        )

    async def delete_room(self, request: room.DeleteRoomRequest) -> room.DeleteRoomResponse:
        """Ends the call of a room and puts everybody out."""
        _granted(self.grants.room_create, "roomCreate")
        opened = self.room_registry.opened(self.access, request.room)
        await self.room_registry.hang_up([opened.room.name])
        return room.DeleteRoomResponse()

    async def update_room_metadata(self, request: room.UpdateRoomMetadataRequest) -> models.Room:
        """Replaces the metadata of a room, which every client is told."""
        opened = self._room(request.room)
        opened.room.set_metadata(request.metadata, _now())
        return room_info(opened.room)

    async def list_participants(self, request: room.ListParticipantsRequest) -> room.ListParticipantsResponse:
        """Lists everybody in a room: the agent, and hidden participants too."""
        people = self._room(request.room).room.participants.values()
        return room.ListParticipantsResponse(participants=[participant_info(each) for each in people])

    async def get_participant(self, request: room.RoomParticipantIdentity) -> models.ParticipantInfo:
        """Tells state, tracks, metadata and attributes of one participant."""
        return participant_info(_participant(self._room(request.room), request.identity))

    async def remove_participant(
        self, request: room.RoomParticipantIdentity
    ) -> room.RemoveParticipantResponse:
        """Puts a participant out; a telephone is hung up."""
        await self.moderation.remove(self._room(request.room), request.identity)
        return room.RemoveParticipantResponse()

    async def mute_published_track(self, request: room.MuteRoomTrackRequest) -> room.MuteRoomTrackResponse:
        """Mutes a participant's microphone: nobody hears it until its owner unmutes it, whatever the client,
        which is told to stop sending, does. As with LiveKit's defaults, the server unmutes nobody."""
        opened = self._room(request.room)
        participant = _person(opened, request.identity)
        track = participant.tracks.get(request.track_sid)
        if track is None:
            raise NotFound(UNKNOWN_TRACK)
        if not request.muted:
            raise Conflict("A microphone is unmuted by its owner only")
        opened.room.mute_remotely(participant, track.sid, _now())
        return room.MuteRoomTrackResponse(track=track_info(track))

    async def update_participant(self, request: room.UpdateParticipantRequest) -> models.ParticipantInfo:
        """Changes name, metadata, attributes, and the permissions for data and for the participant's own
        metadata. Who may publish, hear or be seen is settled by the token with which the participant
        joined."""
        opened = self._room(request.room)
        participant = _person(opened, request.identity)
        if request.HasField("permission"):
            participant.permissions = _changed(participant.permissions, request.permission)
        opened.room.describe(
            participant,
            _now(),
            name=request.name or None,
            metadata=request.metadata or None,
            attributes=dict(request.attributes),
        )
        return participant_info(participant)

    async def send_data(self, request: room.SendDataRequest) -> room.SendDataResponse:
        """Sends a data packet in the server's name to some participants, by default to all."""
        opened = self._room(request.room)
        to = _identities(opened, request)
        packet = models.DataPacket(kind=request.kind, destination_identities=to)
        packet.user.payload = request.data
        if request.HasField("topic"):
            packet.user.topic = request.topic
        body = packet.SerializeToString()
        if len(body) > MAX_PACKET_BYTES:
            raise InvalidRequest(f"data: larger than {MAX_PACKET_BYTES} bytes")
        reliable = request.kind == models.DataPacket.RELIABLE
        opened.room.send(Message(_SERVER, body, reliable=reliable, to=to), _now())
        return room.SendDataResponse()

    async def create_sip_participant(
        self, request: sip.CreateSIPParticipantRequest
    ) -> sip.SIPParticipantInfo:
        """Calls a number into a room over the trunk of the room's agent, by the dialling rules of every call.
        Answers as soon as the INVITE is sent: `sip.callStatus` of the participant shows what becomes of
        it."""
        _granted(self.grants.sip_call, "sip.call")
        if request.sip_trunk_id or request.HasField("trunk"):
            raise InvalidRequest("sip_trunk_id: the trunk is that of the room's agent; leave it out")
        if request.wait_until_answered:
            raise InvalidRequest("wait_until_answered: follow the participant's sip.callStatus instead")
        opened = self.room_registry.opened(self.access, request.room_name)
        if request.participant_identity and not _IDENTITY.fullmatch(request.participant_identity):
            raise InvalidRequest("participant_identity: letters, digits and _.@:+- only, at most 64")
        shown = Shown(
            request.participant_identity,
            request.participant_name,
            request.participant_metadata,
            dict(request.participant_attributes),
        )
        participant = await self.moderation.call_in(opened, request.sip_call_to, shown)
        return sip.SIPParticipantInfo(
            participant_id=participant.sid,
            participant_identity=participant.identity,
            room_name=opened.room.name,
            sip_call_id=f"{opened.room.name}-{participant.identity}",
        )

    async def transfer_sip_participant(
        self, request: sip.TransferSIPParticipantRequest
    ) -> sip.TransferSIPParticipantResponse:
        """Has the carrier connect a telephone that was called into a room with a number (REFER), by the
        dialling rules of every call. Answers when the telephone has left the room for it."""
        _granted(self.grants.sip_call, "sip.call")
        self._administered(request.room_name)
        if request.headers:
            raise InvalidRequest("headers: a REFER carries those of the trunk only")
        number = _NUMBER.fullmatch(request.transfer_to)
        if number is None:
            raise InvalidRequest('transfer_to: a number, as "tel:+15551234567" or without "tel:"')
        opened = self.room_registry.opened(self.access, request.room_name)
        await self.moderation.transfer(opened, request.participant_identity, number["number"])
        return sip.TransferSIPParticipantResponse(
            status=sip.STS_TRANSFER_SUCCESSFUL, reason=sip.STR_COMPLETED
        )

    def _room(self, name: str) -> OpenRoom:
        """Returns a room for its administration."""
        self._administered(name)
        return self.room_registry.opened(self.access, name)

    def _administered(self, name: str) -> None:
        _granted(self.grants.room_admin and self.grants.room == name, f"roomAdmin of room {name!r}")


def _granted(granted: bool, name: str) -> None:
    if not granted:
        raise ScopeMissing(f"The token does not grant {name}")


def _participant(opened: OpenRoom, identity: str) -> Participant:
    found = opened.room.participants.get(identity)
    if found is None:
        raise NotFound(UNKNOWN_PARTICIPANT)
    return found


def _person(opened: OpenRoom, identity: str) -> Participant:
    """Returns a participant whose state may be changed."""
    found = _participant(opened, identity)
    if found.kind is Kind.AGENT:
        raise Conflict(AGENTS_OWN)
    return found


def _changed(before: Permissions, wanted: models.ParticipantPermission) -> Permissions:
    """Returns `before` with the permissions that can be changed in a session. Raises `Conflict` for another
    change."""
    sources = list(wanted.can_publish_sources)
    publish = wanted.can_publish and (not sources or models.MICROPHONE in sources)
    if (publish, wanted.can_subscribe, wanted.hidden) != (before.publish, before.subscribe, before.hidden):
        raise Conflict("can_publish, can_subscribe and hidden are settled by the token")
    return replace(
        before, publish_data=wanted.can_publish_data, update_own_metadata=wanted.can_update_metadata
    )


def _identities(opened: OpenRoom, request: room.SendDataRequest) -> tuple[str, ...]:
    """Returns the identities that a packet is for, () for all. Raises `NotFound` for nobody in the room."""
    by_sid = {each.sid: each.identity for each in opened.room.participants.values()}
    wanted = [*request.destination_identities, *(by_sid.get(sid, "") for sid in request.destination_sids)]
    if any(each not in opened.room.participants for each in wanted):
        raise NotFound(UNKNOWN_PARTICIPANT)
    return tuple(dict.fromkeys(wanted))


def _now() -> float:
    return asyncio.get_running_loop().time()


_SERVER: Final = Participant("")
"""The sender of the server's own data packets: LiveKit's have no identity."""
