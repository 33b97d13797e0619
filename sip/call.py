"""A phone call as an application uses it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from pipeline.audio import Pcm
from pipeline.leg import AudioSource, LegListener
from sip.dialog.events import (
    ChangeFinished,
    DigitsReceived,
    Event,
    InviteAnswered,
    InviteEnded,
    InviteProgressed,
    MediaAgreed,
    Move,
    MoveAsked,
)
from sip.dialog.invite import Offered, Signalled
from sip.dialog.onward import Onward
from sip.dialog.referral import Referral, replacing
from sip.errors import LocalError, RemoteError
from sip.identity import CallerIdentity, caller_identity
from sip.message.headers import Headers
from sip.message.message import Request
from sip.message.uri import Uri
from sip.reason import Reason
from sip.rtp.clip import Clip
from sip.rtp.media_stream import MediaStats, MediaStream
from sip.rtp.stream_security import Encryption, Insecure
from sip.sdp.media_plan import MediaPlan
from sip.states import CallState, Direction, HangupCause
from sip.telephones.forking import Forking
from sip.transaction.traces import CallTrace
from sip.trunk_settings import TrunkSettings

log = logging.getLogger(__name__)

StateCallback: TypeAlias = "Callable[[Call, CallState, float], None]"

MOVES: Mapping[CallState, frozenset[CallState]] = {
    CallState.OFFERED: frozenset({CallState.RINGING, CallState.ANSWERED, CallState.ENDED}),
    CallState.DIALING: frozenset({CallState.RINGING, CallState.ANSWERED, CallState.ENDED}),
    CallState.RINGING: frozenset({CallState.RINGING, CallState.ANSWERED, CallState.ENDED}),
    CallState.ANSWERED: frozenset({CallState.ENDED}),
    CallState.ENDED: frozenset(),
}
"""The states that may follow each state of a call."""


class CallFailed(RemoteError):
    """The call ended before it was answered, or could not be placed. `code` is the SIP status (487 for a
    CANCEL), `retry_after_s` the far end's Retry-After in seconds."""

    def __init__(
        self, message: str, code: int, cause: HangupCause, *, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message, code)
        self.cause = cause
        self.retry_after_s = retry_after_s


class SessionChange:
    """A hold or resume of a call, one at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._status: asyncio.Future[int] | None = None

    async def made(self, ask: Callable[[], None]) -> None:
        """Asks for the change and waits for the far end's answer. Raises `LocalError`, `RemoteError`."""
        if self._status is not None:
            raise LocalError("another hold or resume is under way")
        self._status = self._loop.create_future()
        try:
            ask()
            status = await self._status
        finally:
            self._status = None
        if status >= 300:
            raise RemoteError("the far end does not change the session", status)

    def finished(self, status: int) -> None:
        """Takes the far end's answer."""
        if self._status is not None and not self._status.done():
            self._status.set_result(status)


