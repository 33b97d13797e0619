"""The supervisors of one call: roles that change while they are in it, and one who talks in the agent's
place."""

from __future__ import annotations

import asyncio
import logging
import weakref
from dataclasses import replace
from typing import Final, Protocol

from mediaserver.calls.live_conversation import LiveConversation
from mediaserver.calls.take_over import TakeOver, TakeOverEnd
from mediaserver.errors import Conflict
from mediaserver.rooms.errors import TokenRefused
from mediaserver.rooms.participant import AGENT_STATE, Participant
from mediaserver.rooms.participant_leg import ParticipantLeg
from mediaserver.rooms.room import Room
from pipeline.media.bridge import Bridge, Seat
from pipeline.media.who_hears import UNSEEN, Role
from pipeline.session.person_transcript import PersonTranscript

log = logging.getLogger(__name__)

ROLE: Final = "supervisor.role"
REFUSED: Final = "supervisor.refused"
"""Attributes that tell a supervisor's client the role, and why another one was refused."""

LOST_S: Final = 3.0
"""After so long without a packet a supervisor who talks in the agent's place is lost, unless muted: a client
that suppresses silence sends one every 0.4 s."""

GONE_S: Final = 8.0
"""After so long without audio and without a check of the connection (RFC 7675), of which each side makes one
every 4 to 6 s, a supervisor who is muted is lost."""

MUTED_S: Final = 60.0
"""The longest that a caller is left in silence by a supervisor who is muted."""


class Supervised(Protocol):
    """The call that is supervised, as a room."""

    room: Room
    bridge: Bridge
    participant_legs: dict[str, ParticipantLeg]

    @property
    def conversation(self) -> LiveConversation | None:
        """The agent's conversation, None before and after it."""


