"""LiveKit's signalling with one client, sans-IO: messages of the client come in as bytes, those to the client
go to `send`.

    signalling = Signalling(room, participant, dual=False)
    signalling.attach(send, now)
    step = signalling.receive(data, now)     # what has to be done with the peer connection, if anything
    signalling.answered(step, sdp, sections=sections, agent_mid=mid, now=now)

The order of messages is the protocol's: `join` is first, `track_published` comes before the answer that has
the track, an `update` before the response to the request that caused it. docs/livekit.md has the sequences
that the SDKs need."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

from livekit.protocol import models, rtc

from mediaserver.rooms.active_speakers import Speaking
from mediaserver.rooms.errors import BadSignal, RoomError
from mediaserver.rooms.livekit import messages
from mediaserver.rooms.livekit.tracks import Tracks
from mediaserver.rooms.participant import AGENT_STATE, Participant
from mediaserver.rooms.room import LeaveReason, Room, RoomObserver
from mediaserver.rooms.webrtc.sdp_munging import AudioSection
from mediaserver.settings.ice_servers import IceServersFor
from pipeline.net.untrusted import read_json

log = logging.getLogger(__name__)

Send = Callable[[rtc.SignalResponse], None]

RESUME_S: Final = 30.0
"""Seconds in which a client that lost its WebSocket may resume; media continues meanwhile."""

ENCRYPTED: Final = "end-to-end encryption is on in this client: the agent could not hear it"

BURST: Final = 300
RATE: Final = 50.0
"""The most messages at once and per second: trickled candidates arrive by the dozen."""


class SignalState(Enum):
    """JOINING: nothing sent yet; ATTACHED: the WebSocket is open; DETACHED: the WebSocket was lost; GONE:
    final."""

    JOINING = "joining"
    ATTACHED = "attached"
    DETACHED = "detached"
    GONE = "gone"


NEXT_STATES: Final[Mapping[SignalState, frozenset[SignalState]]] = {
    SignalState.JOINING: frozenset({SignalState.ATTACHED, SignalState.GONE}),
    # Attached again while attached: the client noticed the loss of its socket first.
    SignalState.ATTACHED: frozenset({SignalState.ATTACHED, SignalState.DETACHED, SignalState.GONE}),
    SignalState.DETACHED: frozenset({SignalState.ATTACHED, SignalState.GONE}),
    SignalState.GONE: frozenset(),
}


@dataclass(frozen=True, slots=True)
class AnswerOffer:
    """Step: answer the offer of the client's own peer connection, then call `answered`."""

    id: int
    sdp: str


@dataclass(frozen=True, slots=True)
class UseAnswer:
    """Step: take the client's answer to the server's offer."""

    sdp: str


@dataclass(frozen=True, slots=True)
class AddCandidate:
    """Step: add a trickled candidate, to the server's peer connection (`ours`) or to the client's."""

    ours: bool
    candidate: str


@dataclass(frozen=True, slots=True)
class Listen:
    """Step: start or stop sending the agent's audio, as the client wants."""

    wanted: bool


@dataclass(frozen=True, slots=True)
class Leave:
    """Step: remove the client, which leaves. Not `wished`: the client gave no reason, as the Rust SDK does
    when it is about to join again."""

    wished: bool = True


@dataclass(frozen=True, slots=True)
class Refuse:
    """Step: remove the client, which cannot take part, for the reason `why`."""

    why: str


SignallingStep = AnswerOffer | UseAnswer | AddCandidate | Listen | Leave | Refuse


