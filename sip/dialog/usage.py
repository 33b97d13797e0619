"""The INVITE usage of a dialog (RFC 5057): the state that all parts of a call share.

The two roles (`sip.dialog.uac`, `sip.dialog.uas`) set up the call in `InviteUsage`; changes
(`sip.dialog.reinvite`) and requests of the far end (`sip.dialog.in_dialog`) use it while the call is up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from typing import Protocol

from sip.auth.digest import Authorizer, Credentials
from sip.dialog.client_request import ClientRequest
from sip.dialog.dialog import Dialog, DialogSetId
from sip.dialog.events import AddressRefused, InviteEnded, MediaAgreed, Move, Side
from sip.dialog.reliable_response import ReliableResponse
from sip.dialog.session_timer import SessionTimer, SessionTimerSettings
from sip.dialog.ua_core import ALLOW, REFERABLE, REPLACES, SUPPORTED_TAGS, Core
from sip.egress import ANY_ADDRESS, Egress, EgressRule
from sip.errors import LocalError, MediaRefused, RemoteError
from sip.message.body import SDP, session_description
from sip.message.headers import Headers
from sip.message.message import Request, Response, response_to
from sip.reason import Q850, Reason
from sip.sdp.negotiation import Capabilities
from sip.sdp.offer_answer import OfferAnswer
from sip.states import Engine, HangupCause, cause_of_answer
from sip.transaction.timers import Alarm
from sip.transaction.transaction import FireAndForget, ServerTransaction


class InviteState(StrEnum):
    """States of an INVITE dialog usage (RFC 5057), from the first INVITE to the end."""

    INVITING = "inviting"  # INVITE sent, no final response
    INVITED = "invited"  # INVITE received, no final response
    ACCEPTED = "accepted"  # 2xx sent, not acknowledged
    CONFIRMED = "confirmed"  # acknowledged: the call is up
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class InviteSettings:
    """Settings of a trunk for its calls (`sip.trunk.TrunkSettings`). `egress`: where its calls may send.
    `spare`: another trunk takes a call that no server of this one does. `engine`: who has the INVITE sessions
    of its calls."""

    session_expires_s: int = 1800
    min_session_expires_s: int = 90
    ring_timeout_s: float = 60
    failover_s: float = 4.0
    follow_redirects: int = 0
    accept_refer: bool = False
    reliable_provisional: bool = True
    username: str = ""
    password: str = ""
    allow_from: tuple[IPv4Network | IPv6Network, ...] = ()
    egress: EgressRule = ANY_ADDRESS
    spare: bool = False
    engine: Engine = "native"


class EgressRefusals:
    """Reports the addresses that a call was not allowed to send to. It outlives the call, whose BYE may be
    the message not sent, and does not refer to the call. `name` is the call's id in logs."""

    def __init__(self, core: Core, dialog_set: DialogSetId) -> None:
        self.name = ""
        self._core = core
        self._dialog_set = dialog_set
        self._count = 0

    def note(self, address: str, now: float = 0.0) -> None:
        """Reports that nothing is sent to `address`, which the far end or the trunk named."""
        self._count += 1
        self._core.emit(AddressRefused(self.name, self._dialog_set, address, self._count == 1))

    def note_error(self, error: RemoteError) -> None:
        """Reports the refused address of a session description."""
        if isinstance(error, MediaRefused):
            self.note(error.address)


class InviteRole(Protocol):
    """The part of a call in which caller and callee differ."""

    usage: InviteUsage

    @property
    def answer_due(self) -> bool:
        """Whether an offer of the far end has not been answered yet."""

    def bye_received(self, transaction: ServerTransaction, now: float) -> None:
        """Answers a BYE and ends the call."""

    def prack_received(self, transaction: ServerTransaction, now: float) -> None:
        """Answers a PRACK of the far end."""

    def session_due(self, now: float) -> None:
        """Refreshes the session, or hangs up once it has expired (RFC 4028 section 10)."""

    def closing(self, now: float) -> None:
        """Abandons changes under way and closes dialogs, because the call is over."""


class Subscription(Protocol):
    """A usage of the call's dialog beside the call: the subscription of a REFER (`sip.dialog.referral`)."""

    @property
    def pending(self) -> bool:
        """Whether the far end has still something to tell."""

    def notified(self, transaction: ServerTransaction, now: float) -> None:
        """Answers a NOTIFY within the dialog and takes what it tells."""

    def outlive(self, now: float) -> None:
        """Keeps the dialog for what is pending, because the call is over."""


