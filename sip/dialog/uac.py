"""Places a call: an INVITE from its first transmission to the 2xx, or to its end.

Handles digest challenges (`ClientRequest`), a session interval too short (422), a server that cannot take the
call (a refusal, a transport error, silence: the next of the trunk's addresses, `TargetSet`), forks (`Forks`),
reliable provisional responses (RFC 3262), a 2xx that crosses a CANCEL, and the 2xx of a second fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from sip.dialog.client_request import ClientRequest
from sip.dialog.dialog import DialogSetId
from sip.dialog.events import InviteAnswered, InviteProgressed, MediaAgreed
from sip.dialog.forks import Forks
from sip.dialog.invite import Invite
from sip.dialog.target_set import ELSEWHERE, Target, TargetSet
from sip.dialog.ua_core import Core
from sip.dialog.usage import InviteSettings, InviteState, InviteUsage
from sip.errors import RemoteError
from sip.message.body import SDP, session_description
from sip.message.headers import CSeq, Headers, NameAddr
from sip.message.message import Request, Response
from sip.message.uri import Uri
from sip.reason import Q850, Reason
from sip.sdp.negotiation import Capabilities
from sip.states import HangupCause, cause_of_answer
from sip.transaction.timers import GIVE_UP_S
from sip.transaction.transaction import (
    ClientTransaction,
    FireAndForget,
    ServerTransaction,
    TransactionState,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """Parameters of an INVITE. `targets` are tried in order; the first is also the To URI, unless there is
    `to`. `route`: the Route that it begins with. `after`: the targets over another trunk, none of which took
    the call."""

    targets: Sequence[Target]
    route: Sequence[Uri] = ()
    caller: NameAddr
    call_id: str
    headers: Mapping[str, str] = field(default_factory=dict)
    to: Uri | None = None
    after: TargetSet | None = None

    def headers_of(self, usage: InviteUsage, caller: NameAddr, to: Uri, cseq: CSeq, contact: str) -> Headers:
        """Returns the header fields of the INVITE."""
        headers = Headers()
        for each in self.route:
            headers.add("Route", f"<{each}>")
        headers.add("Max-Forwards", "70")
        headers.add("From", str(caller))
        headers.add("To", f"<{to}>")
        headers.add("Call-ID", self.call_id)
        headers.add("CSeq", str(cseq))
        headers.add("Contact", contact)
        usage.introduce(headers)
        usage.session.ask(headers)
        for name, value in self.headers.items():
            headers.add(name, value)
        headers.add("Content-Type", SDP)
        return headers


class OutgoingInvite(Invite):
    """A call that this side places."""

    def __init__(
        self, core: Core, settings: InviteSettings, invitation: Invitation, capabilities: Capabilities
    ) -> None:
        dialog_set = DialogSetId(invitation.call_id, core.token())
        super().__init__(InviteUsage(core, settings, dialog_set, outgoing=True))
        self.usage.describe(capabilities)
        self._invitation, self._rings = invitation, False  # rings: any provisional response
        self._caller = invitation.caller.with_tag(self.usage.dialog_set.local_tag)
        self.targets = TargetSet(
            self.usage, invitation.targets, routed=bool(invitation.route), after=invitation.after
        )
        self._next_cseq = count(1).__next__
        self._forks = Forks(self.usage)
        self._given_up: HangupCause | None = None
        self.reason: Reason | None = None  # of the CANCEL, where not that of the cause
        self._unsent = False  # the address of the last target was closed to the trunk
        authorizer = self.usage.authorizer
        self._client_request = ClientRequest(core, next_cseq=self._next_cseq, authorizer=authorizer)

    # Verbs ------------------------------------------------------------------------------------------------

    def dial(self, now: float) -> None:
        """Sends the INVITE with an offer, and starts the timer of `ring_timeout_s`."""
        rang_out = partial(self.hang_up, cause=HangupCause.NO_ANSWER)
        self.usage.arm("ring", now + self.usage.settings.ring_timeout_s, rang_out)
        self._send_invite(self.usage.negotiation.offer(), now)

    def hang_up(self, now: float, *, cause: HangupCause = HangupCause.NORMAL) -> None:
        """Cancels before the answer: CANCEL, as soon as a provisional response allows it (RFC 3261 9.1).
        Later hangs up."""
        if self.usage.state is not InviteState.INVITING:
            super().hang_up(now, cause=cause)
        elif self._given_up is None:
            self._given_up = HangupCause.CANCELLED if cause is HangupCause.NORMAL else cause
            if self._rings:
                self._send_cancel(now)

    # Responses --------------------------------------------------------------------------------------------

    def response_received(self, response: Response, now: float) -> None:
        """Takes a response to the INVITE: progress, answer or refusal."""
        self.usage.definite = self.usage.definite or response.status >= 200
        self.usage.disarm("silence")
        if response.status >= 300:
            self._refused(response, now)
        elif response.status >= 200:
            self._answered(response, now)
        elif self.usage.state is InviteState.INVITING:
            self._progressed(response, now)

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        """Ends the call, or dials the next target where the transport failed: the INVITE never arrived."""
        if self.usage.state is not InviteState.INVITING or (transport_failed and self._next_target(now)):
            return
        failed = HangupCause.ADDRESS_REFUSED if self._unsent else HangupCause.UNREACHABLE
        cause = HangupCause.CANCELLED if self._given_up is HangupCause.CANCELLED else failed
        self.usage.elsewhere = transport_failed and self._may_leave
        self.usage.finish(cause, 503 if transport_failed else 408, "local", now)

    def address_refused(self, address: str, now: float) -> None:
        """Notes that `address` is closed to the trunk. Before ringing, the INVITE may still go to the next
        target; later the call ends."""
        if self.usage.state is InviteState.INVITING and not self._rings:
            self._unsent = True
            self.usage.refusals.note(address)
        else:
            super().address_refused(address, now)

    def closing(self, now: float) -> None:
        """Closes the call's dialogs. An INVITE without a final response is abandoned after `GIVE_UP_S`."""
        super().closing(now)
        self._forks.close()
        transaction = self._client_request.transaction
        if transaction is not None and transaction.state is TransactionState.PROCEEDING:
            self.usage.core.clock.at(now + GIVE_UP_S, transaction.abandon)

    def bye_received(self, transaction: ServerTransaction, now: float) -> None:
        """Answers a BYE, which may overtake the 2xx of its call; that 2xx is then declined."""
        if self.usage.state is InviteState.INVITING and self._given_up is None:
            self._given_up = HangupCause.NORMAL
        super().bye_received(transaction, now)

    @property
    def _transaction(self) -> ClientTransaction:
        assert self._client_request.transaction is not None
        return self._client_request.transaction

    def _unusable(self, error: RemoteError, now: float) -> None:
        """Ends the call whose answer cannot be used. A call that was given up keeps its first cause."""
        if self._given_up is None:
            self.usage.refusals.note_error(error)
            self.hang_up(now, cause=cause_of_answer(error))
        else:
            super().hang_up(now, cause=self._given_up)

    def _send_invite(self, offer: bytes, now: float) -> None:
        self.usage.definite = False
        invitation = self._invitation
        target = self.targets.current
        hop = replace(target.hop, egress=self.usage.egress)
        self._unsent = False
        to = invitation.to or self.targets.first.uri.without_params()
        cseq = CSeq(self._next_cseq(), "INVITE")
        user, secure = invitation.caller.uri.user, target.uri.scheme == "sips"
        contact = self.usage.core.contact(hop, user, secure=secure)
        headers = invitation.headers_of(self.usage, self._caller, to, cseq, contact)
        self._client_request.send(Request("INVITE", target.uri, headers, offer), hop, self, now)
        self.targets.watch(now, self._unanswered)

    def _unanswered(self, now: float) -> None:
        """Dials the next target because this one has not answered at all, not even with 100."""
        silent = self._transaction
        if not self.targets.overdue(silent, now, self._unanswered):
            return
        if self._next_target(now):
            self.targets.pass_over(silent)
        elif self._may_leave:
            self.targets.pass_over(silent)
            self.usage.elsewhere = True
            self.usage.finish(HangupCause.UNREACHABLE, 408, "local", now)

    @property
    def _may_leave(self) -> bool:
        return self._given_up is None and self.targets.elsewhere

    def _again(self, now: float) -> None:
        self._forks.forget()
        self._rings = False
        self.usage.negotiation.withdraw()
        self._send_invite(self.usage.negotiation.offer(), now)

    def _next_target(self, now: float) -> bool:
        if self._given_up is not None or not self.targets.advance():
            return False
        self._again(now)
        return True

    def _send_cancel(self, now: float) -> None:
        reason = self.reason or Q850[self._given_up or HangupCause.CANCELLED]
        self.usage.core.send_cancel(self._transaction, FireAndForget(), now, str(reason))
        # RFC 3261 9.1: without a final response 64*T1 after the CANCEL the transaction counts as cancelled.
        self.usage.arm("cancel", now + GIVE_UP_S, self._cancel_unanswered)

    def _cancel_unanswered(self, now: float) -> None:
        self.usage.finish(self._given_up or HangupCause.CANCELLED, 408, "local", now)

    def _progressed(self, response: Response, now: float) -> None:
        first, self._rings = not self._rings, True
        self.targets.rang = self.targets.rang or response.status > 100
        if self._given_up is not None:
            if first:
                self._send_cancel(now)
            return
        if response.status == 100 or not response.to.tag:
            return
        fork = self._forks.progressed(response, self._transaction, self)
        reliable = "100rel" in response.require
        if reliable and not self._forks.acknowledge_provisional(fork, response, now):
            return
        try:
            early_media = self._forks.early_media(response)
        except RemoteError as error:
            self._unusable(error, now)
            early_media = False
        self.usage.core.emit(InviteProgressed(self.usage.dialog_set, response.status, early_media))

    def _refused(self, response: Response, now: float) -> None:
        if self.usage.state is not InviteState.INVITING:
            return
        if self._given_up is None:
            if response.status == 422 and self.usage.session.too_brief(response):
                self._again(now)
                return
            moved = 300 <= response.status < 400 and self.targets.redirect(response)
            if (moved or response.status in ELSEWHERE) and self._next_target(now):
                return
        self.targets.refused(response, now, given_up=self._given_up)

    def _answered(self, response: Response, now: float) -> None:
        fork = self._forks.answered(response, self._transaction, self)
        if not self._forks.acknowledge(fork, response, self._transaction):
            return
        if self.usage.state is not InviteState.INVITING:
            self._forks.decline(fork, now)
            return
        self.usage.state = InviteState.CONFIRMED
        self.usage.dialog = fork.dialog
        fork.dialog.update_routes(response)
        self.usage.disarm("ring")
        self.usage.disarm("cancel")
        self._forks.close(but=fork)
        self.usage.meet(response)
        self._come_up(response, now)

    def _come_up(self, response: Response, now: float) -> None:
        try:
            self.usage.session.agreed(response, now)
            self._forks.turn_to(response)
            plan = self.usage.negotiation.settle(session_description(response))
        except RemoteError as error:
            self._unusable(error, now)
            return
        if self._given_up is not None:
            super().hang_up(now, cause=self._given_up)
            return
        if plan is not None:
            self.usage.core.emit(MediaAgreed(self.usage.dialog_set, plan))
        self.usage.core.emit(InviteAnswered(self.usage.dialog_set, response.status))
        self.usage.arm_session(now)
