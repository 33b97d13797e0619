"""Translates a room into LiveKit's protobufs, and clients' messages out of them; decides nothing."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
from collections.abc import Iterable, Mapping
from typing import Final

from google.protobuf.message import DecodeError
from livekit.protocol import models, rtc

from mediaserver.rooms.errors import BadSignal
from mediaserver.rooms.participant import Kind, Participant, ParticipantState, Permissions, Track
from mediaserver.rooms.room import EMPTY_TIMEOUT_S, MAX_PARTICIPANTS, LeaveReason, Room
from mediaserver.settings.ice_servers import IceServer

PING_INTERVAL_S: Final = 5
PING_TIMEOUT_S: Final = 15
"""LiveKit's own figures. Never 0: clients would run without a keep-alive, or with one that fires at once."""

MAX_JOIN_BYTES: Final = 256 * 1024
"""The most bytes of a decompressed join request, which holds an offer and metadata: a larger one is a
bomb."""

_SERVER: Final = models.ServerInfo(
    edition=models.ServerInfo.Standard, version="1.9.0", protocol=16, node_id="ND_mediaserver"
)
"""The LiveKit server whose behaviour this server has: clients do not ask for later features."""

_OPUS: Final = "audio/opus"

_STATES: Final = {
    ParticipantState.JOINING: models.ParticipantInfo.JOINING,
    ParticipantState.JOINED: models.ParticipantInfo.JOINED,
    ParticipantState.ACTIVE: models.ParticipantInfo.ACTIVE,
    ParticipantState.GONE: models.ParticipantInfo.DISCONNECTED,
}
_KINDS: Final = {
    Kind.PERSON: models.ParticipantInfo.STANDARD,
    Kind.AGENT: models.ParticipantInfo.AGENT,
    Kind.PHONE: models.ParticipantInfo.SIP,
}
REASONS: Final[Mapping[LeaveReason, models.DisconnectReason]] = {
    LeaveReason.CLIENT: models.CLIENT_INITIATED,
    LeaveReason.DUPLICATE_IDENTITY: models.DUPLICATE_IDENTITY,
    LeaveReason.SERVER_SHUTDOWN: models.SERVER_SHUTDOWN,
    LeaveReason.REMOVED: models.PARTICIPANT_REMOVED,
    LeaveReason.ROOM_CLOSED: models.ROOM_CLOSED,
    LeaveReason.ROOM_DELETED: models.ROOM_DELETED,
    LeaveReason.STATE_MISMATCH: models.STATE_MISMATCH,
    LeaveReason.JOIN_FAILURE: models.JOIN_FAILURE,
    LeaveReason.SIGNAL_CLOSE: models.SIGNAL_CLOSE,
    LeaveReason.MEDIA_FAILURE: models.MEDIA_FAILURE,
    LeaveReason.ENCRYPTED: models.JOIN_FAILURE,
}


def join_response(
    room: Room, participant: Participant, *, dual: bool, ice_servers: Iterable[IceServer]
) -> rtc.SignalResponse:
    """Makes the first message to a client. `dual`: the client has a second peer connection, which the server
    offers."""
    opus = [models.Codec(mime=_OPUS)]
    return rtc.SignalResponse(
        join=rtc.JoinResponse(
            room=room_info(room),
            participant=participant_info(participant),
            other_participants=[participant_info(each) for each in seen_by(room, participant)],
            server_version=_SERVER.version,
            server_info=_SERVER,
            ice_servers=ice_server_infos(ice_servers),
            subscriber_primary=dual,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PING_TIMEOUT_S,
            enabled_publish_codecs=opus,
            # With this the Rust SDK offers at once instead of collecting requests for 150 ms.
            fast_publish=True,
        )
    )


def reconnect_response(last_sequence: int, *, ice_servers: Iterable[IceServer]) -> rtc.SignalResponse:
    """Makes the first message to a client that resumes; the client sends again its reliable packets after
    `last_sequence`."""
    return rtc.SignalResponse(
        reconnect=rtc.ReconnectResponse(
            server_info=_SERVER,
            ice_servers=ice_server_infos(ice_servers),
            last_message_seq=last_sequence,
        )
    )


def update(participants: Iterable[Participant], reason: LeaveReason | None = None) -> rtc.SignalResponse:
    """Makes a `ParticipantUpdate` of `participants`; `reason`: why they have left."""
    infos = [participant_info(each) for each in participants]
    if reason is not None:
        for info in infos:
            info.disconnect_reason = REASONS[reason]
    return rtc.SignalResponse(update=rtc.ParticipantUpdate(participants=infos))


def vanished(participant: Participant) -> rtc.SignalResponse:
    """Makes the update by which a participant who stays is gone for others, who are told nothing else of
    them."""
    info = models.ParticipantInfo(
        sid=participant.sid, identity=participant.identity, state=models.ParticipantInfo.DISCONNECTED
    )
    return rtc.SignalResponse(update=rtc.ParticipantUpdate(participants=[info]))


def leave(reason: LeaveReason, *, again: bool = False) -> rtc.SignalResponse:
    """Makes the last message to a client. `again`: asks the SDK to join again, which the SDK does by
    itself."""
    action = rtc.LeaveRequest.RECONNECT if again else rtc.LeaveRequest.DISCONNECT
    return rtc.SignalResponse(
        leave=rtc.LeaveRequest(can_reconnect=again, reason=REASONS[reason], action=action)
    )


