"""A call's life as SIP sees it: the INVITE usage of a dialog (RFC 3261 13 to 15, RFC 5057).

`Invite` is what both roles share: everything that happens while a call is up. How it comes up is different
for the caller (`sip.dialog.uac.OutgoingInvite`) and the called (`sip.dialog.uas.IncomingInvite`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network

from sip.auth.digest import Authorizer, Credentials
from sip.dialog.client_request import ClientRequest
from sip.dialog.dialog import Dialog
from sip.dialog.events import AddressRefused, InviteEnded, MediaAgreed, Side
from sip.dialog.in_dialog import ANSWERS
from sip.dialog.reinvite import Change
from sip.dialog.reliable_response import ReliableResponse
from sip.dialog.session_timer import SessionTimer, SessionTimerSettings
from sip.dialog.ua_core import ALLOW, SUPPORTED_TAGS, Core
from sip.egress import ANY_ADDRESS, Egress, EgressRule
from sip.errors import LocalError, MediaRefused, RemoteError
from sip.message.body import SDP, session_description
from sip.message.headers import Headers
from sip.message.message import Request, response_to
from sip.sdp.offer_answer import OfferAnswer
from sip.states import HangupCause, cause_of_answer
from sip.transaction.timers import Alarm
from sip.transaction.transaction import FireAndForget, ServerTransaction


class InviteState(StrEnum):
    """States of an INVITE dialog usage (RFC 5057), from the first INVITE to the end."""

    INVITING = "inviting"  # ours is out, no final response
    INVITED = "invited"  # theirs is in, no final response
    ACCEPTED = "accepted"  # our 2xx is out, not acknowledged
    CONFIRMED = "confirmed"  # acknowledged: the call is up
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class InviteSettings:
    """What a trunk says about its calls; see `sip.trunk.TrunkSettings`. `egress`: what they may send to."""

    session_expires_s: int = 1800
    min_session_expires_s: int = 90
    ring_timeout_s: float = 60
    reliable_provisional: bool = True
    username: str = ""
    password: str = ""
    allow_from: tuple[IPv4Network | IPv6Network, ...] = ()
    egress: EgressRule = ANY_ADDRESS


class Refusals:
    """What a call was not allowed to send to, told to `core`. It outlives the call, whose BYE may be what was
    not sent, and does not keep it. `name` is the call's in logs."""

    def __init__(self, core: Core, call_id: str) -> None:
        self.name = ""
        self._core = core
        self._call_id = call_id
        self._count = 0

    def note(self, address: str, now: float = 0.0) -> None:
        """`address`, which the far end or the trunk named, is not sent to."""
        self._count += 1
        self._core.emit(AddressRefused(self.name, self._call_id, address, self._count == 1))


