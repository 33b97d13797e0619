"""Guessing of SIP passwords: an address has so many tries, then one a minute.

A name that has come in from an address has tries of its own there, so that a guesser behind the same address
does not keep it out. No clock, no I/O.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

from sip.egress import canonical

TRIES = 30
"""Wrong passwords at once: nobody mistypes as many."""

REFILL_S = 60.0
"""For one more."""

ADDRESSES_LIMIT = 10_000
KNOWN_LIMIT = 20_000
"""Kept at the most; what was used longest ago goes first."""

_SUBSCRIBER_BITS = 64
"""Of an IPv6 address: whoever has one has all with the same."""

Place = tuple[str, str]


@dataclass(slots=True)
class _Tries:
    """How many there were at `at`; `waits`: there were none at a time since they were whole."""

    left: float
    at: float
    waits: bool = False


class WrongPasswords:
    """Who tries passwords, by address. Times are seconds."""

    def __init__(self) -> None:
        self.wrong_ones = 0
        """Since the start, those refused without being looked at included."""
        self._tries: OrderedDict[Place, _Tries] = OrderedDict()
        self._known: OrderedDict[Place, None] = OrderedDict()

    def wait_s(self, host: str, username: str, now: float) -> float:
        """After how many seconds a password for `username` from `host` is looked at again; 0: now."""
        tries = self._tries.get(self._place(host, username))
        left = self._left(tries, now) if tries is not None else TRIES
        if left >= 1:
            return 0.0
        self.wrong_ones += 1
        return (1 - left) * REFILL_S

    def wrong(self, host: str, username: str, now: float) -> bool:
        """Counts one; whether its address waits from now on. That is told once, until the tries are whole."""
        self.wrong_ones += 1
        place = self._place(host, username)
        tries = self._tries.pop(place, None)
        if tries is None or self._left(tries, now) >= TRIES:
            tries = _Tries(TRIES, now)
        self._tries[place] = tries
        if len(self._tries) > ADDRESSES_LIMIT:
            self._tries.popitem(last=False)
        tries.left, tries.at = self._left(tries, now) - 1, now
        waited, tries.waits = tries.waits, tries.waits or tries.left < 1
        return tries.waits and not waited

    def right(self, host: str, username: str) -> None:
        """`username` came in from `host`."""
        place = (_client(host), username)
        self._known[place] = None
        self._known.move_to_end(place)
        if len(self._known) > KNOWN_LIMIT:
            self._known.popitem(last=False)

    def _place(self, host: str, username: str) -> Place:
        client = _client(host)
        return (client, username if (client, username) in self._known else "")

    def _left(self, tries: _Tries, now: float) -> float:
        return min(float(TRIES), tries.left + (now - tries.at) / REFILL_S)


def _client(host: str) -> str:
    """What counts as one peer: an IPv4 address, or a /64."""
    try:
        address = ip_address(canonical(host))
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        return str(ip_network((address, _SUBSCRIBER_BITS), strict=False))
    return str(address)
