"""The requests that this stack has sent, by their transactions' keys."""

from __future__ import annotations

import re

from sip.message.message import Response
from sip.transaction.hop import Hop, Transmission
from sip.transaction.transaction import ClientTransaction

DATAGRAMS_S, DATAGRAMS_PLACES = 600.0, 256
"""How long large requests to a place go over UDP that no connection could be made to, and how many places."""

QUOTED = re.compile(rb"([A-Z]+) [^\r\n]*\r\nVia: [^\r\n]*;branch=(z9hG4bK[0-9a-f]{16})(?![0-9a-f])")
"""A request of this stack, as far as an ICMP error quotes it: the topmost Via comes first."""


class ClientTransactions:
    """The client transactions of a stack that have not terminated."""

    def __init__(self) -> None:
        self._by_key: dict[str, ClientTransaction] = {}
        self._datagrams_until: dict[tuple[str, int], float] = {}  # by host and port

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def unanswered(self) -> int:
        """Requests that have no final response yet."""
        return sum(client.waiting for client in self._by_key.values())

    def add(self, client: ClientTransaction) -> None:
        """Adds a transaction that is about to start."""
        self._by_key[client.key] = client

    def forget(self, key: str) -> None:
        """Drops a transaction that has terminated."""
        self._by_key.pop(key, None)

    def receive(self, response: Response, source: Hop, now: float) -> bool:
        """Hands a response to its transaction (RFC 3261 17.1.3). False: there is none."""
        client = self._by_key.get(f"{response.via.branch} {response.cseq.method}")
        if client is None:
            return False
        client.source = source
        client.receive(response, now)
        return True

    def takes_streams(self, hop: Hop, now: float) -> bool:
        """Whether a request too large for a datagram may try a connection: none has failed lately."""
        return self._datagrams_until.get((hop.host, hop.port), 0.0) <= now

    def failed(self, transmission: Transmission, now: float) -> None:
        """Reports to a transaction that its request could not be sent."""
        hop, places = transmission.hop, self._datagrams_until
        if hop.switched:
            places.pop((hop.host, hop.port), None)
            places[hop.host, hop.port] = now + DATAGRAMS_S
            if len(places) > DATAGRAMS_PLACES:
                del places[next(iter(places))]
        client = self._by_key.get(transmission.key)
        if client is not None:
            client.transport_failed(now)

    def bounced(self, quoted: bytes, now: float) -> None:
        """Takes an ICMP error that quotes the beginning of a datagram. Only a request outside any dialog is
        told: within a call the repetitions may still arrive. The branch, 64 random bits, proves that the
        datagram was quoted and not guessed."""
        found = QUOTED.match(quoted)
        client = self._by_key.get(f"{found[2].decode()} {found[1].decode()}") if found else None
        if client is not None and client.request.to.tag is None:
            client.bounced(now)

    def stale(self, transmission: Transmission) -> bool:
        """Whether the request of a transmission has been sent to another target meanwhile, or given up."""
        client = self._by_key.get(transmission.key)
        return bool(transmission.key) and (client is None or client.passed_over)
