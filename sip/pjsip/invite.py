"""A call whose INVITE session PJSIP has: what is common to both directions.

The server's stack stands between PJSIP and the far end as a proxy of its own: it has transactions with the
far end, routes by its own dialog, numbers requests, and puts its own offers and answers in the place of
PJSIP's. Requests that belong to no INVITE session (INFO, OPTIONS, NOTIFY, REFER) it answers itself."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from sip.dialog.dialog import Dialog
from sip.dialog.in_dialog import ANSWERS
from sip.dialog.ua_core import ALLOW
from sip.dialog.usage import InviteRole, InviteState, InviteUsage
from sip.errors import LocalError
from sip.message.message import Request, Response
from sip.pjsip.asked import AskedRequests
from sip.pjsip.processes import Processes
from sip.pjsip.served import ServedRequests
from sip.pjsip.slot import Served, Slot
from sip.reason import Q850, reasons_of
from sip.states import HangupCause
from sip.transaction.transaction import ServerTransaction

OF_THE_SESSION: Final = frozenset({"INVITE", "UPDATE", "BYE", "PRACK"})
"""Requests of the far end that PJSIP answers."""


class PjsipInvite:
    """One call, in a slot of a process. `usage` is the same as of a call without PJSIP: it says what the call
    is, and ends it where PJSIP cannot."""

    def __init__(self, usage: InviteUsage, processes: Processes) -> None:
        self.usage = usage
        usage.role = self
        usage.egress.refused = self.address_refused
        self._slot = Slot(usage.core, usage.settings, processes)
        self._served = ServedRequests(usage, self._slot)
        self._asked = AskedRequests(usage, self._slot)

    @property
    def allow_from(self) -> Sequence[IPv4Network | IPv6Network]:
        """Networks of the trunk, from which requests within the call are accepted."""
        return self.usage.settings.allow_from

    @property
    def answer_due(self) -> bool:
        """Whether an offer of the far end has not been answered yet."""
        return self._served.answer_due

    def hang_up(self, now: float, *, cause: HangupCause = HangupCause.NORMAL) -> None:
        """Hangs up a call that is up, after the ACK where the 2xx has none yet (RFC 3261 15)."""
        if not self.usage.can_change or self._slot.goodbye is not None:
            return
        self._slot.goodbye = cause
        if self.usage.confirmed:
            self._slot.command("hang_up")

    def set_hold(self, hold: bool, now: float) -> None:
        """Holds or resumes; `ChangeFinished` tells the result. Raises `LocalError` unless the call is up."""
        if not self.usage.can_change or self._slot.goodbye is not None:
            raise LocalError("only a call that is up can be held")
        self._asked.set_hold(hold, now)

    def address_refused(self, address: str, now: float) -> None:
        """Ends the call, because a request was not sent to `address`, which is closed to the trunk."""
        self.usage.refusals.note(address)
        self.hang_up(now, cause=HangupCause.ADDRESS_REFUSED)

    def session_due(self, now: float) -> None:
        """Does nothing: PJSIP keeps the session timer."""

    def closing(self, now: float) -> None:
        """Closes the dialog, because the call is over; PJSIP may still have a request to answer."""
        self._asked.finish_change(487)
        if self.usage.dialog is not None:
            self.usage.core.close_dialog(self.usage.dialog.id)

    def request_received(self, transaction: ServerTransaction, now: float) -> None:
        """Hands a request of the session to PJSIP; answers any other."""
        request, usage, dialog = transaction.request, self.usage, self.usage.dialog
        if dialog is None or not dialog.in_order(request):
            usage.core.reply(transaction, 500, now)
        elif request.method not in OF_THE_SESSION:
            ANSWERS.get(request.method, _not_allowed)(self, transaction, now)
        elif self._served.serve(transaction, now) and request.method in ("BYE", "PRACK"):
            ANSWERS[request.method](self, transaction, now)

    def ack_received(self, ack: Request, now: float) -> None:
        """Hands on the ACK of a 2xx, and takes the answer to a late offer that it brings."""
        self._served.hand_ack(ack)
        if self.usage.state is InviteState.ACCEPTED:
            self.usage.state = InviteState.CONFIRMED
            if self._slot.goodbye is not None:
                self._slot.command("hang_up")
        self._asked.settle_late(ack, now)

    def bye_received(self, transaction: ServerTransaction, now: float) -> None:
        """Ends the call; PJSIP answers the BYE."""
        reasons = reasons_of(transaction.request.headers)
        self.usage.finish(HangupCause.NORMAL, 200, "remote", now, reasons=reasons)

    def prack_received(self, transaction: ServerTransaction, now: float) -> None:
        """Takes the answer to an offer in a reliable provisional response; PJSIP answers the PRACK."""
        if transaction.request.body:
            self._asked.settle_late(transaction.request, now)

    # What PJSIP sends -----------------------------------------------------------------------------------

    def message_of_pjsip(self, message: Request | Response, now: float) -> None:
        """Takes a message that PJSIP sends to its peer."""
        slot = self._slot
        if isinstance(message, Response):
            slot.tag = slot.tag or message.to.tag or ""
            self._served.answer(message, now, self)
            return
        slot.tag = slot.tag or message.from_.tag or ""
        if message.method == "CANCEL":
            slot.reply(message, 200)
            self.cancel_of_pjsip(now)
        elif message.method == "INVITE" and self.usage.state is InviteState.INVITING:
            self.invite_of_pjsip(message, now)
        elif message.method == "BYE" and self.usage.can_change:
            self._hang_up_by_pjsip(message, now)
        else:
            self._asked.ask(message, self.dialog_of(message), now)

    def _hang_up_by_pjsip(self, bye: Request, now: float) -> None:
        """Sends a BYE of PJSIP, whose own reason can only be the session timer."""
        cause = self._slot.goodbye or HangupCause.SESSION_EXPIRED
        bye.headers.add("Reason", str(Q850[cause]))
        self._asked.ask(bye, self.usage.dialog, now)
        self.usage.finish(cause, 200, "local", now)

    def invite_of_pjsip(self, request: Request, now: float) -> None:
        """Refuses an INVITE: none is expected of a call that came."""
        self._slot.reply(request, 487)

    def cancel_of_pjsip(self, now: float) -> None:
        """Takes that PJSIP cancels its INVITE; the answer to that is the far end's."""

    def dialog_of(self, request: Request) -> Dialog | None:
        """Returns the dialog that a request of PJSIP belongs to."""
        return self.usage.dialog

    def finishing(self, served: Served, response: Response) -> None:
        """Completes a response of PJSIP before it is sent."""

    def responded(self, served: Served, response: Response, now: float) -> None:
        """Takes that a response of PJSIP was sent to the far end."""
        if response.status < 300 and served.handed.method in ("INVITE", "UPDATE"):
            if self.usage.dialog is not None and response.status >= 200:
                self.usage.dialog.refresh_target(served.transaction.request)
            if served.offer and response.body:
                self.usage.tell_plan()

    # The process ----------------------------------------------------------------------------------------

    def arrived_at_pjsip(self, now: float) -> None:
        """Notes that PJSIP has the far end's INVITE."""
        self.usage.disarm("engine")

    def refused_by_pjsip(self, verb: str, now: float) -> None:
        """Takes that PJSIP did not carry out a command."""
        if verb == "reinvite":
            self._asked.refused(now)

    def ended_at_pjsip(self, status: int, reason: str, now: float) -> None:
        """Hangs up, where PJSIP has ended the call without a word to the far end."""
        if self.usage.state in (InviteState.ACCEPTED, InviteState.CONFIRMED):
            up = self.usage.state is InviteState.CONFIRMED
            lost = HangupCause.REMOTE_ERROR if up else HangupCause.NO_ACK
            self._end_without_pjsip(self._slot.goodbye or lost, now)

    def crashed(self, reason: str, now: float) -> None:
        """Ends the call, because its process is gone."""
        self._slot.process = None
        self._served.abandon(now)
        if self.usage.state in (InviteState.ACCEPTED, InviteState.CONFIRMED):
            self._end_without_pjsip(HangupCause.ENGINE_FAILED, now)

    def _end_without_pjsip(self, cause: HangupCause, now: float) -> None:
        """Ends a call that is up by a BYE of the server's own."""
        self.usage.state = InviteState.CONFIRMED
        self.usage.hang_up(now, cause=cause)


def _not_allowed(role: InviteRole, transaction: ServerTransaction, now: float) -> None:
    """Refuses a method that no call has."""
    role.usage.core.reply(transaction, 405, now, headers=(("Allow", ALLOW),))
