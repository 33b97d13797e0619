"""A REFER of the far end: it asks for a call to somebody else in its own place (RFC 3515).

The far end is told by NOTIFY how that goes."""

from __future__ import annotations

from sip.dialog.client_request import ClientRequest
from sip.dialog.events import MoveAsked
from sip.dialog.referral import EVENT, SIPFRAG
from sip.dialog.usage import InviteUsage
from sip.message.message import response_to
from sip.message.uri import Uri
from sip.transaction.transaction import FireAndForget, ServerTransaction


class MoveRequest:
    """One REFER that was accepted (202). `to`: whom the far end names. The application answers by `tell`, the
    last time with a final status. A usage of the dialog of its own, like `Referral`."""

    def __init__(self, usage: InviteUsage, to: Uri, transaction: ServerTransaction, now: float) -> None:
        assert usage.dialog is not None
        self.to = to
        self._status = 0
        self._core = usage.core
        self._dialog = usage.dialog
        self._authorizer = usage.authorizer
        self._id = transaction.request.cseq.number
        usage.request_to_move = self
        headers = [("Contact", self._dialog.contact)]
        transaction.respond(response_to(transaction.request, 202, headers=headers), now)
        self.tell(100, now)
        usage.core.emit(MoveAsked(usage.dialog_set, self))

    @property
    def pending(self) -> bool:
        """Whether no final status has been told."""
        return self._status < 200

    def tell(self, status: int, now: float) -> None:
        """Tells the far end how the call goes; a status of 200 and above is the last one."""
        if not self.pending:
            return
        self._status = status
        notify = self._dialog.request("NOTIFY")
        notify.headers.add("Contact", self._dialog.contact)
        notify.headers.add("Event", f"{EVENT};id={self._id}")
        state = "active;expires=300" if self.pending else "terminated;reason=noresource"
        notify.headers.add("Subscription-State", state)
        notify.headers.add("Content-Type", f"{SIPFRAG};version=2.0")
        notify.body = f"SIP/2.0 {status} Told\r\n".encode()
        client = ClientRequest(self._core, next_cseq=self._dialog.next_cseq, authorizer=self._authorizer)
        client.send(notify, self._dialog.next_hop(), FireAndForget(), now)
