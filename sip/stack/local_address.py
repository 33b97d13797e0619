"""Finds the address under which a peer reaches this endpoint."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from ipaddress import ip_address

from sip.transaction.hop import DEFAULT_PORTS, Hop

_MAX_REMEMBERED = 1024


class LocalAddresses:
    """The host and port for Via, Contact and SDP: the public address of the trunk (`Hop.egress`) or of the
    endpoint if one is configured, else the bound address, else (bound to all) the source address of the route
    to the peer."""

    def __init__(
        self,
        bound: Mapping[str, tuple[str, int]],
        *,
        public: str | None,
        known_address: Callable[[str], str | None],
    ) -> None:
        self._bound = bound
        self._public = public
        self._known_address = known_address
        self._routes: dict[str, str] = {}

    def signalling(self, hop: Hop) -> tuple[str, int]:
        """Returns host and port for SIP."""
        port = self._bound[hop.transport][1] if hop.transport in self._bound else None
        return self.host(hop), port or DEFAULT_PORTS.get(hop.transport, 5060)

    def host(self, hop: Hop) -> str:
        """Returns the host, for media too."""
        if public := (hop.egress.public if hop.egress is not None else "") or self._public:
            return public
        bound = self._bound.get(hop.transport) or next(iter(self._bound.values()), ("0.0.0.0", 0))
        if not ip_address(bound[0]).is_unspecified:
            return bound[0]
        return self._route(self._known_address(hop.host) or "192.0.2.1", bound[0])

    def media(self, hop: Hop) -> str:
        """Returns the address to bind media to: that of SIP or, where SIP is bound to every address, every
        one of the family in which the other end of `hop` reaches this endpoint."""
        bound = self._bound.get("udp") or self._bound.get("tcp") or ("0.0.0.0", 0)
        if not ip_address(bound[0]).is_unspecified:
            return bound[0]
        return "::" if ":" in self.host(hop) else "0.0.0.0"

    def _route(self, address: str, fallback: str) -> str:
        known = self._routes.get(address)
        if known is not None:
            return known
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect((address, 9))  # connecting UDP chooses a route and sends nothing
                found: str = probe.getsockname()[0]
            except OSError:
                found = "127.0.0.1" if family == socket.AF_INET else fallback
        if len(self._routes) >= _MAX_REMEMBERED:
            self._routes.clear()
        self._routes[address] = found
        return found
