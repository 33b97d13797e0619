"""Takes a call whose INVITE session PJSIP has: from its arrival to the ACK of its 2xx, or to its end."""

from __future__ import annotations

from functools import partial

from sip.dialog.dialog import DialogSetId
from sip.dialog.events import InviteAnswered, InviteProgressed
from sip.dialog.in_dialog import refuse_body
from sip.dialog.ua_core import Core
from sip.dialog.uas import DECIDE_S, called_dialog, cause_of_offer
from sip.dialog.usage import InviteSettings, InviteState, InviteUsage
from sip.errors import LocalError, RemoteError
from sip.message.body import session_description
from sip.message.message import Request, Response
from sip.pjsip.dialling import STARTS_S
from sip.pjsip.invite import PjsipInvite
from sip.pjsip.messages import cancel_to_pjsip
from sip.pjsip.processes import Processes
from sip.pjsip.slot import Served
from sip.reason import Q850, reasons_of
from sip.sdp.negotiation import Capabilities
from sip.states import HangupCause, cause_of
from sip.transaction.transaction import ServerTransaction

RETRY_AFTER_S = 2


class IncomingPjsipInvite(PjsipInvite):
    """A call that the far end places."""

    def __init__(
        self, core: Core, settings: InviteSettings, transaction: ServerTransaction, *, processes: Processes
    ) -> None:
        request = transaction.request
        dialog_set = DialogSetId(request.call_id, core.token())
        usage = InviteUsage(core, settings, dialog_set, outgoing=False, peer=transaction.source.host)
        super().__init__(usage, processes)
        self.transaction = transaction
        usage.dialog = dialog = called_dialog(usage, transaction)
        usage.meet(request)
        self._why: HangupCause | None = None  # refused by this side
        self._arrived, self._retry_after_s = False, 0
        self._first: Served | None = None
        core.open_dialog(dialog, self)

    def describe(self, capabilities: Capabilities, now: float) -> bool:
        """Reads the offer, then hands the INVITE to PJSIP. False: nobody takes it, and the call has ended."""
        usage, request = self.usage, self.transaction.request
        usage.arm("unanswered", now + DECIDE_S, partial(self.reject, 480))
        negotiation = usage.describe(capabilities)
        try:
            offer = session_description(request)
            body = negotiation.respond(offer) if offer else b""
        except RemoteError as error:
            refuse_body(usage, self.transaction, error, now)
            usage.finish(cause_of_offer(error), error.code, "local", now)
            return False
        try:
            self._slot.board(self)
        except OSError:
            self.reject(503, now, cause=HangupCause.ENGINE_FAILED, retry_after_s=RETRY_AFTER_S)
            return False
        self._first = self._served.hand(self.transaction, offer, body)
        usage.arm("engine", now + STARTS_S, self._not_taken)
        return True

    def ring(self, now: float, *, early_media: bool = False) -> None:
        """Has PJSIP send 180, or 183 with SDP so that the callee can be heard before the answer. Raises
        `LocalError` after the answer."""
        _require_invited(self.usage)
        self._slot.command("answer", status=183 if early_media else 180)

    def accept(self, now: float) -> None:
        """Has PJSIP send 200. Raises `LocalError` after the answer."""
        _require_invited(self.usage)
        self._slot.command("answer", status=200)

    def reject(
        self, code: int, now: float, *, cause: HangupCause | None = None, retry_after_s: int = 0
    ) -> None:
        """Has PJSIP send the final response `code` (300 to 699). Raises `LocalError` after the answer."""
        _require_invited(self.usage)
        self._why, self._retry_after_s = cause or cause_of(code), retry_after_s
        if self._slot.process is not None:
            self._slot.command("answer", status=code)
        else:
            self._refuse_without_pjsip(code, now)

    def hang_up(self, now: float, *, cause: HangupCause = HangupCause.NORMAL) -> None:
        """Refuses before the answer with 480, or with 503 when this server stops; later hangs up."""
        if self.usage.state is not InviteState.INVITED:
            super().hang_up(now, cause=cause)
        elif self._why is None:
            shutdown = cause is HangupCause.SHUTDOWN
            self.reject(503 if shutdown else 480, now, cause=cause if shutdown else HangupCause.CANCELLED)

    def cancelled(self, now: float, request: Request) -> None:
        """Hands on a CANCEL, unless the call was answered already (RFC 3261 9.2)."""
        if self.usage.state is InviteState.INVITED and self._first is not None:
            self._slot.send(cancel_to_pjsip(self._first.handed))
            self._give_up(request, now)

    def bye_received(self, transaction: ServerTransaction, now: float) -> None:
        """Ends the call, possibly before it was answered (RFC 3261 15.1.2)."""
        if self.usage.state is InviteState.INVITED:
            self._give_up(transaction.request, now)
        else:
            super().bye_received(transaction, now)

    def _give_up(self, request: Request, now: float) -> None:
        self.usage.core.reply(self.transaction, 487, now, to_tag=self.usage.dialog_set.local_tag)
        self.usage.finish(HangupCause.CANCELLED, 487, "remote", now, reasons=reasons_of(request.headers))

    def responded(self, served: Served, response: Response, now: float) -> None:
        """Takes that a response of PJSIP was sent."""
        if served is not self._first:
            super().responded(served, response, now)
            return
        usage, status = self.usage, response.status
        if usage.state is not InviteState.INVITED:
            return
        if served.offer and response.body:
            usage.tell_plan()
            if status < 200:
                usage.core.emit(InviteProgressed(usage.dialog_set, status, True))
        if 200 <= status < 300:
            usage.state = InviteState.ACCEPTED
            usage.disarm("unanswered")
            usage.core.emit(InviteAnswered(usage.dialog_set))
        elif status >= 300:
            if not self._arrived:
                self._slot.free()  # PJSIP has no call of an INVITE that it refuses by itself
            usage.finish(self._why or cause_of(status), status, "local", now)

    def finishing(self, served: Served, response: Response) -> None:
        """Says why this side refuses."""
        if served is self._first and response.status >= 300:
            for name, value in _explained(self._why, self._retry_after_s):
                response.headers.set(name, value)

    def arrived_at_pjsip(self, now: float) -> None:
        """Notes that PJSIP has the INVITE."""
        super().arrived_at_pjsip(now)
        self._arrived = True

    def ended_at_pjsip(self, status: int, reason: str, now: float) -> None:
        """Ends a call that PJSIP has ended without a word."""
        self._slot.process = None
        if self.usage.state is InviteState.INVITED:
            self._refuse_without_pjsip(status if status >= 300 else 500, now, self._why)
        else:
            super().ended_at_pjsip(status, reason, now)

    def _not_taken(self, now: float) -> None:
        """Refuses an INVITE that PJSIP has passed over; ends a process that has not even started."""
        if self._slot.works and self.usage.state is InviteState.INVITED:
            self._slot.free()
            self._refuse_without_pjsip(500, now)
        else:
            self._slot.kill()

    def crashed(self, reason: str, now: float) -> None:
        """Ends the call, because its process is gone."""
        super().crashed(reason, now)
        if self.usage.state is InviteState.INVITED:
            self._refuse_without_pjsip(500, now)

    def _refuse_without_pjsip(self, status: int, now: float, why: HangupCause | None = None) -> None:
        why = why or HangupCause.ENGINE_FAILED
        tag, headers = self.usage.dialog_set.local_tag, _explained(why, self._retry_after_s)
        self.usage.core.reply(self.transaction, status, now, headers=headers, to_tag=tag)
        self.usage.finish(why, status, "local", now)


def _explained(why: HangupCause | None, retry_after_s: int) -> tuple[tuple[str, str], ...]:
    """Returns the header fields of a refusal that say why."""
    reason = (("Reason", str(Q850[why])),) if why is not None else ()
    return (*reason, *((("Retry-After", str(retry_after_s)),) if retry_after_s else ()))


def _require_invited(usage: InviteUsage) -> None:
    if usage.state is not InviteState.INVITED:
        raise LocalError(f"not possible once the call is {usage.state}")
