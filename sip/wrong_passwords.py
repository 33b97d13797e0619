"""Limits guesses of SIP passwords: an address has a number of tries, then one a minute.

A username that has authenticated from an address has tries of its own there, so that a guesser behind the
same address does not lock it out. Times are passed in; no I/O."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network

from sip.egress import canonical

TRIES = 30
"""Wrong passwords in a row; more than anybody mistypes."""

REFILL_S = 60.0
"""Seconds for one more try."""

ADDRESSES_LIMIT = 10_000
KNOWN_LIMIT = 20_000
"""Entries kept; the least recently used is dropped first."""

_SUBSCRIBER_BITS = 64
"""Prefix length by which IPv6 addresses count as one peer: a subscriber has a whole /64."""

Place = tuple[str, str]


@dataclass(slots=True)
class _Tries:
    """Tries left at the time `at` in seconds; `waits`: they were used up at some time since they were
    full."""

    left: float
    at: float
    waits: bool = False


class WrongPasswords:
    """Tries of SIP passwords, by address and known username. Times are seconds."""

    def __init__(self) -> None:
        self.wrong_ones = 0
        """Wrong passwords since the start, those refused unchecked included."""
        self._tries: OrderedDict[Place, _Tries] = OrderedDict()
        self._known: OrderedDict[Place, None] = OrderedDict()

    def wait_s(self, host: str, username: str, now: float) -> float:
        """Returns the seconds until a password for `username` from `host` is checked again; 0: now."""
        tries = self._tries.get(self._place(host, username))
        left = self._left(tries, now) if tries is not None else TRIES
        if left >= 1:
            return 0.0
        self.wrong_ones += 1
        return (1 - left) * REFILL_S

    def wrong(self, host: str, username: str, now: float) -> bool:
        """Counts a wrong password. True: the address must wait from now on; returned once, until its tries
        are full again."""
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
        """Notes that `username` authenticated from `host`."""
        place = (subscriber(host), username)
        self._known[place] = None
        self._known.move_to_end(place)
        if len(self._known) > KNOWN_LIMIT:
            self._known.popitem(last=False)

    def _place(self, host: str, username: str) -> Place:
        client = subscriber(host)
        return (client, username if (client, username) in self._known else "")

    def _left(self, tries: _Tries, now: float) -> float:
        return min(float(TRIES), tries.left + (now - tries.at) / REFILL_S)


def subscriber(host: str) -> str:
    """Returns the name of a peer for counting: an IPv4 address, or an IPv6 /64."""
    try:
        address = ip_address(canonical(host))
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        return str(ip_network((address, _SUBSCRIBER_BITS), strict=False))
    return str(address)