class InviteUsage:
    """State that the parts of one call share, and the actions on it. Times are passed in as `now`; messages
    and events go to `core`. `role` is set until the end of the call.

    `definite`: the far end has given a final response to the INVITE of this side. `elsewhere`: as in
    `InviteEnded`. `peer_updates`: the far end
    allows UPDATE. `peer_refers`: it takes a REFER, as far as it tells. `referral`: the last REFER of this
    side; `request_to_move`: that of the far end. `offered_late`: the 2xx of this side carried the offer.
    `change_outstanding`: a re-INVITE or UPDATE of this side has not been answered."""

    def __init__(
        self, core: Core, settings: InviteSettings, dialog_set: DialogSetId, *, outgoing: bool, peer: str = ""
    ) -> None:
        self.core = core
        self.settings = settings
        self.dialog_set = dialog_set
        self.outgoing = outgoing
        self.state = InviteState.INVITING if outgoing else InviteState.INVITED
        self.role: InviteRole | None = None
        self.refusals = EgressRefusals(core, dialog_set)
        self.egress = Egress(settings.egress, peer=peer)
        self.dialog: Dialog | None = None
        self.session = SessionTimer(
            SessionTimerSettings(settings.session_expires_s, settings.min_session_expires_s)
        )
        self.authorizer = (
            Authorizer(Credentials(settings.username, settings.password)) if settings.username else None
        )
        self.definite = False
        self.elsewhere = False
        self.peer_updates = False
        self.peer_refers = True
        self.referral: Subscription | None = None
        self.request_to_move: Move | None = None
        self.offered_late = False
        self.change_outstanding = False
        self._media: OfferAnswer | None = None
        self._alarms: dict[str, Alarm] = {}
        self._accepted: ReliableResponse | None = None  # the 2xx of this side, until it is acknowledged
        self._goodbye: HangupCause | None = None  # hung up before the ACK

    # State ------------------------------------------------------------------------------------------------

    @property
    def negotiation(self) -> OfferAnswer:
        """Offer and answer of the call. Raises `LocalError` before `describe`."""
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

    @property
    def accepting(self) -> bool:
        """Whether a 2xx of this side to an INVITE has not been acknowledged."""
        return self._accepted is not None

    @property
    def changing(self) -> bool:
        """Whether an INVITE or UPDATE of either side is under way within the call."""
        return self.change_outstanding or self.accepting

    @property
    def can_change(self) -> bool:
        """Whether the call is up, or will be with the ACK of the 2xx, and has not been hung up."""
        up = self.state in (InviteState.CONFIRMED, InviteState.ACCEPTED)
        return up and self._goodbye is None

    # Media ------------------------------------------------------------------------------------------------

    def meet(self, message: Request | Response) -> None:
        """Takes from the INVITE or the 2xx of the far end which methods it allows."""
        allow = message.header("Allow")
        allowed = {
            each.strip() for line in message.headers.get_all("Allow") for each in line.upper().split(",")
        }
        self.peer_updates = "UPDATE" in allowed
        self.peer_refers = allow is None or "REFER" in allowed

    def describe(self, capabilities: Capabilities) -> OfferAnswer:
        """Sets the local capabilities of the call."""
        self._media = OfferAnswer(capabilities)
        return self._media

    def tell_plan(self) -> None:
        """Emits the negotiated media, if there is any."""
        plan = self.negotiation.plan
        if plan is not None:
            self.core.emit(MediaAgreed(self.dialog_set, plan))

    # Requests and responses sent --------------------------------------------------------------------------

    def introduce(self, headers: Headers) -> None:
        """Adds Allow, Supported and User-Agent."""
        headers.add("Allow", REFERABLE if self.settings.accept_refer else ALLOW)
        tags = SUPPORTED_TAGS if self.settings.reliable_provisional else SUPPORTED_TAGS - {"100rel"}
        tags |= {REPLACES} if self.settings.accept_refer else frozenset()
        headers.add("Supported", ", ".join(sorted(tags)))
        if self.core.user_agent:
            headers.add("User-Agent", self.core.user_agent)

    def refuses_replacement(self, *, early_only: bool) -> int | None:
        """Returns the status for an INVITE that is to replace the call (RFC 3891 3), 0 where it may; None
        where the trunk takes none. A call that is not up yet is not given away."""
        if not self.settings.accept_refer:
            return None
        if not self.confirmed:
            return 603 if self.ended else 481
        return 486 if early_only else 0

    def send_and_forget(self, dialog: Dialog, request: Request, now: float) -> None:
        """Sends a request within `dialog` whose response changes nothing; challenges are answered."""
        client = ClientRequest(self.core, next_cseq=dialog.next_cseq, authorizer=self.authorizer)
        client.send(request, dialog.next_hop(), FireAndForget(), now)

    def accept_with(self, transaction: ServerTransaction, body: bytes, now: float) -> None:
        """Sends a 2xx to an INVITE and retransmits it until its ACK."""
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

    def ack_received(self, ack: Request, now: float) -> None:
        """Takes the ACK of a 2xx; repeated and unexpected ones are ignored."""
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

    def _never_acknowledged(self, now: float) -> None:
        """Hangs up, as no ACK came: the session counts as confirmed and should be ended (RFC 3261
        13.3.1.4)."""
        self._accepted = None
        self.state = InviteState.CONFIRMED
        self.hang_up(now, cause=HangupCause.NO_ACK)

    def _take_late_answer(self, ack: Request, now: float) -> bool:
        """Takes the answer in the ACK. False: the answer cannot be used, and the call has ended."""
        self.offered_late = False
        try:
            plan = self.negotiation.settle(session_description(ack))
        except RemoteError as error:
            self.unusable(error, now)
            return False
        if plan is not None:
            self.core.emit(MediaAgreed(self.dialog_set, plan))
        return True

    # Timers -----------------------------------------------------------------------------------------------

    def arm(self, name: str, when: float, call: Callable[[float], None]) -> None:
        """Arms the alarm `name`, in place of an earlier one. All alarms are disarmed when the call ends."""
        self.disarm(name)
        if not self.ended:
            self._alarms[name] = self.core.clock.at(when, call)

    def disarm(self, name: str) -> None:
        alarm = self._alarms.pop(name, None)
        if alarm is not None:
            alarm.cancel()

    def arm_session(self, now: float) -> None:
        """Arms the session timer again after a refresh, or a failed refresh."""
        due = [at for at in (self.session.refresh_at, self.session.expires_at) if at is not None and at > now]
        if due and self.role is not None:
            self.arm("session", min(due), self.role.session_due)
        else:
            self.disarm("session")

    # The end ----------------------------------------------------------------------------------------------

    def hang_up(self, now: float, *, cause: HangupCause = HangupCause.NORMAL) -> None:
        """Sends BYE where the call is up, after the ACK where the 2xx has none yet; does nothing in other
        states."""
        if self.state is InviteState.CONFIRMED:
            assert self.dialog is not None
            bye = self.dialog.request("BYE")
            self.introduce(bye.headers)
            bye.headers.add("Reason", str(Q850[cause]))
            self.send_and_forget(self.dialog, bye, now)
            self.finish(cause, 200, "local", now)
        elif self.state is InviteState.ACCEPTED and self._goodbye is None:
            self._goodbye = cause  # RFC 3261 15: no BYE before the ACK

    def unusable(self, error: RemoteError, now: float) -> None:
        """Ends a call that is up, because the answer to an offer cannot be used."""
        self.refusals.note_error(error)
        self.hang_up(now, cause=cause_of_answer(error))

    def finish(
        self,
        cause: HangupCause,
        status: int,
        by: Side,
        now: float,
        *,
        retry_after_s: int | None = None,
        reasons: tuple[Reason, ...] = (),
    ) -> None:
        """Ends the call without sending anything; only transactions that run out remain. `reasons`: those of
        the far end."""
        if self.ended:
            return
        self.state = InviteState.ENDED
        self.egress.refused = self.refusals.note  # messages still to be sent do not keep the call alive
        for name in list(self._alarms):
            self.disarm(name)
        if self._accepted is not None:
            self._accepted.stop()
            self._accepted = None
        role, self.role = self.role, None
        if role is not None:
            role.closing(now)
        if self.referral is not None:
            self.referral.outlive(now)
        facts = retry_after_s, self.definite, reasons, self.elsewhere
        self.core.emit(InviteEnded(self.dialog_set, cause, status, by, *facts))