class Signalling(RoomObserver):
    """Signalling of one client. `dual`: the client joined by `/rtc` and has two peer connections."""

    def __init__(
        self, room: Room, participant: Participant, *, dual: bool, ice_servers: IceServersFor = lambda sid: ()
    ) -> None:
        self.state = SignalState.JOINING
        self.heard_s = 0.0
        """Loop time of the client's last message."""
        self.on_gone: Callable[[LeaveReason], None] | None = None
        """Called once the participant has left the room or was removed."""
        self._room = room
        self._participant = participant
        self._dual = dual
        self._ice_servers = partial(ice_servers, participant.sid)
        self._send: Send | None = None
        self._tokens = float(BURST)
        self._tracks = Tracks(participant)
        self._sections_asked = False
        self._agent_spoke = False
        self._shown: set[str] = set()  # sids of those whom this client sees
        self._detached_s = 0.0

    # The WebSocket ------------------------------------------------------------------------------------------

    def attach(self, send: Send, now: float) -> None:
        """Joins the client: sends `JoinResponse`, with every visible participant."""
        self._become(SignalState.ATTACHED)
        self._send, self.heard_s = send, now
        self._room.observe(self)
        self._shown = {each.sid for each in messages.seen_by(self._room, self._participant)}
        self.send(
            messages.join_response(
                self._room,
                self._participant,
                dual=self._dual,
                ice_servers=self._ice_servers(),
            )
        )

    def resume(self, send: Send, now: float, *, last_sequence: int) -> None:
        """Reattaches a client that kept its session. Raises `RoomError` when the session is over."""
        self._become(SignalState.ATTACHED)
        self._send, self.heard_s, self._tokens = send, now, float(BURST)
        self.send(messages.reconnect_response(last_sequence, ice_servers=self._ice_servers()))
        # All participants: a client takes a missing one for one who left.
        others = messages.seen_by(self._room, self._participant)
        self._shown = {each.sid for each in others}
        self.send(messages.update([self._participant, *others]))

    def detach(self, now: float) -> None:
        """Notes that the WebSocket is lost; the client has `RESUME_S` seconds to resume."""
        if self.state is SignalState.ATTACHED:
            self._become(SignalState.DETACHED)
            self._send, self._detached_s = None, now

    def lapsed(self, now: float) -> bool:
        """Whether the client has been detached for longer than `RESUME_S`."""
        return self.state is SignalState.DETACHED and now - self._detached_s > RESUME_S

    def silent(self, now: float) -> bool:
        """Whether the WebSocket is open while the client has sent nothing for twice the ping time-out."""
        return self.state is SignalState.ATTACHED and now - self.heard_s > 2 * messages.PING_TIMEOUT_S

    def send(self, response: rtc.SignalResponse) -> None:
        """Sends to the client. Without a WebSocket the message is dropped: a client that resumes gets the
        whole state again."""
        if self._send is not None:
            self._send(response)

    # From the client ----------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> SignallingStep | None:
        """Takes one message. Raises `BadSignal` for a malformed message, and for too many."""
        if self.state is not SignalState.ATTACHED:
            return None
        self._tokens = min(float(BURST), self._tokens + (now - self.heard_s) * RATE) - 1.0
        self.heard_s = now
        if self._tokens < 0:
            raise BadSignal("too many messages")
        request = messages.parse_request(data)
        taken = _REQUESTS.get(request.WhichOneof("message") or "")
        return taken(self, request, now) if taken is not None else None

    def add_track(self, wish: rtc.AddTrackRequest) -> Refuse | None:
        """Handles the announcement of a track: a microphone is accepted, any other track refused. Returns
        `Refuse` for one that is encrypted end to end."""
        if wish.encryption != models.Encryption.NONE:
            self._refuse(wish, ENCRYPTED)
            return Refuse(ENCRYPTED)
        track = self._tracks.announce(wish)
        if isinstance(track, str):
            self._refuse(wish, track)
        else:
            published = rtc.TrackPublishedResponse(cid=wish.cid, track=messages.track_info(track))
            self.send(rtc.SignalResponse(track_published=published))
        return None

    def _refuse(self, wish: rtc.AddTrackRequest, why: str) -> None:
        self.send(messages.request_response(rtc.RequestResponse.NOT_ALLOWED, why, add_track=wish))

    def _offer(self, request: rtc.SignalRequest, now: float) -> SignallingStep:
        return AnswerOffer(request.offer.id, request.offer.sdp)

    def _answer(self, request: rtc.SignalRequest, now: float) -> SignallingStep:
        return UseAnswer(request.answer.sdp)

    def _trickle(self, request: rtc.SignalRequest, now: float) -> SignallingStep | None:
        trickle = request.trickle
        try:
            init = read_json(trickle.candidateInit)
            candidate = init["candidate"]
        except (ValueError, LookupError, TypeError):
            raise BadSignal("malformed candidate") from None
        if not isinstance(candidate, str) or not candidate:
            return None
        return AddCandidate(self._dual and trickle.target == rtc.SUBSCRIBER, candidate)

    def _add_track(self, request: rtc.SignalRequest, now: float) -> SignallingStep | None:
        return self.add_track(request.add_track)

    def _mute(self, request: rtc.SignalRequest, now: float) -> None:
        mute = request.mute
        self._tracks.mute(mute.sid, mute.muted)
        self._room.mute(self._participant, mute.sid, mute.muted, now)

    def _subscription(self, request: rtc.SignalRequest, now: float) -> SignallingStep | None:
        wish = request.subscription
        sids = {*wish.track_sids, *(sid for each in wish.participant_tracks for sid in each.track_sids)}
        return Listen(wish.subscribe) if self._room.agent_track.sid in sids else None

    def _track_setting(self, request: rtc.SignalRequest, now: float) -> SignallingStep | None:
        wish = request.track_setting
        return Listen(not wish.disabled) if self._room.agent_track.sid in wish.track_sids else None

    def _ping(self, request: rtc.SignalRequest, now: float) -> None:
        self.send(rtc.SignalResponse(pong=_wall_ms()))

    def _ping_req(self, request: rtc.SignalRequest, now: float) -> None:
        pong = rtc.Pong(last_ping_timestamp=request.ping_req.timestamp, timestamp=_wall_ms())
        self.send(rtc.SignalResponse(pong_resp=pong))

    def _update_metadata(self, request: rtc.SignalRequest, now: float) -> None:
        wish = request.update_metadata
        reason, message = rtc.RequestResponse.OK, ""
        if not self._participant.permissions.update_own_metadata:
            reason, message = rtc.RequestResponse.NOT_ALLOWED, "not allowed to change own metadata"
        else:
            try:
                self._room.describe(
                    self._participant,
                    now,
                    name=wish.name or None,
                    metadata=wish.metadata or None,
                    attributes=dict(wish.attributes),
                )
            except RoomError as error:
                reason, message = rtc.RequestResponse.LIMIT_EXCEEDED, str(error)
        self.send(messages.request_response(reason, message, request_id=wish.request_id))

    def _leave(self, request: rtc.SignalRequest, now: float) -> SignallingStep:
        return Leave(wished=request.leave.reason != models.UNKNOWN_REASON)

    # Results of steps ---------------------------------------------------------------------------------------

    def answered(
        self, step: AnswerOffer, sdp: str, *, sections: Sequence[AudioSection], agent_mid: str, now: float
    ) -> None:
        """Sends the answer `sdp`, publishes the offer's new tracks and unpublishes those that it lacks."""
        answer = rtc.SessionDescription(type="answer", sdp=sdp, id=step.id)
        if agent_mid:
            answer.mid_to_track_id[agent_mid] = self._room.agent_track.sid
        self.send(rtc.SignalResponse(answer=answer))
        if not agent_mid and not self._dual and not self._sections_asked:
            self._sections_asked = True
            wanted = rtc.MediaSectionsRequirement(num_audios=1, num_videos=0)
            self.send(rtc.SignalResponse(media_sections_requirement=wanted))
        lost, found = self._tracks.offered(sections)
        for track in lost:
            self._room.unpublish(self._participant, track.sid, now)
        for track in found:
            self._room.publish(self._participant, track, now)

    def offer(self, sdp: str, *, mid: str, number: int) -> None:
        """Sends the server's offer to a client with two peer connections."""
        offer = rtc.SessionDescription(type="offer", sdp=sdp, id=number)
        offer.mid_to_track_id[mid] = self._room.agent_track.sid
        self.send(rtc.SignalResponse(offer=offer))

    def track_subscribed(self, sid: str) -> None:
        """Tells the client that its track is subscribed, once the first packet has arrived; SDKs do not know
        the track before."""
        self.send(rtc.SignalResponse(track_subscribed=rtc.TrackSubscribed(track_sid=sid)))

    # From the room (`RoomObserver`) -------------------------------------------------------------------------

    def participant_joined(self, participant: Participant, now: float) -> None:
        """Sends the participant and the room's new counts."""
        self._told_of(participant)
        self.room_changed(now)

    def room_changed(self, now: float) -> None:
        """Sends the room's counts and metadata."""
        self.send(rtc.SignalResponse(room_update=rtc.RoomUpdate(room=messages.room_info(self._room))))

    def muted_remotely(self, participant: Participant, sid: str, now: float) -> None:
        """Asks the client to mute its own track."""
        if participant is self._participant:
            self.send(rtc.SignalResponse(mute=rtc.MuteTrackRequest(sid=sid, muted=True)))

    def participant_changed(self, participant: Participant, now: float) -> None:
        """Sends the participant; for the agent also whether it speaks, where that changed."""
        self._told_of(participant)
        if participant is self._room.agent:
            speaks = participant.attributes.get(AGENT_STATE) == "speaking"
            if speaks != self._agent_spoke:
                self._agent_spoke = speaks
                self.send(messages.speakers(participant, speaks))

    def speakers_changed(self, changes: Sequence[Speaking], now: float) -> None:
        """Sends `SpeakersChanged` for visible participants."""
        for each in changes:
            if not each.participant.permissions.hidden:
                self.send(messages.speakers(each.participant, each.active, level=each.level))

    def participant_left(self, participant: Participant, reason: LeaveReason, now: float) -> None:
        """Sends that the participant has left; ends the session if it is this client's own."""
        if participant is self._participant:
            self.end(reason)
        elif not participant.permissions.hidden:
            self.send(messages.update([participant], reason))
            self.room_changed(now)
        self._shown.discard(participant.sid)

    def _told_of(self, participant: Participant) -> None:
        """Sends the participant; of one who is hidden from now on, that they have left."""
        if participant is self._participant or not participant.permissions.hidden:
            self._shown.add(participant.sid)
            self.send(messages.update([participant]))
        elif participant.sid in self._shown:
            self._shown.discard(participant.sid)
            self.send(messages.vanished(participant))

    def end(self, reason: LeaveReason) -> None:
        """Sends `LeaveRequest` and leaves the room's observers. Does nothing when called again."""
        if self.state is SignalState.GONE:
            return
        self.send(messages.leave(reason))
        self._become(SignalState.GONE)
        self._send = None
        self._room.forget(self)
        on_gone, self.on_gone = self.on_gone, None
        if on_gone is not None:
            on_gone(reason)

    def _become(self, state: SignalState) -> None:
        if state not in NEXT_STATES[self.state]:
            raise RoomError(f"signalling cannot become {state.value} from {self.state.value}")
        self.state = state


def _wall_ms() -> int:
    return int(time.time() * 1000)


_REQUESTS: Final[Mapping[str, Callable[[Signalling, rtc.SignalRequest, float], SignallingStep | None]]] = {
    "offer": Signalling._offer,
    "answer": Signalling._answer,
    "trickle": Signalling._trickle,
    "add_track": Signalling._add_track,
    "mute": Signalling._mute,
    "subscription": Signalling._subscription,
    "track_setting": Signalling._track_setting,
    "update_metadata": Signalling._update_metadata,
    "ping": Signalling._ping,
    "ping_req": Signalling._ping_req,
    "leave": Signalling._leave,
    # Ignored: the server subscribes nobody to video, holds no state that sync_state would restore, lets
    # every subscriber hear every microphone, and simulates nothing:
    # sync_state, subscription_permission, update_layers, update_audio_track, update_video_track, simulate
}
