"""Finds the hops of a SIP URI (RFC 3263): transport by NAPTR, port by SRV with priorities and weights
(RFC 2782), every address of each host."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from random import Random, SystemRandom
from typing import Any

from sip.dialog.target_set import Target
from sip.egress import is_address
from sip.message.uri import Uri
from sip.stack.dns import Dns
from sip.stack.resolver import Names
from sip.transaction.hop import Hop, hop_of

NAPTR_TRANSPORTS = {"SIP+D2U": "udp", "SIP+D2T": "tcp", "SIPS+D2T": "tls"}
SRV_PREFIXES = {"udp": "_sip._udp", "tcp": "_sip._tcp", "tls": "_sips._tcp"}

MAX_HOPS = 16
"""Hops of one URI that are tried: a name server could list thousands."""


class Router:
    """Finds hops. Answers are kept by their TTL (`Dns`, `Names`)."""

    def __init__(self, dns: Dns, names: Names, *, random: Random | None = None) -> None:
        self._dns = dns
        self._names = names
        self._random = random or SystemRandom()

    async def targets(self, uris: Sequence[Uri], *, proxy: Uri | None) -> list[Target]:
        """Returns every hop of each URI in order; with an outbound `proxy` the hops lead there. A URI without
        an address is left out; raises OSError where none has one."""
        found: list[Target] = []
        fault: OSError | None = None
        for uri in uris:
            try:
                found += [Target(uri, hop) for hop in await self.hops(proxy or uri)]
            except OSError as error:
                fault = error
        if not found:
            raise fault or OSError("nowhere to send to")
        return found

    async def hops(self, uri: Uri) -> list[Hop]:
        """Returns the hops of a URI in the order in which they are tried. Raises OSError where there are
        none."""
        plain = hop_of(uri)
        if is_address(plain.host.strip("[]")):
            return [plain]
        if uri.port is not None or "." not in plain.host:
            return await self._addresses(plain, plain.host)
        found: list[Hop] = []
        refused: set[str] = set()
        for transport, service in await self._services(uri, plain.host):
            for record in ordered(await self._dns.records(service, "SRV"), self._random):
                host = str(record.target).rstrip(".")
                if not host:
                    refused.add(transport)  # RFC 2782: the service is decidedly not available
                    continue
                elastic = plain.elastic and transport == "udp"
                hop = Hop(transport, host, int(record.port), elastic=elastic)
                try:
                    found += await self._addresses(hop, plain.host)
                except OSError:
                    continue
        if not found and plain.transport in refused:
            raise OSError("the domain says that it has no such service")
        found = found[:MAX_HOPS] or await self._addresses(plain, plain.host)
        self._names.lead(plain.host, (each.host for each in found))
        return found

    async def _services(self, uri: Uri, host: str) -> list[tuple[str, str]]:
        """Returns transports with the names of their SRV records, in order (RFC 3263 4.1)."""
        secure = uri.scheme == "sips"
        if uri.transport is not None:
            transport = "tls" if secure else uri.transport
            return [(transport, f"{SRV_PREFIXES[transport]}.{host}")] if transport in SRV_PREFIXES else []
        naptr = await self._dns.records(host, "NAPTR")
        listed = list(_transports(naptr, secure=secure))
        if listed:
            return listed
        wanted = ("tls",) if secure else ("udp", "tcp", "tls")
        named = [(each, f"{SRV_PREFIXES[each]}.{host}") for each in wanted]
        await asyncio.gather(*(self._dns.records(service, "SRV") for _, service in named))  # all at once
        return named

    async def _addresses(self, hop: Hop, name: str) -> list[Hop]:
        """Returns a hop for each address of the hop's host. `name` is what a certificate is for: the domain
        that was asked for, not what DNS made of it (RFC 5922)."""
        if is_address(hop.host):
            addresses: tuple[str, ...] = (hop.host,)
        else:
            addresses = await self._names.all_of(hop.host)
        return [
            Hop(hop.transport, address, hop.port, elastic=hop.elastic, name=name) for address in addresses
        ]


def _transports(records: Sequence[Any], *, secure: bool) -> Iterator[tuple[str, str]]:
    for record in sorted(records, key=lambda each: (each.order, each.preference)):
        transport = NAPTR_TRANSPORTS.get(record.service.decode().upper())
        if transport is None or record.flags.lower() != b"s" or (secure and transport != "tls"):
            continue
        yield transport, str(record.replacement).rstrip(".")


def ordered(records: Sequence[Any], random: Random) -> Iterator[Any]:
    """Yields SRV records by priority, those of one priority in an order drawn by their weights (RFC 2782)."""
    for priority in sorted({record.priority for record in records}):
        waiting = sorted(
            (each for each in records if each.priority == priority), key=lambda each: each.weight
        )
        while waiting:
            drawn = random.randint(0, sum(each.weight for each in waiting))
            for record in waiting:
                drawn -= record.weight
                if drawn <= 0:
                    break
            waiting.remove(record)
            yield record
