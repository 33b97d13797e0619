"""Who is at the other end of a request: an address to count by, behind a proxy too.

The address is the connection's own, unless that is one of `server.trusted_proxies`: then it is the last one
of X-Forwarded-For that no trusted proxy has. What anybody else writes into that field is not believed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from aiohttp import web

from mediaserver.admission.client_address import Address, parsed, subscriber, within

_PASSED_ON = ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via")


class Peers:
    """Addresses of clients. `trusted` are the networks of proxies, `metrics` those that may scrape."""

    def __init__(self, *, trusted: Iterable[str] = (), metrics: Iterable[str] = ()) -> None:
        self._trusted = [ipaddress.ip_network(each) for each in trusted]
        self._metrics = [ipaddress.ip_network(each) for each in metrics]

    def client(self, connected: str, forwarded_for: Sequence[str] = ()) -> Address | None:
        """Who asks, by the connection's address and the X-Forwarded-For fields; None where nobody can
        tell."""
        address = parsed(connected)
        hops = [hop.strip() for line in forwarded_for for hop in line.split(",")]
        while address is not None and hops and within(address, self._trusted):
            address = parsed(hops.pop())
        return address

    def neighbourhood(self, connected: str, forwarded_for: Sequence[str] = ()) -> str:
        """What counts as one client: an IPv4 address, or the /64 that an IPv6 subscriber has whole; "" for
        nobody that can be told."""
        return subscriber(self.client(connected, forwarded_for))

    def may_scrape(self, connected: str, forwarded_for: Sequence[str], *, passed_on: bool) -> bool:
        """Whether /metrics answers: to this machine, unless it only passes on (`passed_on`) what came from
        elsewhere and is not trusted to say from where; and to `metrics`."""
        address = parsed(connected)
        told = bool(forwarded_for) and address is not None and within(address, self._trusted)
        if passed_on and not told:
            return False
        client = self.client(connected, forwarded_for)
        return client is not None and (client.is_loopback or within(client, self._metrics))


PEERS: web.AppKey[Peers] = web.AppKey("peers", Peers)
"""Where an application keeps what it knows of its proxies."""


def neighbourhood(request: web.Request) -> str:
    """Names the client of `request` for rate limits; see `Peers.neighbourhood`."""
    forwarded_for = request.headers.getall("X-Forwarded-For", [])
    return request.app[PEERS].neighbourhood(request.remote or "", forwarded_for)


def may_scrape(request: web.Request) -> bool:
    """Decides whether /metrics answers `request`; see `Peers.may_scrape`."""
    forwarded_for = request.headers.getall("X-Forwarded-For", [])
    passed_on = any(name in request.headers for name in _PASSED_ON)
    return request.app[PEERS].may_scrape(request.remote or "", forwarded_for, passed_on=passed_on)
