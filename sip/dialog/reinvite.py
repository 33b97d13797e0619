"""A change of a call that is up, asked for by us: hold, resume, session refresh (RFC 3261 14, 3311, 4028)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sip.dialog.client_request import ClientRequest
from sip.dialog.events import ChangeFinished, MediaAgreed
from sip.errors import RemoteError
from sip.message.body import SDP, session_description
from sip.message.message import Request, Response
from sip.sdp.offer_answer import OfferState
from sip.states import HangupCause
from sip.transaction.hop import Hop

if TYPE_CHECKING:
    from sip.dialog.invite import Invite

MAX_ATTEMPTS = 6


class Change:
    """One re-INVITE or UPDATE and its repetitions after glare (491) or a longer session interval (422).

    `hold`: what the call is to become; None refreshes the session as it is, by UPDATE without SDP where the
    far end knows UPDATE, else by re-INVITE.
    """

    def __init__(self, invite: Invite, *, hold: bool | None) -> None:
        self._invite = invite
        self._hold = hold
        self._attempts = 0
        self._ack: Request | None = None
        self._ack_hop: Hop | None = None
        self._finished = False
        self.outstanding = False  # a request is under way, not just waiting to be repeated
        assert invite.dialog is not None
        self._dialog = invite.dialog
        self._exchange = ClientRequest(
            invite.core, next_cseq=self._dialog.next_cseq, authorizer=invite.authorizer
        )

    @property
    def method(self) -> str:
        """UPDATE carries no offer of ours: it does for refreshes only."""
        return "UPDATE" if self._hold is None and self._invite.peer_updates else "INVITE"

    def start(self, now: float) -> None:
        """Asks, for the first time or again."""
        if self._finished or not self._invite.confirmed:
            return
        if self._invite.changing or self._invite.negotiation.state is OfferState.OFFERED:
            self._invite.arm("glare", now + self._glare_wait_s(), self.start)  # theirs came in between
            return
        self._attempts += 1
        method = self.method
        request = self._dialog.request(method)
        self._invite.introduce(request.headers)
        self._invite.session.ask(request.headers)
        if method == "INVITE":
            request.headers.add("Content-Type", SDP)
            request.body = self._invite.negotiation.offer(hold=self._hold)
        self.outstanding = True
        self._exchange.send(request, self._dialog.next_hop(), self, now)

    def response_received(self, response: Response, now: float) -> None:
        """Takes a response to the re-INVITE or UPDATE: it is agreed on, retried (491, 422), or refused."""
        if response.status < 200:
            return
        self.outstanding = False
        if response.status < 300:
            self._accepted(response, now)
        elif not self._finished:
            self._refused(response, now)

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        """Hangs up: without a response to a request within it the dialog is over (RFC 3261 12.2.1.2)."""
        if self._finish(408, now):
            expired = HangupCause.SESSION_EXPIRED if self._hold is None else HangupCause.UNREACHABLE
            self._invite.hang_up(now, cause=expired)

    def abandon(self, now: float) -> None:
        """Finishes the change with 487, because the call is over."""
        self._finish(487, now)

    def _accepted(self, response: Response, now: float) -> None:
        if response.cseq.method == "INVITE":
            self._acknowledge()
        if self._finished:
            return
        self._dialog.refresh_target(response)
        self._invite.session.agreed(response, now)
        try:
            plan = self._invite.negotiation.settle(session_description(response))
        except RemoteError as error:
            self._finish(488, now)
            self._invite.unusable(error, now)
            return
        if plan is not None:
            self._invite.core.emit(MediaAgreed(self._invite, plan))
        self._finish(response.status, now)
        self._invite.arm_session(now)

    def _acknowledge(self) -> None:
        """ACKs a 2xx, the same way each time it comes (13.2.2.4)."""
        if self._ack is None:
            assert self._exchange.transaction is not None
            self._ack = self._dialog.ack(self._exchange.transaction.request)
            self._ack_hop = self._dialog.next_hop()
        assert self._ack_hop is not None
        self._invite.core.send_ack(self._ack, self._ack_hop)

    def _refused(self, response: Response, now: float) -> None:
        invite = self._invite
        invite.negotiation.withdraw()
        if self._attempts < MAX_ATTEMPTS:
            if response.status == 491:
                invite.arm("glare", now + self._glare_wait_s(), self.start)
                return
            if response.status == 422 and invite.session.too_brief(response):
                self.start(now)
                return
            if response.status in (405, 501) and response.cseq.method == "UPDATE":
                invite.peer_updates = False
                self.start(now)
                return
        self._finish(response.status, now)
        if response.status in (408, 481):
            invite.hang_up(now, cause=HangupCause.REMOTE_ERROR)
        elif self._hold is None:
            invite.arm_session(now)

    def _glare_wait_s(self) -> float:
        """RFC 3261 14.1: the owner of the Call-ID waits longer, both in units of 10 ms."""
        first, last = (210, 400) if self._invite.outgoing else (0, 200)
        return self._invite.core.random.randint(first, last) / 100

    def _finish(self, status: int, now: float) -> bool:
        if self._finished:
            return False
        self._finished = True
        self._invite.negotiation.withdraw()
        self._invite.change_finished(self, now)
        if self._hold is not None:
            self._invite.core.emit(ChangeFinished(self._invite, status))
        return True
