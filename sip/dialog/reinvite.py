"""Changes a call that is up, from this side: hold, resume, session refresh (RFC 3261 14, 3311, 4028)."""

from __future__ import annotations

from collections.abc import Callable

from sip.dialog.client_request import ClientRequest
from sip.dialog.events import ChangeFinished, MediaAgreed
from sip.dialog.usage import InviteUsage
from sip.errors import LocalError, RemoteError
from sip.message.body import SDP, session_description
from sip.message.message import Request, Response
from sip.sdp.offer_answer import OfferState
from sip.states import HangupCause
from sip.transaction.hop import Hop

MAX_ATTEMPTS = 6


class Change:
    """One re-INVITE or UPDATE and its repetitions after glare (491) or a longer session interval (422).

    `hold`: the hold state to negotiate; None refreshes the session as it is, by UPDATE without SDP where the
    far end allows UPDATE, else by re-INVITE."""

    def __init__(
        self, usage: InviteUsage, *, hold: bool | None, on_finished: Callable[[Change, float], None]
    ) -> None:
        self._usage = usage
        self._on_finished = on_finished
        self._hold = hold
        self._attempts = 0
        self._ack: Request | None = None
        self._ack_hop: Hop | None = None
        self._finished = False
        assert usage.dialog is not None
        self._dialog = usage.dialog
        self._client_request = ClientRequest(
            usage.core, next_cseq=self._dialog.next_cseq, authorizer=usage.authorizer
        )

    @property
    def method(self) -> str:
        """UPDATE is sent without SDP, so for refreshes only."""
        return "UPDATE" if self._hold is None and self._usage.peer_updates else "INVITE"

    def start(self, now: float) -> None:
        """Sends the request, for the first time or again."""
        if self._finished or not self._usage.confirmed:
            return
        if self._usage.changing or self._usage.negotiation.state is OfferState.OFFERED:
            self._usage.arm("glare", now + self._glare_wait_s(), self.start)  # crossed by the far end
            return
        self._attempts += 1
        method = self.method
        request = self._dialog.request(method)
        self._usage.introduce(request.headers)
        self._usage.session.ask(request.headers)
        if method == "INVITE":
            request.headers.add("Content-Type", SDP)
            request.body = self._usage.negotiation.offer(hold=self._hold)
        self._usage.change_outstanding = True
        self._client_request.send(request, self._dialog.next_hop(), self, now)

    def response_received(self, response: Response, now: float) -> None:
        """Takes a response to the re-INVITE or UPDATE: accepted, retried (491, 422), or refused."""
        if response.status < 200:
            return
        if not self._finished:
            self._usage.change_outstanding = False
        if response.status < 300:
            self._accepted(response, now)
        elif not self._finished:
            self._refused(response, now)

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        """Hangs up: a request within a dialog that gets no response ends the dialog (RFC 3261 12.2.1.2)."""
        if not self._finished:
            self._usage.change_outstanding = False
        if self._finish(408, now):
            expired = HangupCause.SESSION_EXPIRED if self._hold is None else HangupCause.UNREACHABLE
            self._usage.hang_up(now, cause=expired)

    def abandon(self, now: float) -> None:
        """Finishes the change with 487, because the call is over."""
        self._finish(487, now)

    def _accepted(self, response: Response, now: float) -> None:
        if response.cseq.method == "INVITE":
            self._acknowledge()
        if self._finished:
            return
        self._dialog.refresh_target(response)
        self._usage.session.agreed(response, now)
        try:
            plan = self._usage.negotiation.settle(session_description(response))
        except RemoteError as error:
            self._finish(488, now)
            self._usage.unusable(error, now)
            return
        if plan is not None:
            self._usage.core.emit(MediaAgreed(self._usage.dialog_set, plan))
        self._finish(response.status, now)
        self._usage.arm_session(now)

    def _acknowledge(self) -> None:
        """Sends the ACK of a 2xx, the same ACK for each repetition (RFC 3261 13.2.2.4)."""
        if self._ack is None:
            assert self._client_request.transaction is not None
            self._ack = self._dialog.ack(self._client_request.transaction.request)
            self._ack_hop = self._dialog.next_hop()
        assert self._ack_hop is not None
        self._usage.core.send_ack(self._ack, self._ack_hop)

    def _refused(self, response: Response, now: float) -> None:
        usage = self._usage
        usage.negotiation.withdraw()
        if self._attempts < MAX_ATTEMPTS:
            if response.status == 491:
                usage.arm("glare", now + self._glare_wait_s(), self.start)
                return
            if response.status == 422 and usage.session.too_brief(response):
                self.start(now)
                return
            if response.status in (405, 501) and response.cseq.method == "UPDATE":
                usage.peer_updates = False
                self.start(now)
                return
        self._finish(response.status, now)
        if response.status in (408, 481):
            usage.hang_up(now, cause=HangupCause.REMOTE_ERROR)
        elif self._hold is None:
            usage.arm_session(now)

    def _glare_wait_s(self) -> float:
        """Returns the wait after a 491 in seconds: longer for the owner of the Call-ID, in steps of 10 ms
        (RFC 3261 14.1)."""
        first, last = (210, 400) if self._usage.outgoing else (0, 200)
        return self._usage.core.random.randint(first, last) / 100

    def _finish(self, status: int, now: float) -> bool:
        if self._finished:
            return False
        self._finished = True
        self._usage.negotiation.withdraw()
        self._on_finished(self, now)
        if self._hold is not None:
            self._usage.core.emit(ChangeFinished(self._usage.dialog_set, status))
        return True


class SessionChanges:
    """The change of a call that is under way, and the one that waits for it."""

    def __init__(self, usage: InviteUsage) -> None:
        self._usage = usage
        self._current: Change | None = None
        self._waiting: Change | None = None

    def set_hold(self, hold: bool, now: float) -> None:
        """Starts a hold or resume once no other change is under way. Raises `LocalError` unless the call is
        up."""
        if not self._usage.can_change:
            raise LocalError("only a call that is up can be held")
        if self._waiting is not None:
            raise LocalError("another hold or resume is under way")
        self._waiting = Change(self._usage, hold=hold, on_finished=self._finished)
        self.start_next(now)

    def refresh(self, now: float) -> None:
        """Refreshes the session, unless a change is under way that does so."""
        if self._waiting is None and self._current is None:
            self._waiting = Change(self._usage, hold=None, on_finished=self._finished)
            self.start_next(now)

    def start_next(self, now: float) -> None:
        """Starts the waiting change, once no other is under way."""
        if self._waiting is None or self._current is not None or self._usage.accepting:
            return
        if self._usage.confirmed:
            self._current, self._waiting = self._waiting, None
            self._current.start(now)

    def abandon(self, now: float) -> None:
        """Finishes the changes with 487, because the call is over."""
        for change in (self._current, self._waiting):
            if change is not None:
                change.abandon(now)
        self._waiting = None

    def _finished(self, change: Change, now: float) -> None:
        if self._current is change:
            self._current = None
            self.start_next(now)
