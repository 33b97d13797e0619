"""One request of ours and however many transactions it takes: digest challenges, a transport that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sip.core import Core
from sip.digest import Authorizer
from sip.headers import CSeq
from sip.hop import Hop
from sip.message import Request, Response
from sip.transaction import ClientTransaction, TransactionUser

MAX_CHALLENGES = 3
"""Transactions of one request that a far end may challenge (nonce gone stale, proxy and server in turn)."""


class Exchange:
    """Sends requests for `user` and answers challenges on its way; everything else reaches `user`."""

    def __init__(
        self,
        core: Core,
        user: TransactionUser,
        *,
        next_cseq: Callable[[], int],
        authorizer: Authorizer | None,
    ) -> None:
        self.transaction: ClientTransaction | None = None
        self._core = core
        self._user = user
        self._next_cseq = next_cseq
        self._authorizer = authorizer
        self._challenges = 0

    def send(self, request: Request, hop: Hop, now: float) -> None:
        """Sends `request` (without Via), with credentials where an earlier challenge still holds."""
        request = Request(request.method, request.uri, request.headers.copy(), request.body)
        self._challenges = 0
        if self._authorizer is not None:
            self._authorizer.sign(request)
        self.transaction = self._core.send_request(request, hop, self, now)

    def response_received(self, response: Response, now: float) -> None:
        """See `TransactionUser`."""
        if response.status in (401, 407) and self._take_challenge(response):
            self._again(self._sent().hop, now)
            return
        self._user.response_received(response, now)

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        """See `TransactionUser`. A request that was too large for UDP tries UDP after all (18.1.1)."""
        hop = self._sent().hop
        if transport_failed and hop.elastic and hop.transport != "udp":
            self._again(replace(hop, transport="udp", elastic=False), now, renumber=False)
            return
        self._user.no_response(now, transport_failed=transport_failed)

    def _sent(self) -> ClientTransaction:
        assert self.transaction is not None
        return self.transaction

    def _take_challenge(self, response: Response) -> bool:
        self._challenges += 1
        if self._authorizer is None or self._challenges > MAX_CHALLENGES:
            return False
        return self._authorizer.challenged(self._sent().request, response)

    def _again(self, hop: Hop, now: float, *, renumber: bool = True) -> None:
        sent = self._sent().request
        headers = sent.headers.copy()
        headers.remove("Via")
        if renumber:
            headers.set("CSeq", str(CSeq(self._next_cseq(), sent.method)))
        request = Request(sent.method, sent.uri, headers, sent.body)
        if renumber and self._authorizer is not None:
            self._authorizer.sign(request)
        self.transaction = self._core.send_request(request, hop, self, now)
