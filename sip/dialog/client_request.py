"""Sends one request in as many transactions as it takes: digest challenges, a transport that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sip.auth.digest import Authorizer
from sip.dialog.ua_core import Core
from sip.message.headers import CSeq
from sip.message.message import Request, Response
from sip.transaction.hop import Hop
from sip.transaction.transaction import ClientTransaction, TransactionUser

MAX_CHALLENGES = 3
"""Transactions of one request that may be challenged (a nonce gone stale, proxy and server in turn)."""


class ClientRequest:
    """Sends requests and answers challenges to them. Only the transactions refer to the request's user, and
    they end; a `ClientRequest` does not keep its owner alive."""

    def __init__(self, core: Core, *, next_cseq: Callable[[], int], authorizer: Authorizer | None) -> None:
        self.transaction: ClientTransaction | None = None
        self._core = core
        self._next_cseq = next_cseq
        self._authorizer = authorizer
        self._challenges = 0

    def send(self, request: Request, hop: Hop, user: TransactionUser, now: float) -> None:
        """Sends `request` (without Via), with credentials where an earlier challenge still holds. Every
        response except an answered challenge reaches `user`."""
        request = Request(request.method, request.uri, request.headers.copy(), request.body)
        self._challenges = 0
        if self._authorizer is not None:
            self._authorizer.sign(request)
        self.transaction = self._core.send_request(request, hop, _Sender(self, user), now)

    def challenged(self, response: Response, sender: TransactionUser, now: float) -> bool:
        """Whether `response` is a challenge, and was answered by sending the request again."""
        if response.status not in (401, 407) or not self._take_challenge(response):
            return False
        self._again(self._sent().hop, sender, now)
        return True

    def shrunk(self, sender: TransactionUser, now: float) -> bool:
        """Whether the request was too large for UDP, its stream transport failed, and it was sent over UDP
        after all (RFC 3261 18.1.1)."""
        hop = self._sent().hop
        if not hop.elastic or hop.transport == "udp":
            return False
        self._again(replace(hop, transport="udp", elastic=False), sender, now, renumber=False)
        return True

    def _sent(self) -> ClientTransaction:
        assert self.transaction is not None
        return self.transaction

    def _take_challenge(self, response: Response) -> bool:
        self._challenges += 1
        if self._authorizer is None or self._challenges > MAX_CHALLENGES:
            return False
        return self._authorizer.challenged(self._sent().request, response)

    def _again(self, hop: Hop, sender: TransactionUser, now: float, *, renumber: bool = True) -> None:
        sent = self._sent().request
        headers = sent.headers.copy()
        headers.remove("Via")
        if renumber:
            headers.set("CSeq", str(CSeq(self._next_cseq(), sent.method)))
        request = Request(sent.method, sent.uri, headers, sent.body)
        if renumber and self._authorizer is not None:
            self._authorizer.sign(request)
        self.transaction = self._core.send_request(request, hop, sender, now)


class _Sender:
    """The user of one request's transactions: `ClientRequest` sees each response first, then the request's
    user."""

    def __init__(self, client_request: ClientRequest, user: TransactionUser) -> None:
        self._client_request = client_request
        self._user = user

    def response_received(self, response: Response, now: float) -> None:
        """Passes on a response that is no answered challenge."""
        if not self._client_request.challenged(response, self, now):
            self._user.response_received(response, now)

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        """Passes on the failure, unless the request was sent again over UDP."""
        if not (transport_failed and self._client_request.shrunk(self, now)):
            self._user.no_response(now, transport_failed=transport_failed)
