"""Requests of PJSIP within a call, as the far end gets them: routed, numbered and described by the server."""

from __future__ import annotations

from typing import Final

from sip.dialog.client_request import ClientRequest
from sip.dialog.dialog import Dialog
from sip.dialog.events import ChangeFinished, MediaAgreed
from sip.dialog.usage import InviteUsage
from sip.errors import LocalError, RemoteError
from sip.message.body import SDP, session_description
from sip.message.message import Request, Response
from sip.pjsip.messages import ASKED_BY_PJSIP, carry
from sip.pjsip.slot import Slot
from sip.sdp.offer_answer import OfferState

MAX_ATTEMPTS: Final = 6
"""Attempts at a hold that crosses changes of the far end (491)."""

CREDENTIALS: Final = ("Authorization", "Proxy-Authorization")


class AskedRequests:
    """PJSIP's requests within one call."""

    def __init__(self, usage: InviteUsage, slot: Slot) -> None:
        self._usage, self._slot = usage, slot
        self._invites: dict[int, tuple[int, Request]] = {}  # PJSIP's by number, with the number as sent
        self._hold: bool | None = None  # asked for and not answered
        self._attempts = 0

    def set_hold(self, hold: bool, now: float) -> None:
        """Has PJSIP offer a hold, or its end. Raises `LocalError` while another is under way."""
        if self._hold is not None:
            raise LocalError("another hold or resume is under way")
        self._hold, self._attempts = hold, 0
        self._change(now)

    def refused(self, now: float) -> None:
        """Tries a hold again later that PJSIP does not offer now: a change of the far end is under way."""
        if not self._try_again(now):
            self.finish_change(491)

    def finish_change(self, status: int) -> None:
        """Tells how a hold or resume was answered, where one is under way."""
        if self._hold is not None:
            self._hold = None
            self._usage.core.emit(ChangeFinished(self._usage.dialog_set, status))

    def note(self, invite: Request, number: int) -> None:
        """Notes with which number an INVITE of PJSIP was sent."""
        kept = list(self._invites.items())[-3:]
        self._invites = {**dict(kept), invite.cseq.number: (number, invite)}

    def ask(self, request: Request, dialog: Dialog | None, now: float) -> None:
        """Sends a request of PJSIP within `dialog`."""
        if request.method == "ACK":
            self._acknowledge(request, dialog)
            return
        if request.method == "INVITE":
            self._slot.reply(request, 100)
        if dialog is None or self._usage.ended:
            self._slot.reply(request, 200 if request.method == "BYE" else 481)
            return
        asked, sent = Asked(self, request), self._within(dialog, request)
        if request.body and request.method in ("INVITE", "UPDATE"):
            if self._usage.negotiation.state is OfferState.OFFERED:
                self._slot.reply(request, 491)
                return
            asked.offered = True
            sent.body = self._usage.negotiation.offer(hold=self._hold)
            sent.headers.add("Content-Type", SDP)
        client = ClientRequest(self._usage.core, next_cseq=dialog.next_cseq, authorizer=None)
        client.send(sent, dialog.next_hop(), asked, now)

    def answered(self, asked: Asked, response: Response, now: float) -> None:
        """Takes the far end's response to a request of PJSIP."""
        usage, request, final = self._usage, asked.request, response.status >= 200
        self._slot.give(request, response, described=bool(response.body) and 200 <= response.status < 300)
        if not final or usage.ended:
            return
        if response.status < 300 and usage.dialog is not None and request.method in ("INVITE", "UPDATE"):
            usage.dialog.refresh_target(response)
        if asked.offered:
            self._offer_answered(asked, response, now)

    def unanswered(self, asked: Asked, *, transport_failed: bool) -> None:
        """Tells PJSIP that there was no response."""
        status = 503 if transport_failed else 408
        self._slot.reply(asked.request, status)
        if asked.offered:
            self._usage.negotiation.withdraw()
            self.finish_change(status)

    def settle(self, message: Request | Response, now: float) -> None:
        """Takes the answer to an offer of this side; hangs up where it cannot be used."""
        usage = self._usage
        try:
            plan = usage.negotiation.settle(session_description(message))
        except RemoteError as error:
            usage.unusable(error, now)
            self._slot.command("hang_up")
            return
        if plan is not None:
            usage.core.emit(MediaAgreed(usage.dialog_set, plan))

    def settle_late(self, request: Request, now: float) -> None:
        """Takes the answer to an offer that a response of this side has made."""
        if self._usage.offered_late:
            self._usage.offered_late = False
            self.settle(request, now)

    def _within(self, dialog: Dialog, request: Request) -> Request:
        number, ack = request.cseq.number, request.method == "ACK"
        sent = dialog.request(request.method, cseq=self._invites[number][0] if ack else None)
        if not dialog.route_set or "lr" in dialog.route_set[0].uri.params:
            sent.uri = request.uri  # of which PJSIP has computed its digest
        carry(ASKED_BY_PJSIP, request.headers, sent.headers)
        if ack:
            carry(CREDENTIALS, self._invites[number][1].headers, sent.headers)  # RFC 3261 22.1
        else:
            self._usage.introduce(sent.headers)
        rack = (request.header("RAck") or "").split()
        if request.method == "INVITE":
            self.note(request, sent.cseq.number)
        elif len(rack) == 3:
            sent.headers.add("RAck", f"{rack[0]} {self._invites[int(rack[1])][0]} {rack[2]}")
        return sent

    def _acknowledge(self, ack: Request, dialog: Dialog | None) -> None:
        """Sends PJSIP's ACK of a 2xx; that of a refusal was for the relay alone."""
        _, invite = self._invites.get(ack.cseq.number, (0, ack))
        if dialog is not None and ack.via.branch != invite.via.branch:
            self._usage.core.send_ack(self._within(dialog, ack), dialog.next_hop())

    def _offer_answered(self, asked: Asked, response: Response, now: float) -> None:
        status, usage = response.status, self._usage
        if status < 300:
            self.settle(response, now)
            self.finish_change(status)
            return
        usage.negotiation.withdraw()
        if status in (401, 407, 422) and not any(name in asked.request.headers for name in CREDENTIALS):
            return  # PJSIP asks again
        if status != 491 or not self._try_again(now):
            self.finish_change(status)

    def _try_again(self, now: float) -> bool:
        if self._hold is None or self._attempts >= MAX_ATTEMPTS:
            return False
        first, last = (210, 400) if self._usage.outgoing else (0, 200)  # RFC 3261 14.1
        self._usage.arm("glare", now + self._usage.core.random.randint(first, last) / 100, self._change)
        return True

    def _change(self, now: float) -> None:
        self._attempts += 1
        self._slot.command("reinvite")


class Asked:
    """A request of PJSIP that was sent to the far end (a transaction's user). `offered`: with an offer."""

    def __init__(self, requests: AskedRequests, request: Request) -> None:
        self.request = request
        self.offered = False
        self._requests = requests

    def response_received(self, response: Response, now: float) -> None:
        """Passes a response to PJSIP."""
        self._requests.answered(self, response, now)

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        """Tells PJSIP that there is none."""
        self._requests.unanswered(self, transport_failed=transport_failed)
