"""Limits the talks that visitors open without a key: of one address, and of all together, on this node.

No clock, no I/O. A talk counts for as long as its room is open."""

from __future__ import annotations

from collections.abc import Callable

from mediaserver.admission.rate_limits import RateLimit
from mediaserver.errors import TooMany
from mediaserver.settings import RoomsSettings

JOIN_S = 60.0
"""Seconds after which a room that no visitor has joined is closed: the page joins at once."""

FULL_RETRY_S = 30


class PublicTalk:
    """Limits the rooms that visitors open without a key. `is_open` tells whether a room of that name is still
    open."""

    def __init__(self, settings: RoomsSettings, *, is_open: Callable[[str], bool]) -> None:
        self._at_once = settings.public_talk_at_once
        self._at_once_each = settings.public_talk_at_once_each
        self._rate = RateLimit(settings.public_talk_per_minute_each)
        self._is_open = is_open
        self._rooms: dict[str, str] = {}  # room to address: at most `public_talk_at_once`

    def take(self, address: str, now: float) -> None:
        """Counts a request of `address`. Raises `TooMany` where `address` asks too often."""
        wait_s = self._rate.take(address, now)
        if wait_s > 0:
            raise TooMany("Too many conversations from your address", retry_after_s=int(wait_s) + 1)

    def check(self, address: str) -> None:
        """Raises `TooMany` where too many rooms are open, those of `address` or all together."""
        self._rooms = {room: who for room, who in self._rooms.items() if self._is_open(room)}
        if sum(who == address for who in self._rooms.values()) >= self._at_once_each:
            raise TooMany("Too many conversations at once from your address", retry_after_s=FULL_RETRY_S)
        if len(self._rooms) >= self._at_once:
            raise TooMany("Too many conversations at once", retry_after_s=FULL_RETRY_S)

    def opened(self, address: str, room: str) -> None:
        """Counts `room` as opened by `address`."""
        self._rooms[room] = address
