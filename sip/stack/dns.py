"""Asks the domain name system for what SIP needs (NAPTR, SRV, A, AAAA), and keeps answers for as long as they
say."""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import dns.asyncbackend
import dns.asyncresolver
import dns.exception
import dns.name
import dns.rdatatype
import dns.resolver

from sip.errors import MalformedMessage
from sip.message.uri import parse_hostport

QUERY_S = 3.0
"""Longest wait for one answer, repetitions and other name servers included."""

SHORTEST_S, LONGEST_S = 1.0, 3600.0
"""Bounds of the time for which an answer is kept, whatever its TTL."""

MISSING_S = 30.0
"""How long it is remembered that there is no such record."""

FAILED_S = 5.0
"""How long it is remembered that no name server answered."""

MAX_ANSWERS = 4096

SYSTEM_S = 60.0
"""How long addresses of the system's resolver are kept, which tells no TTL."""


class Dns:
    """A resolver with a cache. `server`: "host:port" of a name server to ask instead of the system's.
    Addresses come from it too; without it from the system (getaddrinfo), which also knows /etc/hosts."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, server: str | None = None) -> None:
        """Raises ValueError for a bad address of a server."""
        self._loop = loop
        self._server = _address(server) if server else None
        self._resolver: dns.asyncresolver.Resolver | None = None
        self._kept: OrderedDict[tuple[str, str], tuple[float, Sequence[Any]]] = OrderedDict()

    async def records(self, name: str, kind: str) -> Sequence[Any]:
        """Returns the records of a name as dnspython's rdata; () where there are none, or nobody answers."""
        key = name.lower(), kind
        kept = self._kept.get(key)
        if kept is not None and kept[0] > self._loop.time():
            return kept[1]
        found: Sequence[Any] = ()
        try:
            resolver = self._resolver or await self._made()
            answer = await resolver.resolve(
                name, kind, lifetime=QUERY_S, search=False, backend=dns.asyncbackend.get_backend("asyncio")
            )
            ttl_s = min(max(float(answer.rrset.ttl if answer.rrset else 0), SHORTEST_S), LONGEST_S)
            found = tuple(answer)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            ttl_s = MISSING_S
        except (dns.exception.DNSException, OSError, UnicodeError, ValueError):
            ttl_s = FAILED_S
        self._keep(key, ttl_s, found)
        return found

    async def addresses(self, host: str) -> tuple[tuple[str, ...], float]:
        """Returns the addresses of a host, IPv4 first, and for how many seconds these hold. Raises OSError
        where there are none."""
        if self._server is None or "." not in host.rstrip("."):
            found = await self._loop.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
            return tuple(dict.fromkeys(str(each[4][0]) for each in found)), SYSTEM_S
        answers = await asyncio.gather(self.records(host, "A"), self.records(host, "AAAA"))
        addresses = tuple(record.address for answer in answers for record in answer)
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "the name has no address")
        now, holds_s = self._loop.time(), LONGEST_S
        for kind in ("A", "AAAA"):
            until, records = self._kept.get((host.lower(), kind), (now, ()))
            holds_s = min(holds_s, until - now) if records else holds_s
        return addresses, max(holds_s, SHORTEST_S)

    async def _made(self) -> dns.asyncresolver.Resolver:
        if self._server is None:
            resolver = await asyncio.to_thread(dns.asyncresolver.Resolver)  # reads /etc/resolv.conf
        else:
            resolver = dns.asyncresolver.Resolver(configure=False)
            resolver.nameservers, resolver.port = [self._server[0]], self._server[1]
        self._resolver = resolver
        return resolver

    def _keep(self, key: tuple[str, str], ttl_s: float, found: Sequence[Any]) -> None:
        self._kept.pop(key, None)
        while len(self._kept) >= MAX_ANSWERS:
            self._kept.popitem(last=False)
        self._kept[key] = self._loop.time() + ttl_s, found


def _address(server: str) -> tuple[str, int]:
    try:
        host, port = parse_hostport(server)
    except MalformedMessage as error:
        raise ValueError(f"{server!r} is not host:port") from error
    return host.strip("[]"), 53 if port is None else port