def request_response(
    reason: rtc.RequestResponse.Reason,
    message: str = "",
    *,
    request_id: int = 0,
    add_track: rtc.AddTrackRequest | None = None,
) -> rtc.SignalResponse:
    """Makes the response that grants or refuses a client's request."""
    return rtc.SignalResponse(
        request_response=rtc.RequestResponse(
            request_id=request_id, reason=reason, message=message, add_track=add_track
        )
    )


def speakers(participant: Participant, active: bool, *, level: float = 1.0) -> rtc.SignalResponse:
    """Makes the update for a participant who begins or stops speaking. `level`: 0 to 1."""
    info = models.SpeakerInfo(sid=participant.sid, level=level if active else 0.0, active=active)
    return rtc.SignalResponse(speakers_changed=rtc.SpeakersChanged(speakers=[info]))


def quality(participant: Participant, lost_share: float) -> rtc.SignalResponse:
    """Makes the update of a participant's connection quality, by the share of packets lost on the way to the
    server."""
    grade, score = next(each[1:] for each in _QUALITIES if lost_share < each[0])
    info = rtc.ConnectionQualityInfo(participant_sid=participant.sid, quality=grade, score=score)
    return rtc.SignalResponse(connection_quality=rtc.ConnectionQualityUpdate(updates=[info]))


_QUALITIES: Final = (
    (0.02, models.EXCELLENT, 4.5),  # in-band FEC repairs it
    (0.10, models.GOOD, 3.5),
    (2.0, models.POOR, 2.0),
)


def room_info(room: Room) -> models.Room:
    """Makes LiveKit's `Room` for the room's present state; hidden participants are not counted."""
    people = [each for each in room.participants.values() if not each.permissions.hidden]
    return models.Room(
        sid=room.sid,
        name=room.name,
        metadata=room.metadata,
        creation_time=room.created_at_ms // 1000,
        creation_time_ms=room.created_at_ms,
        empty_timeout=int(EMPTY_TIMEOUT_S),
        max_participants=MAX_PARTICIPANTS,
        num_participants=len(people),
        num_publishers=sum(bool(each.tracks) for each in people),
        enabled_codecs=[models.Codec(mime=_OPUS)],
    )


def seen_by(room: Room, participant: Participant) -> list[Participant]:
    """Returns the other participants that `participant` may see."""
    others = room.participants.values()
    return [each for each in others if each is not participant and not each.permissions.hidden]


def participant_info(participant: Participant) -> models.ParticipantInfo:
    """Makes LiveKit's `ParticipantInfo` of a participant."""
    return models.ParticipantInfo(
        sid=participant.sid,
        identity=participant.identity,
        name=participant.name,
        state=_STATES[participant.state],
        kind=_KINDS[participant.kind],
        metadata=participant.metadata,
        attributes=participant.attributes,
        tracks=[track_info(each) for each in participant.tracks.values()],
        joined_at=participant.joined_at_ms // 1000,
        joined_at_ms=participant.joined_at_ms,
        version=participant.version,
        is_publisher=bool(participant.tracks),
        permission=permission(participant.permissions, agent=participant.kind is Kind.AGENT),
    )


def permission(permissions: Permissions, *, agent: bool = False) -> models.ParticipantPermission:
    """Makes LiveKit's `ParticipantPermission`. The only source is the microphone, so that the SDK itself
    refuses the camera."""
    return models.ParticipantPermission(
        can_subscribe=permissions.subscribe,
        can_publish=permissions.publish,
        can_publish_data=permissions.publish_data,
        can_publish_sources=[models.MICROPHONE],
        can_update_metadata=permissions.update_own_metadata,
        hidden=permissions.hidden,
        agent=agent,
    )


def track_info(track: Track) -> models.TrackInfo:
    """Makes LiveKit's `TrackInfo` of a microphone, or of the agent's audio."""
    return models.TrackInfo(
        sid=track.sid,
        type=models.AUDIO,
        source=models.MICROPHONE,
        name=track.name,
        muted=track.muted,
        mid=track.mid,
        stream=track.stream,
        mime_type=_OPUS,
        disable_red=True,
    )


def ice_server_infos(servers: Iterable[IceServer]) -> list[rtc.ICEServer]:
    """Makes LiveKit's `ICEServer`s of the STUN and TURN servers in `rooms.ice_servers`."""
    return [
        rtc.ICEServer(urls=[each.url], username=each.username, credential=each.credential) for each in servers
    ]


def parse_request(data: bytes) -> rtc.SignalRequest:
    """Parses a message of the client. Raises `BadSignal`."""
    try:
        return rtc.SignalRequest.FromString(data)
    except DecodeError as error:
        raise BadSignal("malformed message") from error


def parse_join(text: str) -> rtc.JoinRequest:
    """Parses the join request in the URL of `/rtc/v1`: base64 of a WrappedJoinRequest. Raises `BadSignal`."""
    if not text:
        raise BadSignal("missing join_request")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        wrapped = rtc.WrappedJoinRequest.FromString(raw)
        packed = wrapped.join_request
        if wrapped.compression == rtc.WrappedJoinRequest.GZIP:
            packed = gzip.GzipFile(fileobj=io.BytesIO(packed)).read(MAX_JOIN_BYTES + 1)
        if len(packed) > MAX_JOIN_BYTES:
            raise BadSignal("join request too large")
        return rtc.JoinRequest.FromString(packed)
    except (binascii.Error, ValueError, DecodeError, OSError, EOFError) as error:
        raise BadSignal("malformed join request") from error
