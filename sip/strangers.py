"""Silences scanners, and answers no stranger with more bytes than it has sent.

A stranger is an address that is no trunk's and from which nobody has authenticated; of IPv6 a /64.

| standing | refused, tries left | refused, none left | came in | time is over |
|---|---|---|---|---|
| new | tried | - | known | - |
| tried | tried | banned | known | new, one try in ten seconds |
| banned | silence | silence | known | new |
| known | answered | answered | known | new |

UDP has no proof of its sender: a request in the name of somebody else aims its answer there. What is sent in
answers to a stranger over UDP is therefore never more than what came from it: an answer that is longer than
its request waits for the repetition of that request, and until it is sent that was no try. Datagrams and the
connections of an address are two strangers, so that no forged datagram silences a connection. Times are
passed in, in seconds; no I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from sip.wrong_passwords import subscriber

REFILL_S: Final = 10.0
"""Seconds for one more try: monitoring of a carrier that asks by OPTIONS from an address of its own is no
scan."""

KNOWN_S: Final = 24 * 3600.0
"""For how long an address from which somebody has authenticated is no stranger."""

CREDIT_LIMIT: Final = 4096
"""Most bytes for which a stranger may be owed answers."""

STRANGERS_LIMIT: Final = 10_000
BANS_LIMIT: Final = 10_000
KNOWN_LIMIT: Final = 20_000
"""Entries kept; the oldest are dropped first."""


_CONNECTED: Final = " connected"


class Treatment(Enum):
    """What becomes of the answer to a refused request."""

    ANSWER = auto()
    SILENCE = auto()
    BAN = auto()  # silence from now on


@dataclass(slots=True)
class _Tried:
    """Tries left at the time `at`; `credit`: bytes received beyond those answered."""

    left: float
    at: float
    credit: int = 0


@dataclass(frozen=True, slots=True)
class Ban:
    """An address (IPv6: its /64) that gets no answers for `left_s` more. `connected`: over its connections,
    else to its datagrams."""

    address: str
    connected: bool
    left_s: float


class Strangers:
    """The addresses that were refused lately. `tries`: refused requests in a row before an address is
    banned, 0: none is; `ban_s`: for how long."""

    def __init__(self, *, tries: int = 10, ban_s: float = 600.0) -> None:
        self.bans = 0
        """Bans since the start."""
        self.silenced = 0
        """Requests without an answer since the start."""
        self._tries = tries
        self._ban_s = ban_s
        self._tried: OrderedDict[str, _Tried] = OrderedDict()
        self._banned: OrderedDict[str, float] = OrderedDict()  # until when, the earliest first
        self._known: OrderedDict[str, float] = OrderedDict()  # until when

    def banned_now(self, now: float) -> int:
        """Returns how many addresses are banned."""
        self._expire(now)
        return len(self._banned)

    def listed(self, now: float) -> list[Ban]:
        """Returns the bans of now, the first to end first."""
        self._expire(now)
        return [
            Ban(client.removesuffix(_CONNECTED), client.endswith(_CONNECTED), until - now)
            for client, until in self._banned.items()
        ]

    def lift(self, host: str, now: float) -> bool:
        """Ends the bans of the address `host` (IPv6: of its /64), and forgets its tries; False: there was no
        ban."""
        self._expire(now)
        return self._pardon(host)

    def known_now(self, now: float) -> dict[str, float]:
        """Returns the addresses from which somebody has authenticated, with the seconds for which they are
        known."""
        return {client: until - now for client, until in self._known.items() if until > now}

    def recall(self, known: Mapping[str, float], now: float) -> None:
        """Takes what `known_now` has told, before a restart for one."""
        for client, left_s in known.items():
            if left_s > 0:
                self._known[client] = now + min(left_s, KNOWN_S)
                _bound(self._known, KNOWN_LIMIT)

    def silent(self, host: str, now: float, *, proven: bool = False) -> bool:
        """Whether requests from `host` get no answer. `proven`: by a connection, which proves the sender."""
        if not self._banned:
            return False
        until = self._banned.get(_stranger(host, proven=proven))
        return until is not None and now < until

    def known(self, host: str, now: float) -> bool:
        """Whether somebody authenticated from `host` lately."""
        until = self._known.get(subscriber(host))
        return until is not None and now < until

    def came_in(self, host: str, now: float) -> None:
        """Notes that somebody authenticated from `host`."""
        client = subscriber(host)
        self._pardon(host)
        self._known[client] = now + KNOWN_S
        self._known.move_to_end(client)
        _bound(self._known, KNOWN_LIMIT)

    def refused(
        self, host: str, now: float, *, guess: bool, received: int | None, sent: int | None
    ) -> Treatment:
        """Counts a refused request of `received` bytes, whose answer has `sent`; None for both where the
        transport proves the sender. `guess`: the request may be one of a scanner's."""
        proven = received is None or sent is None
        if self.silent(host, now, proven=proven):
            self.silenced += 1
            return Treatment.SILENCE
        client = _stranger(host, proven=proven)
        tried = self._tried.setdefault(client, _Tried(float(self._tries), now))
        self._tried.move_to_end(client)
        _bound(self._tried, STRANGERS_LIMIT)
        if received is not None and sent is not None:
            tried.credit = min(CREDIT_LIMIT, tried.credit + received)
            if sent > tried.credit:
                self.silenced += 1
                return Treatment.SILENCE
            tried.credit -= sent
        tried.left = min(float(self._tries), tried.left + (now - tried.at) / REFILL_S) - guess
        tried.at = now
        if self._tries and tried.left < 0:
            self._ban(client, now)
            return Treatment.BAN
        return Treatment.ANSWER

    def _pardon(self, host: str) -> bool:
        was_banned = False
        for proven in (False, True):
            self._tried.pop(_stranger(host, proven=proven), None)
            was_banned |= self._banned.pop(_stranger(host, proven=proven), None) is not None
        return was_banned

    def _ban(self, client: str, now: float) -> None:
        self._expire(now)
        self.bans += 1
        self.silenced += 1
        del self._tried[client]
        self._banned[client] = now + self._ban_s
        _bound(self._banned, BANS_LIMIT)

    def _expire(self, now: float) -> None:
        while self._banned and next(iter(self._banned.values())) <= now:
            self._banned.popitem(last=False)


def _stranger(host: str, *, proven: bool) -> str:
    return subscriber(host) + _CONNECTED if proven else subscriber(host)


def _bound(kept: OrderedDict[str, _Tried] | OrderedDict[str, float], limit: int) -> None:
    if len(kept) > limit:
        kept.popitem(last=False)
