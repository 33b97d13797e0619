"""Takes a call: an INVITE from its arrival to the ACK of its 2xx, or to its end."""

from __future__ import annotations

from dataclasses import replace

from sip.dialog.dialog import Dialog, DialogSetId
from sip.dialog.events import InviteAnswered
from sip.dialog.in_dialog import refuse_body
from sip.dialog.invite import Invite
from sip.dialog.reliable_response import UNLIMITED_S, ReliableResponse
from sip.dialog.ua_core import Core
from sip.dialog.usage import InviteSettings, InviteState, InviteUsage
from sip.errors import LocalError, MalformedMessage, MediaRefused, RemoteError
from sip.message.body import SDP, session_description
from sip.message.message import Request, response_to
from sip.reason import Q850, reasons_of
from sip.sdp.negotiation import Capabilities
from sip.states import HangupCause, cause_of, cause_of_answer
from sip.transaction.transaction import ServerTransaction

DECIDE_S = 180.0
"""Seconds that the application may leave a call unanswered (timer C of proxies, RFC 3261 16.6)."""
KEEP_RINGING_S = 60.0
"""Seconds between provisional responses, so that proxies do not give up (RFC 3261 13.3.1.1)."""


class IncomingInvite(Invite):
    """A call that the far end places.

    Call `describe` with the local capabilities, then `ring` as often as wanted, then `accept` or `reject`."""

    def __init__(self, core: Core, settings: InviteSettings, transaction: ServerTransaction) -> None:
        request = transaction.request
        dialog_set = DialogSetId(request.call_id, core.token())
        peer = transaction.source.host
        super().__init__(InviteUsage(core, settings, dialog_set, outgoing=False, peer=peer))
        self.transaction = transaction
        self.usage.dialog = dialog = called_dialog(self.usage, transaction)
        self.usage.meet(request)
        self.late_offer = False
        self._answer = b""
        self._answer_sent = False
        self._rseq = core.random.randint(1, 2**31 - 1)
        self._reliable_response: ReliableResponse | None = (
            None  # a reliable provisional response without its PRACK
        )
        self._accept_wanted = False
        core.open_dialog(dialog, self)

    @property
    def answer_due(self) -> bool:
        """Whether the offer of the far end has not been answered yet."""
        return self.usage.state is InviteState.INVITED and not self._answer_sent

    # Verbs ------------------------------------------------------------------------------------------------

    def describe(self, capabilities: Capabilities, now: float) -> bool:
        """Reads the offer. False: it cannot be answered and the call has ended (488, 415, 422, 400)."""
        request = self.transaction.request
        self.usage.arm("unanswered", now + DECIDE_S, self._undecided)
        negotiation = self.usage.describe(capabilities)
        try:
            minimum_s = self.usage.session.refusal(request)
            offer = session_description(request)
            self._answer = negotiation.respond(offer) if offer else b""
        except RemoteError as error:
            refuse_body(self.usage, self.transaction, error, now)
            self.usage.finish(cause_of_offer(error), error.code, "local", now)
            return False
        if minimum_s is not None:
            self._respond(422, now, headers=(("Min-SE", str(minimum_s)),))
            self.usage.finish(HangupCause.REMOTE_ERROR, 422, "local", now)
            return False
        self.late_offer = not offer
        return True

    def ring(self, now: float, *, early_media: bool = False) -> None:
        """Sends 180, or 183 with SDP so that the callee can be heard before the answer.

        An INVITE without an offer can have early media only where 100rel carries offer and answer. Raises
        `LocalError` after the answer."""
        self._require(InviteState.INVITED)
        if self._reliable_response is not None:
            return  # one reliable response at a time (RFC 3262 section 3)
        early_media = early_media and (not self.late_offer or self._reliable)
        self._provisional(183 if early_media else 180, early_media, now)
        if early_media and not self.late_offer:
            self.usage.tell_plan()

    def accept(self, now: float) -> None:
        """Sends 200; after the PRACK of a reliable provisional response that has none yet. Raises
        `LocalError` after the answer."""
        self._require(InviteState.INVITED)
        if self._reliable_response is not None:
            self._accept_wanted = True
            return
        offers = self.late_offer and not self._answer_sent
        if offers:
            self._answer = self.usage.negotiation.offer()
        self.usage.disarm("ringing")
        self.usage.disarm("unanswered")
        self.usage.state = InviteState.ACCEPTED
        self.usage.offered_late = offers
        self.usage.accept_with(self.transaction, self._answer, now)
        if not self.late_offer and not self._answer_sent:
            self.usage.tell_plan()
        self._answer_sent = True
        self.usage.core.emit(InviteAnswered(self.usage.dialog_set))

    def reject(
        self, code: int, now: float, *, cause: HangupCause | None = None, retry_after_s: int = 0
    ) -> None:
        """Sends the final response `code` (300 to 699) and ends the call. `retry_after_s`: when another try
        makes sense (0: not said). Raises `LocalError` after the answer."""
        self._require(InviteState.INVITED)
        ended = cause or cause_of(code)
        later = (("Retry-After", str(retry_after_s)),) if retry_after_s else ()
        self._respond(code, now, headers=(("Reason", str(Q850[ended])), *later))
        self.usage.finish(ended, code, "local", now)

    def hang_up(self, now: float, *, cause: HangupCause = HangupCause.NORMAL) -> None:
        """Refuses before the answer with 480, or with 503 when this server stops; later hangs up."""
        if self.usage.state is InviteState.INVITED:
            shutdown = cause is HangupCause.SHUTDOWN
            self.reject(503 if shutdown else 480, now, cause=cause if shutdown else HangupCause.CANCELLED)
        else:
            super().hang_up(now, cause=cause)

    # Requests of the far end ------------------------------------------------------------------------------

    def cancelled(self, now: float, request: Request) -> None:
        """Answers the INVITE with 487 after a CANCEL, unless the call was answered already (RFC 3261 9.2)."""
        if self.usage.state is InviteState.INVITED:
            self._respond(487, now)
            reasons = reasons_of(request.headers)
            self.usage.finish(HangupCause.CANCELLED, 487, "remote", now, reasons=reasons)

    def bye_received(self, transaction: ServerTransaction, now: float) -> None:
        """Answers a BYE, possibly before the call was answered (RFC 3261 15.1.2)."""
        if self.usage.state is InviteState.INVITED:
            self.usage.core.reply(transaction, 200, now)
            self.cancelled(now, transaction.request)
        else:
            super().bye_received(transaction, now)

    def prack_received(self, transaction: ServerTransaction, now: float) -> None:
        """Takes the PRACK of a reliable provisional response, possibly with the answer to a late offer."""
        rack = (transaction.request.header("RAck") or "").split()
        reliable_response = self._reliable_response
        cseq = self.transaction.request.cseq
        if reliable_response is None or rack != [str(self._rseq), str(cseq.number), cseq.method]:
            super().prack_received(transaction, now)
            return
        reliable_response.stop()
        self._reliable_response = None
        try:
            body = session_description(transaction.request)
            if self.late_offer and self._answer_sent and self.usage.negotiation.settle(body) is not None:
                self.usage.tell_plan()
        except RemoteError as error:
            refuse_body(self.usage, transaction, error, now)
            self.reject(488, now, cause=cause_of_answer(error))
            return
        self.usage.core.reply(transaction, 200, now)
        if self._accept_wanted:
            self.accept(now)

    # Internals --------------------------------------------------------------------------------------------

    @property
    def _reliable(self) -> bool:
        request = self.transaction.request
        can = "100rel" in request.supported and self.usage.settings.reliable_provisional
        return can or "100rel" in request.require

    def _require(self, state: InviteState) -> None:
        if self.usage.state is not state:
            raise LocalError(f"not possible once the call is {self.usage.state}")

    def _provisional(self, status: int, with_media: bool, now: float) -> None:
        assert self.usage.dialog is not None
        contact = [("Contact", self.usage.dialog.contact)]
        response = response_to(
            self.transaction.request, status, to_tag=self.usage.dialog.local.tag, headers=contact
        )
        self.usage.introduce(response.headers)
        if with_media:
            if self.late_offer and not self._answer_sent:
                self._answer = self.usage.negotiation.offer()
            response.headers.add("Content-Type", SDP)
            response.body = self._answer
            self._answer_sent = True
        must = "100rel" in self.transaction.request.require
        if must or (with_media and self._reliable):
            self._rseq += 1
            response.headers.add("Require", "100rel")
            response.headers.add("RSeq", str(self._rseq))
            self._reliable_response = ReliableResponse(
                self.usage.core.clock,
                self.transaction,
                response,
                ceiling_s=UNLIMITED_S,
                on_give_up=self._never_acknowledged_provisional,
            )
            self._reliable_response.start(now)
            return
        self.transaction.respond(response, now)
        self.usage.arm(
            "ringing", now + KEEP_RINGING_S, lambda then: self._provisional(status, with_media, then)
        )

    def _undecided(self, now: float) -> None:
        self.reject(480, now)

    def _never_acknowledged_provisional(self, now: float) -> None:
        """Rejects with a 5xx, as no PRACK came (RFC 3262 section 3)."""
        if self.usage.state is InviteState.INVITED:
            self._respond(504, now)
            self.usage.finish(HangupCause.NO_ACK, 504, "local", now)

    def _respond(self, status: int, now: float, *, headers: tuple[tuple[str, str], ...] = ()) -> None:
        assert self.usage.dialog is not None
        if self._reliable_response is not None:
            self._reliable_response.stop()
            self._reliable_response = None
        self.usage.core.reply(
            self.transaction, status, now, headers=headers, to_tag=self.usage.dialog.local.tag
        )


def _asks_for_sips(request: Request) -> bool:
    """Whether the Contact of the response must be a sips URI (RFC 3261 12.1.1)."""
    places = request.record_routes[:1] or request.contacts[:1]
    return "sips" in (request.uri.scheme, *(each.uri.scheme for each in places))


def called_dialog(usage: InviteUsage, transaction: ServerTransaction) -> Dialog:
    """Returns the dialog of the call that the far end places with the INVITE of `transaction`."""
    request, source, egress = transaction.request, transaction.source, usage.egress
    contact = usage.core.contact(
        replace(source, egress=egress), request.uri.number, secure=_asks_for_sips(request)
    )
    tag = usage.dialog_set.local_tag
    return Dialog.as_called(request, local_tag=tag, contact=contact, source=source, egress=egress)


def cause_of_offer(error: RemoteError) -> HangupCause:
    """Returns the hangup cause of a call whose offer cannot be answered."""
    if isinstance(error, MediaRefused):
        return HangupCause.ADDRESS_REFUSED
    return HangupCause.REMOTE_ERROR if isinstance(error, MalformedMessage) else cause_of(error.code)
