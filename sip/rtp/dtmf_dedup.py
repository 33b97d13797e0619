"""Keys that a far end signals in two ways at once: gateways send RFC 4733 events and SIP INFO, telephones
INFO and the tone itself. Each press counts once, and a PIN is not twice as long as it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

BOTH_S: Final = 1.0
"""How far apart the signals of one press may be: INFO often comes when the key is let go."""


class Way(Enum):
    """How a key is signalled."""

    EVENT = auto()  # RFC 4733
    INFO = auto()
    TONE = auto()


@dataclass(slots=True)
class _Press:
    key: str
    at: float
    ways: set[Way]


class DtmfDedup:
    """The keys of one far end."""

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        self._recent: list[_Press] = []

    def counts(self, key: str, way: Way, now: float) -> bool:
        """Whether this is a press of its own, and not another signal of one that was heard of already."""
        self._recent = [press for press in self._recent if now - press.at <= BOTH_S]
        for press in self._recent:
            if press.key == key and way not in press.ways:
                press.ways.add(way)
                return False
        self._recent.append(_Press(key, now, {way}))
        return True
