"""The part of a call that caller and callee share: verbs of the application, requests of the far end.

`sip.dialog.uac.OutgoingInvite` and `sip.dialog.uas.IncomingInvite` set up the call."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network

from sip.dialog.in_dialog import ANSWERS
from sip.dialog.reinvite import SessionChanges
from sip.dialog.ua_core import ALLOW
from sip.dialog.usage import InviteUsage
from sip.message.message import Request
from sip.reason import reasons_of
from sip.states import HangupCause
from sip.transaction.transaction import ServerTransaction


class Invite:
    """One call. Verbs and messages take `now`; requests, responses and events go to the core of `usage`."""

    def __init__(self, usage: InviteUsage) -> None:
        self.usage = usage
        usage.role = self
        usage.egress.refused = self.address_refused
        self._changes = SessionChanges(usage)

    @property
    def allow_from(self) -> Sequence[IPv4Network | IPv6Network]:
        """Networks of the trunk, from which requests within the call are accepted."""
        return self.usage.settings.allow_from

    @property
    def answer_due(self) -> bool:
        """Whether an offer of the far end has not been answered yet."""
        return False

    def hang_up(self, now: float, *, cause: HangupCause = HangupCause.NORMAL) -> None:
        """Ends the call by the request or response that its state calls for; does nothing after the end."""
        self.usage.hang_up(now, cause=cause)

    def set_hold(self, hold: bool, now: float) -> None:
        """Holds or resumes; `ChangeFinished` reports the result. Raises `LocalError` unless the call is
        up."""
        self._changes.set_hold(hold, now)

    def request_received(self, transaction: ServerTransaction, now: float) -> None:
        """Answers a request within the dialog, ACK excepted."""
        request, dialog = transaction.request, self.usage.dialog
        answer = ANSWERS.get(request.method)
        if dialog is None or not dialog.in_order(request):
            self.usage.core.reply(transaction, 500, now)
        elif answer is None:
            self.usage.core.reply(transaction, 405, now, headers=(("Allow", ALLOW),))
        else:
            answer(self, transaction, now)

    def ack_received(self, ack: Request, now: float) -> None:
        """Takes the ACK of a 2xx, and starts the change that waited for it."""
        self.usage.ack_received(ack, now)
        self._changes.start_next(now)

    def bye_received(self, transaction: ServerTransaction, now: float) -> None:
        """Answers a BYE and ends the call."""
        self.usage.core.reply(transaction, 200, now)
        reasons = reasons_of(transaction.request.headers)
        self.usage.finish(HangupCause.NORMAL, 200, "remote", now, reasons=reasons)

    def prack_received(self, transaction: ServerTransaction, now: float) -> None:
        """Answers a PRACK with 481; only the callee sends responses that a PRACK acknowledges."""
        self.usage.core.reply(transaction, 481, now)

    def address_refused(self, address: str, now: float) -> None:
        """Ends the call, because a request was not sent to `address`, which is closed to the trunk."""
        self.usage.refusals.note(address)
        self.hang_up(now, cause=HangupCause.ADDRESS_REFUSED)

    def session_due(self, now: float) -> None:
        """Refreshes the session, or hangs up once it has expired (RFC 4028 section 10)."""
        expires_at = self.usage.session.expires_at
        if expires_at is not None and now >= expires_at:
            self.hang_up(now, cause=HangupCause.SESSION_EXPIRED)
            return
        self._changes.refresh(now)
        self.usage.arm_session(now)

    def closing(self, now: float) -> None:
        """Abandons changes under way and closes the dialog, because the call is over."""
        self._changes.abandon(now)
        if self.usage.dialog is not None:
            self.usage.core.close_dialog(self.usage.dialog.id)
