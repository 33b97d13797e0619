"""The part of a call that caller and callee share: verbs of the application, requests of the far end; and
what a call needs of its signalling, whichever engine has it (`Signalled`): this stack or PJSIP (`sip.pjsip`).

`sip.dialog.uac.OutgoingInvite` and `sip.dialog.uas.IncomingInvite` set up the call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Protocol, TypeAlias, runtime_checkable

from sip.dialog.in_dialog import ANSWERS
from sip.dialog.reinvite import SessionChanges
from sip.dialog.target_set import TargetSet
from sip.dialog.ua_core import ALLOW, Core
from sip.dialog.usage import InviteSettings, InviteUsage
from sip.message.message import Request
from sip.reason import reasons_of
from sip.sdp.negotiation import Capabilities
from sip.states import HangupCause
from sip.transaction.transaction import ServerTransaction


@runtime_checkable
class Signalled(Protocol):
    """The INVITE of a call, of either direction."""

    usage: InviteUsage

    @property
    def allow_from(self) -> Sequence[IPv4Network | IPv6Network]:
        """Networks of the trunk, from which requests within the call are accepted."""

    def hang_up(self, now: float, *, cause: HangupCause = HangupCause.NORMAL) -> None:
        """Ends the call in any state; does nothing after the end."""

    def set_hold(self, hold: bool, now: float) -> None:
        """Holds or resumes; `ChangeFinished` tells the result. Raises `LocalError` unless the call is up."""


@runtime_checkable
class Offered(Signalled, Protocol):
    """An INVITE of the far end, as `sip.dialog.uas.IncomingInvite` describes its verbs."""

    transaction: ServerTransaction

    def describe(self, capabilities: Capabilities, now: float) -> bool:
        """Reads the offer. False: it cannot be answered and the call has ended."""

    def ring(self, now: float, *, early_media: bool = False) -> None:
        """Tells the far end that somebody is called."""

    def accept(self, now: float) -> None:
        """Answers the call of the far end."""

    def reject(
        self, code: int, now: float, *, cause: HangupCause | None = None, retry_after_s: int = 0
    ) -> None:
        """Refuses the call of the far end."""

    def cancelled(self, now: float, request: Request) -> None:
        """Takes the CANCEL of the far end, which was answered."""


@runtime_checkable
class Dialled(Signalled, Protocol):
    """An INVITE of this side."""

    targets: TargetSet

    def dial(self, now: float) -> None:
        """Sends the INVITE with an offer."""


OfferedBy: TypeAlias = Callable[[Core, InviteSettings, ServerTransaction], Offered]
"""Makes the call of an INVITE that was admitted with these settings."""


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
