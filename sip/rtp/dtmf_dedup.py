"""Removes duplicate DTMF digits: gateways signal one key by RFC 4733 event and SIP INFO, telephones by INFO
and an in-band tone. Each press counts once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

BOTH_S: Final = 1.0
"""Seconds between two signals of one press, at most: INFO often comes when the key is released."""


class Way(Enum):
    """How a DTMF digit is signalled."""

    EVENT = auto()  # RFC 4733
    INFO = auto()
    TONE = auto()


@dataclass(slots=True)
class _Press:
    key: str
    at: float
    ways: set[Way]


class DtmfDedup:
    """The recent DTMF digits of one far end."""

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        self._recent: list[_Press] = []

    def counts(self, key: str, way: Way, now: float) -> bool:
        """Whether the digit is a new press, and not a second signal of one that has counted already."""
        self._recent = [press for press in self._recent if now - press.at <= BOTH_S]
        for press in self._recent:
            if press.key == key and way not in press.ways:
                press.ways.add(way)
                return False
        self._recent.append(_Press(key, now, {way}))
        return True
