"""Requests of the far end within a call that PJSIP answers, with the server's own session descriptions."""

from __future__ import annotations

from typing import Protocol

from sip.dialog.in_dialog import refuse_body
from sip.dialog.usage import InviteUsage
from sip.errors import LocalError, RemoteError
from sip.message.body import SDP, session_description
from sip.message.message import Request, Response, response_to
from sip.pjsip.messages import ANSWERED_BY_PJSIP, ack_to_pjsip, carry
from sip.pjsip.slot import Served, Slot
from sip.transaction.transaction import ServerTransaction


class Answering(Protocol):
    """The call, as it takes part in the answers of PJSIP."""

    def finishing(self, served: Served, response: Response) -> None:
        """Completes a response before it is sent."""

    def responded(self, served: Served, response: Response, now: float) -> None:
        """Takes that a response was sent."""


class ServedRequests:
    """The requests that PJSIP has been handed, by branch, until it has answered them."""

    def __init__(self, usage: InviteUsage, slot: Slot) -> None:
        self._usage, self._slot = usage, slot
        self._by_branch: dict[str, Served] = {}

    @property
    def answer_due(self) -> bool:
        """Whether an offer of the far end has not been answered yet."""
        return any(each.offer and not each.transaction.answered for each in self._by_branch.values())

    def hand(self, transaction: ServerTransaction, offer: bytes, body: bytes = b"") -> Served:
        """Hands a request to PJSIP, whose answer is `body` where that is known already."""
        request, dialog = transaction.request, self._usage.dialog
        peer = dialog.remote.tag if dialog is not None else ""
        branch = self._slot.branch()
        handed = self._slot.hand(request, peer or "", branch, described=bool(request.body))
        served = self._by_branch[branch] = Served(transaction, handed, offer, body)
        return served

    def hand_ack(self, ack: Request) -> None:
        """Hands PJSIP the ACK of a 2xx."""
        peer = self._usage.dialog.remote.tag if self._usage.dialog is not None else ""
        self._slot.hand(ack, peer or "", described=bool(ack.body))

    def serve(self, transaction: ServerTransaction, now: float) -> bool:
        """Hands a request within the call to PJSIP. False: its body cannot be read, and it was refused."""
        request = transaction.request
        try:
            body = session_description(request)
        except RemoteError as error:
            refuse_body(self._usage, transaction, error, now)
            return False
        answers = request.method == "PRACK" and self._usage.offered_late
        self.hand(transaction, b"" if answers else body)
        return True

    def answer(self, response: Response, now: float, by: Answering) -> None:
        """Sends a response of PJSIP to the far end."""
        served = self._by_branch.get(response.via.branch or "")
        if served is None or response.status == 100 or response.cseq.method == "CANCEL":
            return
        invite = served.handed.method == "INVITE"
        if invite and response.status >= 300:
            self._slot.send(ack_to_pjsip(served.handed, response))
        if served.response is not None and served.response.status == response.status:
            served.transaction.respond(served.response, now)  # repeated until its ACK or PRACK
            return
        try:
            body = self._description(served) if response.body and response.status < 300 else b""
        except (RemoteError, LocalError) as error:
            self._refuse(served, response, error, now)
            return
        served.response = answer = self._wire(served, response, body)
        by.finishing(served, answer)
        served.transaction.respond(answer, now)
        if not self._usage.ended:
            by.responded(served, answer, now)
        if response.status >= 200 and not invite:
            del self._by_branch[response.via.branch or ""]

    def abandon(self, now: float) -> None:
        """Answers what PJSIP has not, because its process is gone. The INVITE that began the call is the
        call's own."""
        for each in self._by_branch.values():
            if not each.transaction.answered and each.transaction.request.to.tag is not None:
                self._usage.core.reply(each.transaction, 200 if self._usage.ended else 500, now)
        self._by_branch.clear()

    def _wire(self, served: Served, response: Response, body: bytes) -> Response:
        dialog, request = self._usage.dialog, served.transaction.request
        assert dialog is not None
        answer = response_to(request, response.status, to_tag=dialog.local.tag)
        if request.method in ("INVITE", "UPDATE") and response.status < 300:
            answer.headers.add("Contact", dialog.contact)
            self._usage.introduce(answer.headers)
        carry(ANSWERED_BY_PJSIP, response.headers, answer.headers)
        if body:
            answer.headers.add("Content-Type", SDP)
            answer.body = body
        return answer

    def _description(self, served: Served) -> bytes:
        """Returns what stands in the place of PJSIP's session description. Raises `RemoteError` where the
        offer cannot be answered, `LocalError` where it crosses one of this side."""
        if not served.body:
            negotiation = self._usage.negotiation
            served.body = negotiation.respond(served.offer) if served.offer else negotiation.offer()
            self._usage.offered_late = not served.offer
        return served.body

    def _refuse(self, served: Served, response: Response, error: Exception, now: float) -> None:
        """Refuses what PJSIP has accepted without knowing the offer."""
        if isinstance(error, RemoteError):
            refuse_body(self._usage, served.transaction, error, now)
        else:
            self._usage.core.reply(served.transaction, 491, now)
        if served.handed.method == "INVITE" and response.status >= 200:
            ack = ack_to_pjsip(served.handed, response)
            ack.headers.set("Via", f"SIP/2.0/UDP {self._slot.relay};branch={self._slot.branch()}")
            self._slot.send(ack)