class Invite:
    """One call. Verbs and messages come in with `now`; what comes of them goes to `core`."""

    outgoing: bool
    state: InviteState
    definite = False
    """Whether the far end has given a final response to our INVITE."""

    def __init__(self, core: Core, settings: InviteSettings, *, call_id: str, peer: str = "") -> None:
        self.core = core
        self.settings = settings
        self.call_id = call_id
        self.refusals = Refusals(core, call_id)
        self.egress = Egress(settings.egress, peer=peer, on_refused=self.address_refused)
        self.dialog: Dialog | None = None
        self.peer_updates = False
        self.session = SessionTimer(
            SessionTimerSettings(settings.session_expires_s, settings.min_session_expires_s)
        )
        self.authorizer = (
            Authorizer(Credentials(settings.username, settings.password)) if settings.username else None
        )
        self._media: OfferAnswer | None = None
        self._alarms: dict[str, Alarm] = {}
        self._change: Change | None = None
        self._waiting: Change | None = None
        self._accepted: ReliableResponse | None = None  # our 2xx, until it is acknowledged
        self.offered_late = False  # our 2xx carried the offer
        self._goodbye: HangupCause | None = None  # hung up before the ACK came

    # What is so -------------------------------------------------------------------------------------------

    @property
    def negotiation(self) -> OfferAnswer:
        """Raises `LocalError` before the call knows what it can speak."""
        if self._media is None:
            raise LocalError("the call has no media yet")
        return self._media

    @property
    def confirmed(self) -> bool:
        return self.state is InviteState.CONFIRMED

    @property
    def ended(self) -> bool:
        return self.state is InviteState.ENDED

    @property
    def held(self) -> bool:
        """Whether either side has put the call on hold."""
        return self._media is not None and self._media.held

    # Verbs ------------------------------------------------------------------------------------------------

    def hang_up(self, now: float, *, cause: HangupCause = HangupCause.NORMAL) -> None:
        """Ends the call in whatever way its state has; nothing once it has ended."""
        if self.state is InviteState.CONFIRMED:
            self._say_bye(now)
            self.finish(cause, 200, "local", now)
        elif self.state is InviteState.ACCEPTED and self._goodbye is None:
            self._goodbye = cause  # RFC 3261 15: no BYE before the ACK

    def set_hold(self, hold: bool, now: float) -> None:
        """Holds or resumes; `ChangeFinished` tells. Raises `LocalError` unless the call is up."""
        if self.state not in (InviteState.CONFIRMED, InviteState.ACCEPTED) or self._goodbye is not None:
            raise LocalError("only a call that is up can be held")
        if self._waiting is not None:
            raise LocalError("another hold or resume is under way")
        self._waiting = Change(self, hold=hold)
        self._next_change(now)

    # What arrives -----------------------------------------------------------------------------------------

    def request_received(self, transaction: ServerTransaction, now: float) -> None:
        """A request within the dialog, ACK excepted."""
        request = transaction.request
        answer = ANSWERS.get(request.method)
        if self.dialog is None or not self.dialog.in_order(request):
            self.core.reply(transaction, 500, now)
        elif answer is None:
            self.core.reply(transaction, 405, now, headers=(("Allow", ALLOW),))
        else:
            answer(self, transaction, now)

    def ack_received(self, ack: Request, now: float) -> None:
        """The ACK of a 2xx of ours; repeated ones and those of nothing are ignored."""
        if self._accepted is None or ack.cseq.number != self._accepted.cseq:
            return
        self._accepted.stop()
        self._accepted = None
        if self.state is InviteState.ACCEPTED:
            self.state = InviteState.CONFIRMED
        if self.offered_late and not self._take_late_answer(ack, now):
            return
        if self._goodbye is not None:
            self.hang_up(now, cause=self._goodbye)
        else:
            self._next_change(now)

    def address_refused(self, address: str, now: float) -> None:
        """A request of ours was not sent, since `address` is closed to the trunk: the call cannot go on."""
        self.refusals.note(address)
        self.hang_up(now, cause=HangupCause.ADDRESS_REFUSED)

    def unusable(self, error: RemoteError, now: float) -> None:
        """Their answer to our offer cannot be used: the call ends."""
        if isinstance(error, MediaRefused):
            self.refusals.note(error.address)
        self.hang_up(now, cause=cause_of_answer(error))

    # For the parts of a call ------------------------------------------------------------------------------

    def introduce(self, headers: Headers) -> None:
        """Adds who we are and what we can do."""
        headers.add("Allow", ALLOW)
        tags = SUPPORTED_TAGS if self.settings.reliable_provisional else SUPPORTED_TAGS - {"100rel"}
        headers.add("Supported", ", ".join(sorted(tags)))
        if self.core.user_agent:
            headers.add("User-Agent", self.core.user_agent)

    def arm(self, name: str, when: float, call: Callable[[float], None]) -> None:
        """Arms the alarm `name`, in the place of an earlier one. All are disarmed when the call ends."""
        self.disarm(name)
        if not self.ended:
            self._alarms[name] = self.core.clock.at(when, call)

    def disarm(self, name: str) -> None:
        alarm = self._alarms.pop(name, None)
        if alarm is not None:
            alarm.cancel()

    def arm_session(self, now: float) -> None:
        """Looks at the session timer again after it was refreshed, or a refresh failed."""
        due = [at for at in (self.session.refresh_at, self.session.expires_at) if at is not None and at > now]
        if due:
            self.arm("session", min(due), self._session_due)
        else:
            self.disarm("session")

    @property
    def changing(self) -> bool:
        """Whether an INVITE or UPDATE is under way on either side within the call."""
        asking = self._change is not None and self._change.outstanding
        return asking or self._accepted is not None

    def change_finished(self, change: Change, now: float) -> None:
        """`change` was answered, for good or ill."""
        if self._change is change:
            self._change = None
            self._next_change(now)

    # Within -----------------------------------------------------------------------------------------------

    def _session_due(self, now: float) -> None:
        expires_at = self.session.expires_at
        if expires_at is not None and now >= expires_at:
            self.hang_up(now, cause=HangupCause.SESSION_EXPIRED)
            return
        if self._waiting is None and self._change is None:
            self._waiting = Change(self, hold=None)
            self._next_change(now)
        self.arm_session(now)

    def _next_change(self, now: float) -> None:
        """Starts the change that waits, once nothing else is under way."""
        if self._waiting is None or self._change is not None or self._accepted is not None:
            return
        if self.state is InviteState.CONFIRMED:
            self._change, self._waiting = self._waiting, None
            self._change.start(now)

    def _say_bye(self, now: float) -> None:
        assert self.dialog is not None
        bye = self.dialog.request("BYE")
        self.introduce(bye.headers)
        exchange = ClientRequest(self.core, next_cseq=self.dialog.next_cseq, authorizer=self.authorizer)
        exchange.send(bye, self.dialog.next_hop(), FireAndForget(), now)

    def finish(
        self, cause: HangupCause, status: int, by: Side, now: float, *, retry_after_s: int | None = None
    ) -> None:
        """The call is over, without a word: nothing stays behind but the transactions that run out."""
        if self.ended:
            return
        self.state = InviteState.ENDED
        self.egress.refused = self.refusals.note  # what is still to be sent does not keep the call
        for name in list(self._alarms):
            self.disarm(name)
        if self._accepted is not None:
            self._accepted.stop()
            self._accepted = None
        for change in (self._change, self._waiting):
            if change is not None:
                change.abandon(now)
        self._waiting = None
        self.close_dialogs()
        self.core.emit(InviteEnded(self, cause, status, by, retry_after_s, self.definite))

    def close_dialogs(self) -> None:
        """Stops listening for requests within the call."""
        if self.dialog is not None:
            self.core.close_dialog(self.dialog.id)

    def accept_with(self, transaction: ServerTransaction, body: bytes, now: float) -> None:
        """Sends our 2xx to an INVITE and insists on its ACK."""
        assert self.dialog is not None
        headers = [("Contact", self.dialog.contact)]
        response = response_to(transaction.request, 200, to_tag=self.dialog.local.tag, headers=headers)
        self.introduce(response.headers)
        self.session.answer(transaction.request, response.headers, now)
        response.headers.add("Content-Type", SDP)
        response.body = body
        self._accepted = ReliableResponse(
            self.core.clock, transaction, response, on_give_up=self._never_acknowledged
        )
        self._accepted.start(now)
        self.arm_session(now)

    def _never_acknowledged(self, now: float) -> None:
        """RFC 3261 13.3.1.4: the session is confirmed all the same, and should be ended."""
        self._accepted = None
        self.state = InviteState.CONFIRMED
        self.hang_up(now, cause=HangupCause.NO_ACK)

    def _take_late_answer(self, ack: Request, now: float) -> bool:
        """False: it cannot be used, and the call has ended."""
        self.offered_late = False
        try:
            plan = self.negotiation.settle(session_description(ack))
        except RemoteError as error:
            self.unusable(error, now)
            return False
        if plan is not None:
            self.core.emit(MediaAgreed(self, plan))
        return True

    # What the two roles do differently --------------------------------------------------------------------

    def bye_received(self, transaction: ServerTransaction, now: float) -> None:
        """The far end hangs up."""
        self.core.reply(transaction, 200, now)
        self.finish(HangupCause.NORMAL, 200, "remote", now)

    def prack_received(self, transaction: ServerTransaction, now: float) -> None:
        """A PRACK; only the called has sent anything that it could acknowledge."""
        self.core.reply(transaction, 481, now)

    @property
    def answer_due(self) -> bool:
        """Whether an offer of theirs has not been answered yet."""
        return False
