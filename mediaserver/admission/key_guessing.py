"""Guessing API keys: counted by who guesses and by how the guesses begin, slowed, then banned.

Wrong keys are counted by address and by their first characters, from wherever they come. Only different ones
count: a program that repeats a key which has expired guesses nothing. Beyond so many, the next key is looked
up only after a wait, which doubles with each further wrong one. A key that has opened something from an
address goes on opening there, whatever strangers behind the same address do; nobody else learns meanwhile
whether a key is right.

FREE ──(tries)──► SLOWED ──(wait of BANNED_S)──► BANNED ──(quiet for QUIET_S, or twice the wait)──► forgotten

No clock, no I/O. Keys are kept as salted hashes, and no more than the limits say: what was quiet longest goes
first, those that wait last.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, TypeVar

from mediaserver.admission.rate_limits import RateLimit

PREFIX: Final = 7
"""Characters of a key that are shown in lists, its `hint`."""

ADDRESS_TRIES: Final = 30
"""Different wrong keys from an address before it must wait: nobody mistypes as many."""

PREFIX_TRIES: Final = 100
"""Different wrong keys with one beginning, from all addresses together."""

ADDRESS_WAIT_S: Final = 3600.0
PREFIX_WAIT_S: Final = 60.0
"""The longest waits. That of a beginning is short: otherwise somebody who knows how a customer's key begins
could keep the customer from every new address."""

BANNED_S: Final = 60.0
QUIET_S: Final = 600.0

NEAR_TRIES: Final = 30
"""Wrong keys that begin like a known one, from a waiting address: from then on the known key waits as
well."""

REPEATS_PER_MINUTE: Final = 600
"""How often an address may repeat a wrong key."""

SUSPECTS_LIMIT: Final = 10_000
KNOWN_LIMIT: Final = 20_000
KEYS_LIMIT: Final = 8
"""The most keys of one beginning that are remembered for one address."""


class Standing(Enum):
    """How keys from an address, or with one beginning, are treated."""

    FREE = "free"
    SLOWED = "slowed"
    BANNED = "banned"


@dataclass(frozen=True, slots=True)
class Change:
    """A new standing of an address or of a beginning. `by`: "address" or "prefix"; `name`: the address, ""
    for a beginning; `wait_s`: until the next key is looked up."""

    by: str
    name: str
    standing: Standing
    wait_s: float


Name = TypeVar("Name", bound=Hashable)


@dataclass(slots=True)
class _Suspect:
    """`seen`: the wrong keys that were counted, the latest."""

    seen: deque[int]
    count: int = 0
    standing: Standing = Standing.FREE
    free_at: float = 0.0
    forget_at: float = 0.0


class _Suspects(Generic[Name]):
    """Who guesses, of one kind."""

    def __init__(self, *, tries: int, longest_s: float) -> None:
        self._tries = tries
        self._longest_s = longest_s
        self._free: OrderedDict[Name, _Suspect] = OrderedDict()
        self._held: OrderedDict[Name, _Suspect] = OrderedDict()

    def __len__(self) -> int:
        return len(self._free) + len(self._held)

    def wait_s(self, name: Name, now: float) -> float:
        """How long its next key waits; 0.0: not at all."""
        suspect = self._held.get(name)
        return max(0.0, suspect.free_at - now) if suspect is not None else 0.0

    def has_seen(self, name: Name, key: int) -> bool:
        """Whether `key` was wrong already."""
        suspect = self._free.get(name) or self._held.get(name)
        return suspect is not None and key in suspect.seen

    def wrong(self, name: Name, key: int, now: float) -> _Suspect | None:
        """Counts a wrong key; the suspect where its standing changed by it."""
        suspect = self._free.pop(name, None) or self._held.pop(name, None)
        if suspect is None or suspect.forget_at <= now:
            suspect = _Suspect(deque(maxlen=self._tries))
        before = suspect.standing
        if key not in suspect.seen:
            suspect.seen.append(key)
            suspect.count += 1
            self._slow(suspect, now)
        suspect.forget_at = max(suspect.forget_at, now + QUIET_S)
        kept = self._free if suspect.standing is Standing.FREE else self._held
        kept[name] = suspect
        if len(kept) > SUSPECTS_LIMIT:
            kept.popitem(last=False)
        return suspect if suspect.standing is not before else None

    def _slow(self, suspect: _Suspect, now: float) -> None:
        beyond = suspect.count - self._tries
        if beyond < 0:
            return
        wait_s = min(self._longest_s, 2.0 ** min(beyond, 30))
        suspect.free_at = now + wait_s
        suspect.forget_at = now + 2 * wait_s
        suspect.standing = Standing.BANNED if wait_s >= BANNED_S else Standing.SLOWED


@dataclass(slots=True)
class _Known:
    """The keys of one beginning that opened something from one address."""

    keys: deque[int] = field(default_factory=lambda: deque(maxlen=KEYS_LIMIT))
    near: int = 0


class Guesses:
    """Counts wrong keys by client address and by their first characters. An address is any text that stands
    for one client."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(16)
        self._addresses: _Suspects[str] = _Suspects(tries=ADDRESS_TRIES, longest_s=ADDRESS_WAIT_S)
        self._prefixes: _Suspects[int] = _Suspects(tries=PREFIX_TRIES, longest_s=PREFIX_WAIT_S)
        self._known: OrderedDict[tuple[str, int], _Known] = OrderedDict()
        self._repeats = RateLimit(REPEATS_PER_MINUTE)

    def __len__(self) -> int:
        """Entries kept."""
        return len(self._addresses) + len(self._prefixes) + len(self._known)

    def wait_s(self, address: str, key: str, now: float) -> float:
        """Returns the seconds until `address` may try `key` again. 0.0: look `key` up, then call `right` or
        `wrong`."""
        prefix = self._hash(key[:PREFIX])
        wait_s = max(self._addresses.wait_s(address, now), self._prefixes.wait_s(prefix, now))
        if wait_s > 0:
            return 0.0 if self._knows(address, prefix, key) else wait_s
        if self._addresses.has_seen(address, self._hash(key)):
            return self._repeats.take(address, now)
        return 0.0

    def right(self, address: str, key: str) -> None:
        """Counts `key` as one that opened something from `address`: it goes on opening there."""
        place = (address, self._hash(key[:PREFIX]))
        known = self._known.setdefault(place, _Known())
        self._known.move_to_end(place)
        hashed = self._hash(key)
        if hashed not in known.keys:
            known.keys.append(hashed)
        if len(self._known) > KNOWN_LIMIT:
            self._known.popitem(last=False)

    def wrong(self, address: str, key: str, now: float) -> Iterator[Change]:
        """Counts `key` as one that nobody has. Yields each change of standing that follows."""
        prefix, hashed = self._hash(key[:PREFIX]), self._hash(key)
        known = self._known.get((address, prefix))
        if known is not None and hashed in known.keys:  # the key was valid until it was revoked
            known.keys.remove(hashed)
        suspect = self._addresses.wrong(address, hashed, now)
        if suspect is not None:
            yield Change("address", address, suspect.standing, suspect.free_at - now)
        suspect = self._prefixes.wrong(prefix, hashed, now)
        if suspect is not None:
            yield Change("prefix", "", suspect.standing, suspect.free_at - now)

    def _knows(self, address: str, prefix: int, key: str) -> bool:
        known = self._known.get((address, prefix))
        if known is None:
            return False
        if self._hash(key) in known.keys:
            return True
        known.near += 1
        if known.near >= NEAR_TRIES:
            del self._known[address, prefix]
        return False

    def _hash(self, text: str) -> int:
        return int.from_bytes(hashlib.blake2b(text.encode(), key=self._salt, digest_size=8).digest())