class Phone(Protocol):
    """What a call needs of its endpoint."""

    loop: asyncio.AbstractEventLoop

    def flush(self) -> None:
        """Sends the stack's pending messages and emits its pending events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parties:
    """Direction, local and remote number of a call. Of one that came, `caller` says who calls, and `headers`
    are those of its INVITE; `user`: the user of this server who calls, "" for none."""

    direction: Direction
    local_number: str
    remote_number: str
    caller: CallerIdentity | None = None
    headers: Headers = field(default_factory=Headers)
    user: str = ""

    @classmethod
    def of_invite(cls, request: Request, called: str, trunk: TrunkSettings, user: str = "") -> Parties:
        """Returns the parties of a call that came over `trunk` for the number `called`. A `user` is who its
        password says, whatever its From is."""
        caller = CallerIdentity(number=user) if user else caller_identity(request.headers, trunk.identity)
        return cls(
            direction=Direction.INBOUND,
            local_number=called,
            remote_number=caller.number,
            caller=caller,
            headers=request.headers,
            user=user,
        )


def decline(call: Call, move: Move) -> None:
    """Declines a REFER of the far end of `call`, as every call does unless told otherwise."""
    call.tell(move, 603)


def keep_place(call: Call, by: Call) -> int:
    """Returns the status with which a call that is to take the place of `call` is refused, as every call does
    unless told otherwise."""
    return 603


class Call:
    """One call (a `pipeline.leg.Leg`). `state` moves OFFERED or DIALING, RINGING, ANSWERED, ENDED.

    `status` is the SIP code that ended the call: of the refusal, 487 after a CANCEL, 200 after a BYE; 0
    before. `early_media`: one side can be heard before the answer. `held`: either side has put the call on
    hold. `onward`: what becomes of it where no server of its trunk takes it. `definite`: the far end gave a
    final response to the INVITE of this side; without one the far end may still ring. `caller`, `headers` and
    `user`: of the INVITE that came, as in `Parties`; `reasons`: those that the far end gave for the end."""

    def __init__(
        self,
        phone: Phone,
        trunk: TrunkSettings,
        call_id: str,
        parties: Parties,
        *,
        invite: Signalled | Forking,
        stream: MediaStream,
    ) -> None:
        self.id = call_id
        self.sip_call_id = invite.usage.dialog_set.call_id
        self.trunk_id = trunk.id
        self.direction = parties.direction
        self.local_number, self.remote_number = parties.local_number, parties.remote_number
        self.caller, self.user, self.headers = parties.caller, parties.user, parties.headers
        self.reasons: tuple[Reason, ...] = ()
        outbound = parties.direction is Direction.OUTBOUND
        self.state = CallState.DIALING if outbound else CallState.OFFERED
        self.cause: HangupCause | None = None
        self.status = 0
        self.ended_by: Literal["local", "remote"] | None = None
        self.retry_after_s: int | None = None
        self.definite = self.early_media = False
        self.on_refer: Callable[[Call, Move], None] = decline
        self.on_replace: Callable[[Call, Call], int] = keep_place  # 0: the second takes the place
        self.trace: CallTrace | None = None  # None: the endpoint keeps none
        self.onward = Onward(phone.loop)
        self._phone, self._trunk = phone, trunk
        self.invite, self._stream = invite, stream
        self._listener: LegListener | None = None
        self._source: AudioSource | None = None
        self._callbacks: list[StateCallback] = []
        self._plan: MediaPlan | None = None
        self._up, self._over = asyncio.Event(), asyncio.Event()  # up: answered and with media, or ended
        self._change = SessionChange(phone.loop)
        self._watch_media()

    def __repr__(self) -> str:
        return f"<Call {self.id} {self.direction} {self.state}>"

    # State ------------------------------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """Whether either side has put the call on hold."""
        return self.invite.usage.held

    @property
    def rate_hz(self) -> int:
        """Sampling rate of frames in both directions, in Hz. Raises `LocalError` before media is
        negotiated."""
        return self._stream.rate_hz

    @property
    def stats(self) -> MediaStats:
        """What the media stream has counted; readable after the end of the call as well."""
        return self._stream.stats

    @property
    def encryption(self) -> Encryption:
        """How the media is protected; readable after the end of the call as well."""
        return self._stream.security.encryption

    # Verbs ------------------------------------------------------------------------------------------------

    async def ring(self, *, early_media: bool = False) -> None:
        """Sends 180 to the caller, or 183 with `early_media`, whose attached source is heard before the
        answer. Raises `LocalError` unless the call is incoming and not answered yet."""
        invite = self._incoming()
        self._do(lambda now: invite.ring(now, early_media=early_media))
        self.early_media = self.early_media or (early_media and self._plan is not None)
        if self.state is CallState.OFFERED:
            self._move(CallState.RINGING, self._phone.loop.time())

    async def answer(self) -> None:
        """Answers; returns when audio flows both ways. Raises `CallFailed` if the caller has hung up by then,
        `LocalError` unless the call is incoming and not answered yet."""
        self._do(self._incoming().accept)
        await self.answered()

    async def reject(self, code: int = 603) -> None:
        """Refuses an incoming call with a SIP status (486 busy, 480 unavailable, 603 declined). Raises
        `LocalError` for a status outside 400 to 699, and unless the call is incoming and not answered yet."""
        if not 400 <= code <= 699:
            raise LocalError("a call is refused with a status of 400 to 699")
        invite = self._incoming()
        self._do(lambda now: invite.reject(code, now))

    async def answered(self) -> None:
        """Waits until the call is answered and its audio negotiated. Raises `CallFailed` when the call ends
        first."""
        await self._up.wait()
        if self.state is CallState.ENDED:
            cause = self.cause or HangupCause.REMOTE_ERROR
            raise CallFailed(f"call not up: {cause}", self.status, cause, retry_after_s=self.retry_after_s)

    async def hang_up(self, cause: HangupCause = HangupCause.NORMAL) -> None:
        """Ends the call in any state, by BYE, a refusal or CANCEL. CANCEL takes effect after the far end's
        first response; `ended()` waits for the end. Does nothing after the end."""
        self.onward.given_up = self.onward.given_up or cause
        self._do(lambda now: self.invite.hang_up(now, cause=cause))

    async def ended(self) -> HangupCause:
        """Waits until the call is over and returns the cause."""
        await self._over.wait()
        return self.cause or HangupCause.NORMAL

    async def hold(self) -> None:
        """Puts the far end on hold: the attached source is still sent, the far end's audio is not heard.
        Raises `RemoteError` when the far end refuses, `LocalError` unless the call is up and no other change
        under way."""
        await self._change.made(lambda: self._do(lambda now: self.invite.set_hold(True, now)))

    async def resume(self) -> None:
        """Takes the far end off hold; raises as `hold` does."""
        await self._change.made(lambda: self._do(lambda now: self.invite.set_hold(False, now)))

    @property
    def refers(self) -> bool:
        """Whether the far end takes a REFER, as far as it tells."""
        return self.invite.usage.peer_refers

    def refer(self, to: Uri, changed: Callable[[Referral, float], None]) -> Referral:
        """Asks the far end to call `to` in place of this side (RFC 3515). The call stays up: whoever asks
        hangs it up by what `changed` tells. Raises `LocalError` unless the call is up, and while another
        referral is under way."""
        referral = Referral(self.invite.usage, to, changed)
        self._do(referral.send)
        return referral

    @property
    def movable(self) -> bool:
        """Whether `on_refer` and `on_replace` are called with REFERs and INVITEs that lead elsewhere."""
        return self._trunk.accept_refer

    def tell(self, move: Move, status: int) -> None:
        """Tells the far end how the call goes that it asked for; a status from 200 on is the last one."""
        self._do(lambda now: move.tell(status, now))

    def replaced_by(self, target: Uri) -> Uri:
        """Returns where a far end is referred that is to take the place of this side in this call (RFC 3891).
        Raises `LocalError` unless the call is up."""
        dialog = self.invite.usage.dialog
        if dialog is None or not self.invite.usage.confirmed:
            raise LocalError("only a call that is up can be replaced")
        return replacing(target, dialog)

    async def send_dtmf(self, digits: str) -> None:
        """Sends `digits` (0-9, *, #, A-D) and returns when the last has been sent, or the call has ended.
        Raises ValueError for other characters, `LocalError` before media is negotiated."""
        try:
            await self._stream.send_dtmf(digits)
        except LocalError:
            if self.state is not CallState.ENDED:
                raise

    async def play(self, samples: Pcm, rate_hz: int) -> None:
        """Plays a recording in place of the attached source; returns when it was sent, or the call ended."""
        clip = Clip(samples, rate_hz, self.rate_hz)
        self._stream.attach(self._listener, clip)
        try:
            await clip.played(self._over)
        finally:
            if self.state is not CallState.ENDED:
                self._stream.attach(self._listener, self._source)

    def position(self) -> int:
        """Returns where the far end's next frame is on its media clock."""
        return self._stream.position

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """Attaches a listener and a source; None detaches. A listener is told at once of an end before."""
        self._listener, self._source = listener, source
        if self.state is CallState.ENDED:
            self._tell_listener(self._phone.loop.time())
        else:
            self._stream.attach(listener, source)

    def on_state(self, callback: StateCallback) -> None:
        """Registers `callback(call, state, now)` for every change of state; it must not raise."""
        if self.state is not CallState.ENDED:
            self._callbacks.append(callback)

    def go_over(self, trunk: TrunkSettings, invite: Signalled, stream: MediaStream) -> None:
        """Takes another trunk, with the INVITE that is about to leave over it."""
        self.trunk_id, self._trunk, self.invite, self._stream = trunk.id, trunk, invite, stream
        self._plan = None
        self._watch_media()
        stream.attach(self._listener, self._source)

    # Events -----------------------------------------------------------------------------------------------

    def take(self, event: Event, now: float) -> None:
        """Applies an event of the stack to this call."""
        match event:
            case InviteEnded():
                self._end(event, now)
            case MediaAgreed(plan=plan):
                self._agree(plan)
            case InviteAnswered():
                self._come_up(now)
            case InviteProgressed():
                self._progress(event, now)
            case MoveAsked(move=move):
                self.on_refer(self, move)
            case DigitsReceived(digit=digit):
                self._stream.key_received(digit, now)
            case ChangeFinished(status=status):
                self._change.finished(status)

    # Internals --------------------------------------------------------------------------------------------

    def _incoming(self) -> Offered:
        if not isinstance(self.invite, Offered):
            raise LocalError("only an incoming call can be answered")
        return self.invite

    def _do(self, verb: Callable[[float], None]) -> None:
        try:
            verb(self._phone.loop.time())
        finally:
            self._phone.flush()

    def _move(self, state: CallState, now: float) -> None:
        if state not in MOVES[self.state]:
            raise LocalError(f"a call does not go from {self.state} to {state}")
        self.state = state
        for callback in list(self._callbacks):
            callback(self, state, now)

    def _agree(self, plan: MediaPlan) -> None:
        settings = self._trunk
        # Before the answer the far end need not send RTP, so only after it does silence mean that the far end
        # is gone.
        answered = self.state is CallState.ANSWERED
        new = plan is not self._plan
        try:
            sends = self._stream.configure(
                plan,
                symmetric=settings.symmetric_rtp is not False,
                media_timeout_s=settings.media_timeout_s if answered else math.inf,
                inband_dtmf=settings.inband_dtmf,
            )
        except LocalError:  # no IP address, or of another family than the socket
            self._do(lambda now: self.invite.hang_up(now, cause=HangupCause.INCOMPATIBLE))
            return
        self._plan = plan
        if new and not sends:
            self.invite.usage.refusals.note(plan.remote_host)
        if answered:
            self._up.set()

    def _progress(self, event: InviteProgressed, now: float) -> None:
        self.early_media = self.early_media or event.early_media
        if event.status >= 180 and self.state is CallState.DIALING:
            self._move(CallState.RINGING, now)

    def _come_up(self, now: float) -> None:
        self._move(CallState.ANSWERED, now)
        if self._plan is not None:
            self._agree(self._plan)

    def _media_timed_out(self) -> None:
        cause = HangupCause.MEDIA_TIMEOUT if self._stream.sends else HangupCause.ADDRESS_REFUSED
        self._do(lambda now: self.invite.hang_up(now, cause=cause))

    def _media_insecure(self, wrong: Insecure, reason: str) -> None:
        named = {"call_id": self.id, "trunk": self.trunk_id}
        if wrong is Insecure.FORGED:
            log.warning("packets are not authentic", extra=named)
            return
        log.warning("no keys for the audio", extra={**named, "reason": reason})
        self._do(lambda now: self.invite.hang_up(now, cause=HangupCause.INCOMPATIBLE))

    def _end(self, event: InviteEnded, now: float) -> None:
        self._stream.attach(None, None)
        self._stream.on_timeout = self._stream.on_insecure = None
        self._stream.close()
        if self.onward.takes(event, self._end):
            return
        self.cause, self.status, self.ended_by = event.cause, event.status, event.by
        self.retry_after_s, self.definite, self.reasons = event.retry_after_s, event.definite, event.reasons
        self.onward.go_on = None
        self._move(CallState.ENDED, now)
        self._callbacks.clear()  # no state follows; a callback's owner often refers to the call
        self._tell_listener(now)
        self._up.set()
        self._over.set()

    def _watch_media(self) -> None:
        self._stream.on_timeout, self._stream.on_insecure = self._media_timed_out, self._media_insecure

    def _tell_listener(self, now: float) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.leg_ended(str(self.cause), now)
