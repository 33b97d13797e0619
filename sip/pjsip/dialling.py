"""The INVITE of a call whose session PJSIP has, on its way from target to target."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from sip.dialog.client_request import ClientRequest
from sip.dialog.dialog import Dialog, DialogUser
from sip.dialog.events import InviteAnswered, InviteProgressed, MediaAgreed
from sip.dialog.forks import Forks
from sip.dialog.target_set import ELSEWHERE, PassedOver, TargetSet
from sip.dialog.uac import Invitation
from sip.dialog.usage import InviteState, InviteUsage
from sip.errors import RemoteError
from sip.message.body import session_description
from sip.message.headers import CSeq
from sip.message.message import Request, Response
from sip.pjsip.asked import AskedRequests
from sip.pjsip.messages import ASKED_BY_PJSIP, carry
from sip.pjsip.processes import PjsipSide
from sip.pjsip.slot import Slot
from sip.reason import Q850
from sip.sdp.offer_answer import OfferState
from sip.states import HangupCause, cause_of_answer
from sip.transaction.timers import GIVE_UP_S
from sip.transaction.transaction import (
    ClientTransaction,
    FireAndForget,
    TransactionState,
)

STARTS_S: Final = 10.0
"""Seconds in which PJSIP has taken an INVITE, or has made one; a process that is only starting needs 0.5."""


class Caller(DialogUser, PjsipSide, Protocol):
    """The call that is dialled."""


class Dialling:
    """The INVITE of one call. `unsent`: the address of the last target was closed to the trunk."""

    def __init__(self, usage: InviteUsage, slot: Slot, asked: AskedRequests, invitation: Invitation) -> None:
        self.targets = TargetSet(
            usage, invitation.targets, routed=bool(invitation.route), after=invitation.after
        )
        self.unsent = self.rings = False  # rings: any provisional response
        self._usage, self._slot, self._asked, self._invitation = usage, slot, asked, invitation
        self._number, self._offer = 0, b""  # of the last INVITE
        self._sent: ClientTransaction | None = None
        self._invite: Request | None = None  # of PJSIP
        self._forks = Forks(usage)
        self._refusal: Response | None = None
        self._others: PassedOver | None = None  # forks that answer beside the first, or too late
        self._by: Caller | None = None
        self._cancelled = False

    @property
    def begun(self) -> bool:
        """Whether an INVITE has left."""
        return self._number > 0

    def begin(self, now: float, by: Caller) -> None:
        """Has PJSIP call the current target for `by`."""
        self._by = by
        try:
            self._slot.board(by)
        except OSError:
            self._usage.finish(HangupCause.ENGINE_FAILED, 503, "local", now)
            return
        self._slot.command("dial", uri=str(self.targets.current.uri))
        self._usage.arm("engine", now + STARTS_S, lambda then: self._slot.kill())

    def send(self, request: Request, now: float) -> None:
        """Sends the INVITE, for the first time or with credentials or another session interval."""
        usage, invitation = self._usage, self._invitation
        usage.disarm("engine")
        self._slot.reply(request, 100)
        if self._slot.goodbye is not None:
            self._slot.reply(request, 487)
            return
        self._invite, self._refusal, self.unsent, usage.definite = request, None, False, False
        self._number += 1
        self._asked.note(request, self._number)
        target = self.targets.current
        hop = replace(target.hop, egress=usage.egress)
        to = invitation.to or self.targets.first.uri.without_params()
        caller = invitation.caller.with_tag(usage.dialog_set.local_tag)
        contact = usage.core.contact(hop, invitation.caller.uri.user)
        headers = invitation.headers_of(usage, caller, to, CSeq(self._number, "INVITE"), contact)
        carry(ASKED_BY_PJSIP, request.headers, headers)
        if usage.negotiation.state is not OfferState.OFFERED:
            self._offer = usage.negotiation.offer()
        client = ClientRequest(usage.core, next_cseq=lambda: self._number, authorizer=None)
        client.send(Request("INVITE", target.uri, headers, self._offer), hop, self, now)
        self._sent = client.transaction
        self.targets.watch(now, self._unanswered)

    def cancel(self, now: float) -> None:
        """Cancels the INVITE, as soon as a provisional response allows it (RFC 3261 9.1)."""
        if self.rings and not self._cancelled and self._sent is not None:
            self._cancelled = True
            reason = str(Q850[self._slot.goodbye or HangupCause.CANCELLED])
            self._usage.core.send_cancel(self._sent, FireAndForget(), now, reason)
            self._usage.arm("cancel", now + GIVE_UP_S, self._cancel_unanswered)

    def dialog_of(self, request: Request) -> Dialog | None:
        """Returns the fork that a request of PJSIP is for, by its To tag."""
        return self._forks.dialog_of(request.to.tag or "")

    def close(self, now: float) -> None:
        """Closes the forks. An INVITE without a final response is abandoned after `GIVE_UP_S`."""
        self._forks.close()
        self._by = None
        if self._sent is not None and self._sent.state is TransactionState.PROCEEDING:
            self._usage.core.clock.at(now + GIVE_UP_S, self._sent.abandon)

    def response_received(self, response: Response, now: float) -> None:
        """Takes a response to the INVITE: progress, answer or refusal."""
        self._usage.definite = self._usage.definite or response.status >= 200
        self._usage.disarm("silence")
        if response.status >= 300:
            self._refusal = response
            self._pass_on(response)
        elif response.status >= 200:
            self._answered(response, now)
        elif self._usage.state is InviteState.INVITING:
            self._progressed(response, now)

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        """Ends the call, or dials the next target where the transport failed: the INVITE never arrived."""
        if self._usage.state is not InviteState.INVITING or (transport_failed and self._next_target(now)):
            return
        failed = HangupCause.ADDRESS_REFUSED if self.unsent else HangupCause.UNREACHABLE
        cause = HangupCause.CANCELLED if self._slot.goodbye is HangupCause.CANCELLED else failed
        self._leave_trunk(cause, 503 if transport_failed else 408, now, elsewhere=transport_failed)

    def _progressed(self, response: Response, now: float) -> None:
        self.rings = True
        self.targets.rang = self.targets.rang or response.status > 100
        if self._slot.goodbye is not None:
            self.cancel(now)
        elif response.status > 100 and response.to.tag and self._sent is not None and self._by is not None:
            self._forks.progressed(response, self._sent, self._by)
            try:
                early_media = self._forks.early_media(response)
            except RemoteError as error:
                self._unusable(error, now)
                early_media = False
            self._usage.core.emit(InviteProgressed(self._usage.dialog_set, response.status, early_media))
            self._pass_on(response)

    def _answered(self, response: Response, now: float) -> None:
        usage, sent = self._usage, self._sent
        assert sent is not None
        if usage.state is not InviteState.INVITING or self._by is None:
            won = usage.dialog.remote.tag if usage.dialog is not None else None
            if won == response.to.tag:
                self._pass_on(response)  # repeated, for want of an ACK
            else:
                self._others = self._others or PassedOver(usage, sent)
                self._others.response_received(response, now)
            return
        fork = self._forks.answered(response, sent, self._by)
        usage.state, usage.dialog = InviteState.CONFIRMED, fork.dialog
        fork.dialog.refresh_target(response)
        fork.dialog.update_routes(response)
        usage.disarm("ring")
        usage.disarm("cancel")
        self._forks.close(but=fork)
        usage.meet(response)
        self._pass_on(response)
        self._come_up(response, now)

    def _come_up(self, response: Response, now: float) -> None:
        usage = self._usage
        try:
            self._forks.turn_to(response)
            plan = usage.negotiation.settle(session_description(response))
        except RemoteError as error:
            self._unusable(error, now)
            return
        if self._slot.goodbye is not None:
            self._slot.command("hang_up")
            return
        if plan is not None:
            usage.core.emit(MediaAgreed(usage.dialog_set, plan))
        usage.core.emit(InviteAnswered(usage.dialog_set, response.status))

    def _unusable(self, error: RemoteError, now: float) -> None:
        """Ends the call whose answer cannot be used. A call that was given up keeps its first cause."""
        if self._slot.goodbye is None:
            self._usage.refusals.note_error(error)
            self._slot.goodbye = cause_of_answer(error)
        self._slot.command("hang_up")

    def _pass_on(self, response: Response) -> None:
        if self._invite is not None:
            described = bool(response.body) and response.status < 300
            self._slot.give(self._invite, response, described=described)

    def _unanswered(self, now: float) -> None:
        """Dials the next target because this one has not answered at all, not even with 100."""
        silent = self._sent
        assert silent is not None
        if not self.targets.overdue(silent, now, self._unanswered):
            return
        if self._next_target(now):
            self.targets.pass_over(silent)
        elif self._may_leave:
            self.targets.pass_over(silent)
            self._leave_trunk(HangupCause.UNREACHABLE, 408, now, elsewhere=True)

    @property
    def _may_leave(self) -> bool:
        return self._slot.goodbye is None and self.targets.elsewhere

    def _next_target(self, now: float) -> bool:
        if self._slot.goodbye is not None or not self.targets.advance():
            return False
        by = self._by
        assert by is not None
        self._leave(503)
        self._forks.forget()
        self.rings = False
        self._usage.negotiation.withdraw()
        self.begin(now, by)
        return True

    def _leave_trunk(self, cause: HangupCause, status: int, now: float, *, elsewhere: bool) -> None:
        self._usage.elsewhere = elsewhere and self._may_leave
        self._leave(status)
        self._usage.finish(cause, status, "local", now)

    def _leave(self, status: int) -> None:
        """Ends PJSIP's call in the far end's place."""
        if self._invite is not None and self._refusal is None:
            self._slot.reply(self._invite, status)
        self._slot.leave()
        self._invite = None

    def _cancel_unanswered(self, now: float) -> None:
        self._leave_trunk(self._slot.goodbye or HangupCause.CANCELLED, 408, now, elsewhere=False)

    def _refused(self, response: Response, now: float) -> None:
        if response.status in ELSEWHERE and self._next_target(now):
            return
        self.targets.refused(response, now, given_up=self._slot.goodbye)

    def give_up(self, cause: HangupCause, now: float) -> None:
        """Cancels an INVITE that PJSIP has forgotten, now or once its server answers."""
        sent = self._sent
        if sent is not None and sent.waiting:
            self.targets.pass_over(sent)
            if self.rings and not self._cancelled:
                self._usage.core.send_cancel(sent, FireAndForget(), now, str(Q850[cause]))
        if self.targets.silent:
            self._usage.definite = False  # the phone may ring at the server that was passed over
        self._usage.finish(cause, 500, "local", now)

    def ended(self, now: float) -> None:
        """Takes that PJSIP has no answer to a refusal, or has given up by itself."""
        if self._refusal is not None:
            self._refused(self._refusal, now)
        else:
            self.give_up(self._slot.goodbye or HangupCause.ENGINE_FAILED, now)
