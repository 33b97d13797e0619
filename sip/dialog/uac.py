"""Calling somebody: an INVITE from its first transmission to the 2xx that brings it up, or the end of it.

What can happen on the way: digest challenges (`ClientRequest`), a session interval too short (422), a server
that cannot take it (503, transport error: the next of the trunk's addresses), forks that ring together,
provisional responses to be acknowledged (RFC 3262), a 2xx that crosses our CANCEL, and the 2xx of a fork that
lost the race.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from sip.dialog.client_request import ClientRequest
from sip.dialog.dialog import Dialog
from sip.dialog.events import InviteAnswered, InviteProgressed, MediaAgreed, Side
from sip.dialog.invite import Invite, InviteSettings, InviteState
from sip.dialog.session_timer import delta_seconds
from sip.dialog.ua_core import Core
from sip.errors import RemoteError
from sip.message.body import SDP, session_description
from sip.message.headers import CSeq, Headers, NameAddr
from sip.message.message import Request, Response
from sip.message.uri import Uri
from sip.sdp.negotiation import Capabilities
from sip.sdp.offer_answer import OfferAnswer
from sip.states import HangupCause, cause_of
from sip.transaction.hop import Hop, hop_of
from sip.transaction.timers import GIVE_UP_S
from sip.transaction.transaction import FireAndForget, ServerTransaction, TransactionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """Who calls whom by which way. `targets` are tried in order; the first is also what To says."""

    targets: Sequence[Uri]
    caller: NameAddr
    call_id: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Fork:
    """One of the places where it rings (an early dialog), or what answered."""

    dialog: Dialog
    rseq: int | None = None  # of the last reliable provisional response
    ack: Request | None = None
    ack_hop: Hop | None = None


class OutgoingInvite(Invite):
    """A call that we place."""

    outgoing = True

    def __init__(
        self, core: Core, settings: InviteSettings, invitation: Invitation, capabilities: Capabilities
    ) -> None:
        super().__init__(core, settings, call_id=invitation.call_id)
        self.state = InviteState.INVITING
        self._media = OfferAnswer(capabilities)
        self._invitation = invitation
        self._caller = invitation.caller.with_tag(core.token())
        self._target = 0
        self._next_cseq = count(1).__next__
        self._forks: dict[str, _Fork] = {}
        self._settled_with: str | None = None  # the fork whose reliable response answered our offer
        self._rings = False  # any provisional response
        self._given_up: HangupCause | None = None
        self._unsent = False  # the INVITE was refused an address
        self._exchange = ClientRequest(core, next_cseq=self._next_cseq, authorizer=self.authorizer)

    # Verbs ------------------------------------------------------------------------------------------------

    def dial(self, now: float) -> None:
        """Sends the INVITE."""
        self.arm("ring", now + self.settings.ring_timeout_s, self._rang_out)
        self._send_invite(self.negotiation.offer(), now)

    def hang_up(self, now: float, *, cause: HangupCause = HangupCause.NORMAL) -> None:
        """Before an answer: CANCEL, as soon as a provisional response allows it (RFC 3261 9.1)."""
        if self.state is not InviteState.INVITING:
            super().hang_up(now, cause=cause)
        elif self._given_up is None:
            self._given_up = HangupCause.CANCELLED if cause is HangupCause.NORMAL else cause
            if self._rings:
                self._send_cancel(now)

    def finish(
        self, cause: HangupCause, status: int, by: Side, now: float, *, retry_after_s: int | None = None
    ) -> None:
        """See `Invite`. An INVITE without a final response is not waited for without end."""
        super().finish(cause, status, by, now, retry_after_s=retry_after_s)
        transaction = self._exchange.transaction
        if transaction is not None and transaction.state is TransactionState.PROCEEDING:
            self.core.clock.at(now + GIVE_UP_S, transaction.abandon)

    # What comes back --------------------------------------------------------------------------------------

    def response_received(self, response: Response, now: float) -> None:
        """See `TransactionUser`."""
        self.definite = self.definite or response.status >= 200
        if response.status >= 300:
            self._refused(response, now)
        elif response.status >= 200:
            self._answered(response, now)
        elif self.state is InviteState.INVITING:
            self._progressed(response, now)

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        """See `TransactionUser`. Only what certainly never arrived is sent elsewhere: an INVITE that nobody
        answered may be ringing all the same, and nobody is called twice."""
        if self.state is not InviteState.INVITING or (transport_failed and self._next_target(now)):
            return
        cancelled = self._given_up is HangupCause.CANCELLED
        unreachable = HangupCause.ADDRESS_REFUSED if self._unsent else HangupCause.UNREACHABLE
        cause = HangupCause.CANCELLED if cancelled else unreachable
        self.finish(cause, 503 if transport_failed else 408, "local", now)

    def address_refused(self, address: str, now: float) -> None:
        """See `Invite`. An INVITE that was refused an address may still go to the next one."""
        if self.state is InviteState.INVITING and not self._rings:
            self._unsent = True
            self.refusals.note(address)
        else:
            super().address_refused(address, now)

    def unusable(self, error: RemoteError, now: float) -> None:
        """See `Invite`. A call that was given up ends for the reason that it was given up for."""
        if self._given_up is None:
            super().unusable(error, now)
        else:
            super().hang_up(now, cause=self._given_up)

    def bye_received(self, transaction: ServerTransaction, now: float) -> None:
        """A BYE may overtake the 2xx that it ends, which is then acknowledged and declined."""
        if self.state is InviteState.INVITING and self._given_up is None:
            self._given_up = HangupCause.NORMAL
        super().bye_received(transaction, now)

    # Within -----------------------------------------------------------------------------------------------

    def _send_invite(self, offer: bytes, now: float) -> None:
        self.definite = False
        invitation = self._invitation
        target = invitation.targets[self._target]
        hop = hop_of(target, egress=self.egress)
        self._unsent = False
        headers = Headers()
        headers.add("Max-Forwards", "70")
        headers.add("From", str(self._caller))
        headers.add("To", f"<{invitation.targets[0].without_params()}>")
        headers.add("Call-ID", self.call_id)
        headers.add("CSeq", str(CSeq(self._next_cseq(), "INVITE")))
        headers.add("Contact", self.core.contact(hop, invitation.caller.uri.user))
        self.introduce(headers)
        self.session.ask(headers)
        for name, value in invitation.headers.items():
            headers.add(name, value)
        headers.add("Content-Type", SDP)
        self._exchange.send(Request("INVITE", target, headers, offer), hop, self, now)

    def _again(self, now: float) -> None:
        self._forget_forks()
        self.negotiation.withdraw()
        self._send_invite(self.negotiation.offer(), now)

    def _next_target(self, now: float) -> bool:
        if self._given_up is not None or self._target + 1 >= len(self._invitation.targets):
            return False
        self._target += 1
        self._again(now)
        return True

    def _rang_out(self, now: float) -> None:
        self.hang_up(now, cause=HangupCause.NO_ANSWER)

    def _send_cancel(self, now: float) -> None:
        assert self._exchange.transaction is not None
        self.core.send_cancel(self._exchange.transaction, FireAndForget(), now)
        # RFC 3261 9.1: without a final response 64*T1 after the CANCEL the transaction counts as cancelled.
        self.arm("cancel", now + GIVE_UP_S, self._cancel_unanswered)

    def _cancel_unanswered(self, now: float) -> None:
        self.finish(self._given_up or HangupCause.CANCELLED, 408, "local", now)

    def _progressed(self, response: Response, now: float) -> None:
        first, self._rings = not self._rings, True
        if self._given_up is not None:
            if first:
                self._send_cancel(now)
            return
        if response.status == 100 or not response.to.tag:
            return
        fork = self._fork(response)
        if "100rel" in response.require and not self._acknowledge_provisional(fork, response, now):
            return
        early_media = self._early_media(response, now, reliable="100rel" in response.require)
        self.core.emit(InviteProgressed(self, response.status, early_media))

    def _early_media(self, response: Response, now: float, *, reliable: bool) -> bool:
        """Takes the answer in a provisional response, if there is one; a broken one is none. In a reliable
        one it is the final answer of that fork (RFC 3262 section 5): no other follows it."""
        try:
            body = session_description(response)
            if not body:
                return False
            self._turn_to_fork(response)
            if reliable:
                plan = self.negotiation.settle(body)
                self._settled_with = response.to.tag
            else:
                plan = self.negotiation.preview(body)
        except RemoteError as error:
            if reliable:
                self.unusable(error, now)
            return False
        if plan is not None:
            self.core.emit(MediaAgreed(self, plan))
        return True

    def _turn_to_fork(self, response: Response) -> None:
        """Our one offer is answered by every fork: the last that says something is who we talk to."""
        if self._settled_with is not None and self._settled_with != response.to.tag:
            self._settled_with = None
            self.negotiation.reopen()

    def _fork(self, response: Response) -> _Fork:
        tag = response.to.tag or ""
        fork = self._forks.get(tag)
        if fork is None:
            assert self._exchange.transaction is not None
            transaction = self._exchange.transaction
            dialog = Dialog.as_caller(
                transaction.request, response, source=transaction.source, egress=self.egress
            )
            fork = _Fork(dialog)
            self._forks[tag] = fork
            self.dialog = self.dialog or fork.dialog
            self.core.open_dialog(fork.dialog, self)
        else:
            fork.dialog.refresh_target(response)
        return fork

    def _acknowledge_provisional(self, fork: _Fork, response: Response, now: float) -> bool:
        """PRACK (RFC 3262 section 4). False: a repetition, or one that overtook its predecessor."""
        rseq = delta_seconds(response.header("RSeq"))
        if rseq is None or (fork.rseq is not None and rseq != fork.rseq + 1):
            return False
        fork.rseq = rseq
        prack = fork.dialog.request("PRACK")
        prack.headers.add("RAck", f"{rseq} {response.cseq}")
        exchange = ClientRequest(self.core, next_cseq=fork.dialog.next_cseq, authorizer=self.authorizer)
        exchange.send(prack, fork.dialog.next_hop(), FireAndForget(), now)
        return True

    def _refused(self, response: Response, now: float) -> None:
        if self.state is not InviteState.INVITING:
            return
        if self._given_up is None:
            if response.status == 422 and self.session.too_brief(response):
                self._again(now)
                return
            if response.status == 503 and self._next_target(now):
                return
        cause = self._given_up or cause_of(response.status)
        retry_after_s = delta_seconds(response.header("Retry-After"))
        by: Side = "local" if self._given_up is not None else "remote"
        self.finish(cause, response.status, by, now, retry_after_s=retry_after_s)

    def _answered(self, response: Response, now: float) -> None:
        tag = response.to.tag or ""
        fork = self._forks.get(tag) or self._fork(response)
        first = fork.ack is None
        self._acknowledge(fork, response)
        if not first:
            return
        if self.state is not InviteState.INVITING:
            self._decline_fork(fork, now)
            return
        self.state = InviteState.CONFIRMED
        self.dialog = fork.dialog
        fork.dialog.update_routes(response)
        self.disarm("ring")
        self.disarm("cancel")
        for other in self._forks.values():
            if other is not fork:
                self.core.close_dialog(other.dialog.id)
        self.peer_updates = "UPDATE" in (response.header("Allow") or "").upper()
        self._come_up(response, now)

    def _come_up(self, response: Response, now: float) -> None:
        try:
            self.session.agreed(response, now)
            self._turn_to_fork(response)
            plan = self.negotiation.settle(session_description(response))
        except RemoteError as error:
            self.unusable(error, now)
            return
        if self._given_up is not None:
            super().hang_up(now, cause=self._given_up)
            return
        if plan is not None:
            self.core.emit(MediaAgreed(self, plan))
        self.core.emit(InviteAnswered(self, response.status))
        self.arm_session(now)

    def _acknowledge(self, fork: _Fork, response: Response) -> None:
        """ACKs a 2xx, the same way each time it comes (RFC 3261 13.2.2.4)."""
        if fork.ack is None:
            fork.dialog.refresh_target(response)
            fork.dialog.update_routes(response)
            assert self._exchange.transaction is not None
            fork.ack = fork.dialog.ack(self._exchange.transaction.request)
            fork.ack_hop = fork.dialog.next_hop()
        assert fork.ack_hop is not None
        self.core.send_ack(fork.ack, fork.ack_hop)

    def _decline_fork(self, fork: _Fork, now: float) -> None:
        """Somebody else answered too, or the call was given up: hang up on them."""
        self.core.close_dialog(fork.dialog.id)
        exchange = ClientRequest(self.core, next_cseq=fork.dialog.next_cseq, authorizer=self.authorizer)
        exchange.send(fork.dialog.request("BYE"), fork.dialog.next_hop(), FireAndForget(), now)

    def _forget_forks(self) -> None:
        for fork in self._forks.values():
            self.core.close_dialog(fork.dialog.id)
        self._forks = {}
        self._settled_with = None
        self._rings = False
        self.dialog = None

    def close_dialogs(self) -> None:
        """See `Invite`."""
        for fork in self._forks.values():
            self.core.close_dialog(fork.dialog.id)