class Supervision:
    """The supervisors in `opened`. Roles are given here alone."""

    def __init__(self, opened: Supervised) -> None:
        self._owner = weakref.ref(opened)  # which holds this: both are freed at once
        self._waiting: set[str] = set()  # sids of those who take the call over with their first sound
        self._roles: dict[str, Role | None] = {}  # by identity, to join again with; None: put out
        self._muted_s: float | None = None  # since when the one who talks in the agent's place is muted
        self._ears: dict[str, PersonTranscript] = {}  # of those who whisper, by sid
        self._closing: set[asyncio.Task[None]] = set()

    def admitted(self, identity: str, role: Role) -> Role:
        """Returns the role for a supervisor whose token has `role`: the one given last, where they were in
        the call before. Raises `TokenRefused` for one who was put out."""
        role_now = self._roles.get(identity, role)
        if role_now is None:
            raise TokenRefused("this supervisor was put out of the call")
        return role_now

    def invited(self, identity: str, role: Role) -> None:
        """Takes that a supervisor is invited, perhaps again: the role counts for earlier tokens too."""
        if identity in self._roles:
            self._roles[identity] = role

    def put_out(self, participant: Participant) -> None:
        """Admits a supervisor no more."""
        if participant.supervises:
            self._roles[participant.identity] = None

    def joined(self, participant: Participant, leg: ParticipantLeg) -> None:
        """Takes a participant whose media is up, for the first time or again; one who takes the call over
        listens until something is heard of them."""
        role = participant.role
        if participant.supervises:
            role = self._roles.get(participant.identity) or role
        waits = role is Role.TAKE_OVER
        if waits:
            self._waiting.add(participant.sid)
            role = Role.MONITOR
        if self._bridge.seat(leg) is None:
            self._bridge.add(leg, role=role)
        self._settle(participant, role)
        if waits:
            self._roles[participant.identity] = Role.TAKE_OVER

    def change(self, participant: Participant, role: Role, now: float) -> None:
        """Gives a supervisor another role. Raises `Conflict` for one who is not in the call yet, and where
        they cannot take it over."""
        leg = self._opened.participant_legs.get(participant.sid)
        seat = self._bridge.seat(leg) if leg is not None else None
        if leg is None or seat is None:
            raise Conflict("This supervisor is not in the call yet")
        self._waiting.discard(participant.sid)
        self._remember(participant, participant.role)
        taken = self._taken_by(participant)
        if taken is not None and role is Role.TAKE_OVER:
            if taken.ended:
                raise Conflict("The call is being handed back")
            return
        if taken is not None:
            taken.after = role
            taken.end(TakeOverEnd.HANDED_BACK)
        if role is Role.TAKE_OVER:
            self._take_over(participant, leg, seat, now)
        else:
            self._bridge.change_role(leg, role)
        self._settle(participant, role)

    def left(self, participant: Participant, how: TakeOverEnd = TakeOverEnd.HANDED_BACK) -> None:
        """Takes that a supervisor has left, or that their connection is lost."""
        self._waiting.discard(participant.sid)
        self._close_ears(participant.sid)
        taken = self._taken_by(participant)
        if taken is not None:
            taken.end(how)

    def look(self, now: float) -> None:
        """Lets those take over of whom something is heard, and gives the agent back a caller whose supervisor
        is lost."""
        for sid in tuple(self._waiting):
            leg = self._opened.participant_legs.get(sid)
            seat = self._bridge.seat(leg) if leg is not None else None
            if leg is not None and seat is not None and seat.heard_s:
                self._try(leg.participant, now)
        taken = self._conversation.taken_over if self._conversation is not None else None
        if taken is not None:
            self._check_heard(taken, now)

    async def close(self) -> None:
        """Waits for the last words of those who have left."""
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _try(self, participant: Participant, now: float) -> None:
        try:
            self.change(participant, Role.TAKE_OVER, now)
        except Conflict as refused:
            self._opened.room.describe(participant, now, attributes={REFUSED: str(refused)})

    def _take_over(self, participant: Participant, leg: ParticipantLeg, seat: Seat, now: float) -> None:
        if not seat.heard_s or now - seat.heard_s > LOST_S:
            raise Conflict("Nothing is heard of this supervisor's microphone")
        conversation = self._conversation
        if conversation is None:
            raise Conflict("The agent is not in this conversation now")
        taken = TakeOver(
            self._bridge,
            leg,
            who=participant.identity,
            profile=conversation.profile,
            call_id=self._opened.room.name,
            began=conversation.began,
        )
        conversation.take_over(taken)
        self._muted_s = None
        taken.on_over = lambda how: self._over(participant, taken, how)

    def _over(self, participant: Participant, taken: TakeOver, how: TakeOverEnd) -> None:
        if participant.sid in self._opened.participant_legs:
            self._settle(participant, taken.after)

    def _check_heard(self, taken: TakeOver, now: float) -> None:
        seat = self._bridge.seat(taken.leg)
        legs = self._opened.participant_legs.values()
        participant = next((leg.participant for leg in legs if leg is taken.leg), None)
        if participant is None or seat is None:
            taken.end(TakeOverEnd.LOST)
            return
        if not any(track.muted for track in participant.tracks.values()):
            self._muted_s = None
            lost = now - seat.heard_s > LOST_S
        else:
            self._muted_s = now if self._muted_s is None else self._muted_s
            heard_s = max(seat.heard_s, self._opened.participant_legs[participant.sid].heard_s)
            lost = now - heard_s > GONE_S or now - self._muted_s > MUTED_S
        if lost:
            taken.end(TakeOverEnd.LOST)

    def _remember(self, participant: Participant, role: Role) -> None:
        """Keeps the role with which a supervisor joins again: one who talked in the agent's place listens."""
        if participant.supervises and self._roles.get(participant.identity, role) is not None:
            self._roles[participant.identity] = Role.MONITOR if role is Role.TAKE_OVER else role

    def _settle(self, participant: Participant, role: Role) -> None:
        """Shows the role to clients, and listens to who whispers."""
        participant.role = role
        if not participant.supervises:
            return
        self._remember(participant, role)
        participant.permissions = replace(participant.permissions, hidden=role in UNSEEN)
        now = asyncio.get_running_loop().time()
        self._opened.room.describe(participant, now, attributes={ROLE: role.value, REFUSED: ""})
        if role is Role.TAKE_OVER:
            agent = self._opened.room.agent
            self._opened.room.describe(agent, now, attributes={AGENT_STATE: "listening"})
        if role is Role.WHISPER:
            self._open_ears(participant)
        else:
            self._close_ears(participant.sid)

    def _open_ears(self, participant: Participant) -> None:
        conversation, leg = self._conversation, self._opened.participant_legs.get(participant.sid)
        seat = self._bridge.seat(leg) if leg is not None else None
        if conversation is None or seat is None or participant.sid in self._ears:
            return
        self._ears[participant.sid] = ears = PersonTranscript(
            conversation.profile.engines.stt,
            rate_hz=self._bridge.rate_hz,
            language=conversation.profile.language,
            call_id=self._opened.room.name,
            told=lambda text, confidence, began, ended: self._whispered(text),
        )
        seat.follower = ears.push

    def _whispered(self, text: str) -> None:
        told = self._conversation is not None and self._conversation.whisper(text)
        log.info("supervisor whispered", extra={"call_id": self._opened.room.name, "told": told})

    def _close_ears(self, sid: str) -> None:
        ears = self._ears.pop(sid, None)
        leg = self._opened.participant_legs.get(sid)
        seat = self._bridge.seat(leg) if leg is not None else None
        if seat is not None:
            seat.follower = None
        if ears is not None:
            task = asyncio.create_task(ears.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _taken_by(self, participant: Participant) -> TakeOver | None:
        taken = self._conversation.taken_over if self._conversation is not None else None
        leg = self._opened.participant_legs.get(participant.sid)
        return taken if taken is not None and taken.leg is leg else None

    @property
    def _opened(self) -> Supervised:
        opened = self._owner()
        if opened is None:
            raise Conflict("The call is over")
        return opened

    @property
    def _bridge(self) -> Bridge:
        return self._opened.bridge

    @property
    def _conversation(self) -> LiveConversation | None:
        return self._opened.conversation
