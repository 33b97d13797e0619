"""Refers the far end of a call to somebody else: REFER and its subscription (RFC 3515, RFC 6665).

```
SENT ── 2xx ──► ACCEPTED ── NOTIFY 2xx ──────────► CONNECTED
 │                 ├─────── NOTIFY 3xx to 6xx ───► FAILED
 │                 └─────── ended without either ► UNKNOWN
 └──── 3xx to 6xx ► REFUSED
```

A referral is a usage of the call's dialog of its own (RFC 5057): it outlives the call, since a far end that
has taken the transfer over may hang up before it tells how that ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network

from sip.dialog.client_request import ClientRequest
from sip.dialog.dialog import Dialog
from sip.dialog.usage import InviteUsage
from sip.errors import LocalError
from sip.message.message import Request, Response
from sip.message.uri import Uri
from sip.transaction.transaction import ServerTransaction

SIPFRAG = "message/sipfrag"
EVENT = "refer"

LINGER_S = 32.0
"""Seconds that the subscription is kept after the call, for NOTIFYs that are on their way."""

_OF_PROXIES = frozenset({408, 500, 503, 504})
"""Responses that a proxy gives for a far end which may have the REFER all the same."""

_STATUS_LINE = re.compile(rb"SIP/2\.0[ \t]+([1-6][0-9]{2})(?:[ \t]|\r|\n|$)")
_ID = re.compile(r"\bid[ \t]*=[ \t]*([0-9]{1,10})")


class ReferralState(StrEnum):
    """The states of a referral, from its REFER to the end of what the far end tells."""

    SENT = "sent"  # REFER sent, no final response
    ACCEPTED = "accepted"  # the far end tries
    REFUSED = "refused"  # a final response to REFER that is no 2xx: nobody was called
    CONNECTED = "connected"  # who was called has answered
    FAILED = "failed"  # who was called has not, by the status that the far end told
    UNKNOWN = "unknown"  # no response, or no word of the end: somebody may have been called


PENDING = frozenset({ReferralState.SENT, ReferralState.ACCEPTED})

OUTCOMES: Mapping[int, ReferralState] = {
    1: ReferralState.ACCEPTED,
    2: ReferralState.CONNECTED,
    3: ReferralState.FAILED,
    4: ReferralState.FAILED,
    5: ReferralState.FAILED,
    6: ReferralState.FAILED,
}
"""The state after a NOTIFY by the class of the status that it tells."""


class Referral:
    """One REFER within a call that is up. `changed` is called with every change of `state` or `status`, which
    is that of the response to REFER, later the one that NOTIFY told. Raises `LocalError` while another is
    under way, and unless the call is up."""

    def __init__(self, usage: InviteUsage, to: Uri, changed: Callable[[Referral, float], None]) -> None:
        if not usage.confirmed or usage.dialog is None:
            raise LocalError("only a call that is up can be referred")
        if usage.referral is not None and usage.referral.pending:
            raise LocalError("another referral is under way")
        usage.referral = self
        self.state = ReferralState.SENT
        self.status = 0
        self._changed = changed
        self._core = usage.core
        self._dialog: Dialog = usage.dialog
        self._allow_from = usage.settings.allow_from
        self._client_request = ClientRequest(
            usage.core, next_cseq=self._dialog.next_cseq, authorizer=usage.authorizer
        )
        self._request = self._dialog.request("REFER")
        self._request.headers.add("Contact", self._dialog.contact)
        self._request.headers.add("Refer-To", f"<{to}>")
        self._request.headers.add("Referred-By", f"<{self._dialog.local.uri}>")
        usage.introduce(self._request.headers)

    @property
    def pending(self) -> bool:
        """Whether the far end has still something to tell."""
        return self.state in PENDING

    @property
    def allow_from(self) -> Sequence[IPv4Network | IPv6Network]:
        """Networks of the trunk, from which NOTIFYs are accepted after the call as well."""
        return self._allow_from

    def send(self, now: float) -> None:
        """Sends the REFER, once in the life of a referral."""
        self._client_request.send(self._request, self._dialog.next_hop(), self, now)

    def outlive(self, now: float) -> None:
        """Keeps the dialog for NOTIFYs, because the call is over; for `LINGER_S` at most."""
        if self.pending:
            self._core.open_dialog(self._dialog, self)
            self._core.clock.at(now + LINGER_S, self._forget)

    def abandon(self, now: float) -> None:
        """Waits for the far end no longer: the end stays unknown. Later NOTIFYs are answered."""
        self._move(ReferralState.UNKNOWN, self.status, now)

    # Responses to REFER -----------------------------------------------------------------------------------

    def response_received(self, response: Response, now: float) -> None:
        """Takes a response to the REFER; a NOTIFY may have overtaken it (RFC 6665 4.1.2.4)."""
        if response.status < 200 or self.state is not ReferralState.SENT:
            return
        state = ReferralState.ACCEPTED if response.status < 300 else ReferralState.REFUSED
        self._move(ReferralState.UNKNOWN if response.status in _OF_PROXIES else state, response.status, now)

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        """Notes that there was none: the REFER may have arrived all the same."""
        self._move(ReferralState.UNKNOWN, 503 if transport_failed else 408, now)

    # Requests of the far end ------------------------------------------------------------------------------

    def request_received(self, transaction: ServerTransaction, now: float) -> None:
        """Answers a request within the dialog of a call that is over: its NOTIFYs."""
        if not self._dialog.in_order(transaction.request):
            self._core.reply(transaction, 500, now)
        elif transaction.request.method != "NOTIFY":
            self._core.reply(transaction, 481, now)
        else:
            self.notified(transaction, now)

    def ack_received(self, ack: Request, now: float) -> None:
        """Ignores an ACK that came late."""

    def notified(self, transaction: ServerTransaction, now: float) -> None:
        """Answers a NOTIFY and takes the status in it (RFC 3515 2.4.4, 2.4.5)."""
        request = transaction.request
        event, _, params = (request.header("Event") or "").lower().partition(";")
        if event.strip() != EVENT:
            self._core.reply(transaction, 489, now, headers=(("Allow-Events", EVENT),))
            return
        if request.body and request.content_type != SIPFRAG:
            self._core.reply(transaction, 415, now, headers=(("Accept", SIPFRAG),))
            return
        self._core.reply(transaction, 200, now)
        number = _ID.search(params)
        if number is not None and int(number[1]) != self._cseq:
            return  # of an earlier REFER of this call
        told = _STATUS_LINE.match(request.body.lstrip())
        if told is not None:
            status = int(told[1])
            self._move(OUTCOMES[status // 100], status, now)
        if _terminated(request):
            self._move(ReferralState.UNKNOWN, self.status, now)

    @property
    def _cseq(self) -> int:
        sent = self._client_request.transaction
        return (sent.request if sent is not None else self._request).cseq.number

    def _move(self, state: ReferralState, status: int, now: float) -> None:
        if not self.pending:
            return
        self.state, self.status = state, status
        self._changed(self, now)
        if not self.pending:
            self._changed = _tell_nobody  # whoever asked refers to the call, which refers to this

    def _forget(self, now: float) -> None:
        self._core.close_dialog(self._dialog.id)
        self.abandon(now)


def _tell_nobody(referral: Referral, now: float) -> None:
    """Does nothing, since a referral's end is told once."""


def _terminated(request: Request) -> bool:
    """Whether a NOTIFY is the last one of its subscription."""
    return (request.header("Subscription-State") or "").partition(";")[0].strip().lower() == "terminated"


def replacing(target: Uri, dialog: Dialog) -> Uri:
    """Returns the Refer-To of an attended transfer: whoever calls `target` by it takes the place of this side
    in `dialog` (RFC 3891, RFC 5589 7)."""
    value = f"{dialog.call_id};to-tag={dialog.remote.tag};from-tag={dialog.local.tag}"
    return replace(target, headers={"Replaces": value})
