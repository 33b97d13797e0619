"""Limits the talks that visitors open without a key: of one address, of one company,
and of all together, on this node.

No clock, no I/O. A talk counts for as long as its room is open."""

from __future__ import annotations

from collections.abc import Callable

from mediaserver.admission.rate_limits import RateLimit
from mediaserver.errors import TooMany
from mediaserver.settings import RoomsSettings

JOIN_S = 15.0
"""Seconds after which a room that no visitor has joined is closed: the page joins at once."""

FULL_RETRY_S = 30


class PublicTalk:
    """Limits the rooms that visitors open without a key. `is_open` tells whether a room of that name is still
    open."""

    def __init__(self, settings: RoomsSettings, *, is_open: Callable[[str], bool]) -> None:
        self._at_once = settings.public_talk_at_once
        self._at_once_each = settings.public_talk_at_once_each
        self._at_once_company = (settings.public_talk_at_once + 1) // 2
        self._rate = RateLimit(settings.public_talk_per_minute_each)
        self._is_open = is_open
        # Room to address and company: at most `public_talk_at_once`.
        self._rooms: dict[str, tuple[str, str]] = {}

    def take(self, address: str, now: float) -> None:
        """Counts a request of `address`. Raises `TooMany` where `address` asks too often."""
        wait_s = self._rate.take(address, now)
        if wait_s > 0:
            raise TooMany("Too many conversations from your address", retry_after_s=int(wait_s) + 1)

    def check(self, address: str, company: str) -> None:
        """Raises `TooMany` where too many rooms are open: those of `address`, those of `company`, which gets
        half of all so that it leaves others some, or all together."""
        self._rooms = {room: who for room, who in self._rooms.items() if self._is_open(room)}
        addresses, companies = ([pair[place] for pair in self._rooms.values()] for place in (0, 1))
        if addresses.count(address) >= self._at_once_each:
            raise TooMany("Too many conversations at once from your address", retry_after_s=FULL_RETRY_S)
        if companies.count(company) >= self._at_once_company or len(self._rooms) >= self._at_once:
            raise TooMany("Too many conversations at once", retry_after_s=FULL_RETRY_S)

    def opened(self, room: str, address: str, company: str) -> None:
        """Counts `room` as opened by `address` at `company`."""
        self._rooms[room] = address, company
