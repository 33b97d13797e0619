"""An open room of this node with its bridge, participants and call."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field, replace

from mediaserver.calls.live_conversation import LiveConversation
from mediaserver.calls.phone_call import PhoneCall
from mediaserver.calls.services import CallProfile, CallServices
from mediaserver.calls.take_over import TakeOverEnd
from mediaserver.queue.records import Claim, NewWebCall
from mediaserver.rooms.active_speakers import Speakers
from mediaserver.rooms.agent_methods import methods_of
from mediaserver.rooms.errors import TokenRefused
from mediaserver.rooms.participant import AGENT_NAME, Participant
from mediaserver.rooms.participant_leg import ParticipantLeg
from mediaserver.rooms.room import LeaveReason, Room, RoomObserver
from mediaserver.rooms.sip_participant import SipParticipant
from mediaserver.rooms.supervision import Supervision
from mediaserver.rooms.tokens import Grant
from mediaserver.rooms.web_call import WebCall, WebCallRequest
from pipeline.leg import Leg
from pipeline.media.bridge import Bridge


@dataclass(frozen=True, slots=True)
class JoinGrant:
    """What a client needs to join: the response to `POST /api/v1/web-calls/connect`."""

    server_url: str
    room_name: str
    token: str
    identity: str


@dataclass(slots=True)
class OpenRoom(RoomObserver):
    """A room on this node with its bridge, its participants and its conversation. Nobody hears whom the
    server has muted."""

    room: Room
    company_id: str
    request: WebCallRequest
    bridge: Bridge
    participant_legs: dict[str, ParticipantLeg] = field(default_factory=dict)  # by participant sid
    sip_participants: dict[str, SipParticipant] = field(default_factory=dict)  # by participant sid
    dialling: set[str] = field(default_factory=set)  # identities of telephones that are not in the room yet
    dialled: set[str] = field(default_factory=set)  # numbers that no further transfer calls
    speakers: Speakers = field(default_factory=Speakers)
    call: WebCall | None = None
    task: asyncio.Task[None] | None = None
    phone: PhoneCall | None = None  # the phone call that this room is for supervisors of
    supervision: Supervision = field(init=False)

    def __post_init__(self) -> None:
        self.supervision = Supervision(self)
        self.room.observe(self)
        self.room.methods.update(methods_of(self.room, self.bridge))
        self.room.agent.attributes[AGENT_NAME] = self.agent_id

    def participant_changed(self, participant: Participant, now: float) -> None:
        """Mutes the participant in the bridge, or no longer, as the server wants it."""
        leg = self.participant_legs.get(participant.sid)
        if leg is not None:
            self.bridge.mute(leg, participant.silenced)
            self._note(leg, self._held)

    def _note(self, leg: ParticipantLeg, call: PhoneCall | WebCall | None) -> None:
        """Notes the role that a supervisor really has."""
        seat = self.bridge.seat(leg)
        if leg.participant.supervises and call is not None and seat is not None:
            call.cdr.supervised(leg.participant.identity, seat.role.value)

    def participant_left(self, participant: Participant, reason: LeaveReason, now: float) -> None:
        """Has the agent take the call back from a supervisor, who does not come back where they were put
        out."""
        if reason is LeaveReason.REMOVED:
            self.supervision.put_out(participant)
        lost = reason is LeaveReason.DUPLICATE_IDENTITY
        self.supervision.left(participant, TakeOverEnd.LOST if lost else TakeOverEnd.HANDED_BACK)
        if participant.supervises and self._held is not None:
            self._held.cdr.supervised(participant.identity, "")

    @property
    def begun(self) -> bool:
        """Whether the conversation has begun."""
        return self.task is not None or self.phone is not None

    @property
    def conversation(self) -> LiveConversation | None:
        """The agent's conversation, None before and after it."""
        return self._held.conversation if self._held is not None else None

    @property
    def _held(self) -> PhoneCall | WebCall | None:
        """The call with which the room is held."""
        return self.phone or self.call

    @property
    def agent_id(self) -> str:
        """The id of the agent that talks in the room."""
        return self.request.agent_id

    def admitted(self, grant: Grant) -> Grant:
        """Returns what a token grants in this room now. Raises `TokenRefused` for a supervisor who was put
        out, and for anybody else in a phone call."""
        if grant.role is not None:
            return replace(grant, role=self.supervision.admitted(grant.identity, grant.role))
        if self.phone is not None:
            raise TokenRefused("only supervisors join a phone call")
        return grant

    def people(self) -> dict[Leg, Participant]:
        """Returns the participant of each leg, telephones included."""
        who: dict[Leg, Participant] = {leg: leg.participant for leg in self.participant_legs.values()}
        return who | {
            sip_participant.call: sip_participant.participant
            for sip_participant in self.sip_participants.values()
        }

    def look(self, now: float) -> None:
        """Notifies the room of participants who began or stopped speaking."""
        who = self.people()
        seats = [seat for seat in self.bridge.seats if seat.speaks and seat.leg in who]
        self.supervision.look(now)
        changes = self.speakers.look((who[seat.leg], seat.loudness()) for seat in seats)
        if changes:
            self.room.speaking(changes, now)

    async def remove_participant(self, reason: LeaveReason, now: float) -> None:
        """Closes the room and disconnects every participant."""
        self.room.close(reason, now)
        participant_legs, self.participant_legs = list(self.participant_legs.values()), {}
        sip_participants, self.sip_participants = list(self.sip_participants.values()), {}
        await asyncio.gather(
            self.supervision.close(),
            *(leg.gone(reason.value) for leg in participant_legs),
            *(sip_participant.gone() for sip_participant in sip_participants),
        )

    def new_call(self) -> NewWebCall:
        """Makes the row of the conversation that begins in this room."""
        request = self.request
        return NewWebCall(
            call_id=self.room.name,
            company_id=self.company_id,
            agent_id=request.agent_id,
            webhook_id=str(uuid.uuid4()),
            user_ref=request.user_ref,
            variables=request.variables,
            metadata=request.metadata,
        )

    def new_web_call(self, claim: Claim, profile: CallProfile, services: CallServices) -> WebCall:
        """Makes the agent's conversation with the participants of this room."""
        call = WebCall(claim, profile, services, room=self.room, bridge=self.bridge, dialled=self.dialled)
        for leg in self.participant_legs.values():
            self._note(leg, call)  # a supervisor may be there first
        call.captions.speaking, call.captions.participant_of = self.speaking, self.participant_of
        return call

    def participant_of(self, leg: Leg) -> Participant | None:
        """Returns the participant behind `leg`, also one who has left; None for a telephone that has."""
        return leg.participant if isinstance(leg, ParticipantLeg) else self.people().get(leg)

    def speaking(self, now: float) -> Participant | None:
        """Returns the participant whom the agent hears now, or heard last; None where none has spoken."""
        leg = self.bridge.speaking(now)
        return self.people().get(leg) if leg is not None else None


@dataclass(frozen=True, slots=True)
class Entry:
    """A participant's place in a room. `evicted`: the earlier connection of the same identity, which was
    removed."""

    room: Room
    leg: ParticipantLeg
    evicted: ParticipantLeg | None = None
