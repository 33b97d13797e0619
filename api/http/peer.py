"""Finds the client address of a request, behind a proxy too.

The address is the connection's own, unless that is one of `server.trusted_proxies`: then it is the last
address in X-Forwarded-For that is no trusted proxy. X-Forwarded-For of any other peer is ignored."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from aiohttp import web

from mediaserver.admission.client_address import Address, parsed, subscriber, within

_PASSED_ON = ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via")


class Peers:
    """Finds client addresses. `trusted`: networks of proxies. `metrics`: networks that may scrape
    /metrics."""

    def __init__(self, *, trusted: Iterable[str] = (), metrics: Iterable[str] = ()) -> None:
        self._trusted = [ipaddress.ip_network(each) for each in trusted]
        self._metrics = [ipaddress.ip_network(each) for each in metrics]

    def client(self, connected: str, forwarded_for: Sequence[str] = ()) -> Address | None:
        """Returns the client address, from the connection's address and the X-Forwarded-For fields; None
        where it cannot be parsed."""
        address = parsed(connected)
        hops = [hop.strip() for line in forwarded_for for hop in line.split(",")]
        while address is not None and hops and within(address, self._trusted):
            address = parsed(hops.pop())
        return address

    def neighbourhood(self, connected: str, forwarded_for: Sequence[str] = ()) -> str:
        """Returns the name under which a client is rate-limited: an IPv4 address, or the /64 of an IPv6
        subscriber; "" where the address cannot be parsed."""
        return subscriber(self.client(connected, forwarded_for))

    def may_scrape(self, connected: str, forwarded_for: Sequence[str], *, passed_on: bool) -> bool:
        """Whether /metrics answers: to loopback, and to the networks `metrics`. `passed_on`: the request came
        through a proxy; it is then refused unless the proxy is trusted to name the client."""
        address = parsed(connected)
        told = bool(forwarded_for) and address is not None and within(address, self._trusted)
        if passed_on and not told:
            return False
        client = self.client(connected, forwarded_for)
        return client is not None and (client.is_loopback or within(client, self._metrics))


PEERS: web.AppKey[Peers] = web.AppKey("peers", Peers)
"""The trusted proxies and scraping networks of the application."""


def neighbourhood(request: web.Request) -> str:
    """Returns the name under which the client of `request` is rate-limited (`Peers.neighbourhood`)."""
    forwarded_for = request.headers.getall("X-Forwarded-For", [])
    return request.app[PEERS].neighbourhood(request.remote or "", forwarded_for)


def may_scrape(request: web.Request) -> bool:
    """Decides whether /metrics answers `request`; see `Peers.may_scrape`."""
    forwarded_for = request.headers.getall("X-Forwarded-For", [])
    passed_on = any(name in request.headers for name in _PASSED_ON)
    return request.app[PEERS].may_scrape(request.remote or "", forwarded_for, passed_on=passed_on)
