"""What the caller keys and writes over words that nothing interrupts: kept until they are over."""

from __future__ import annotations

from typing import Final

MAX_TEXT_CHARS: Final = 4000  # what somebody writes at once; it goes into a prompt
MAX_KEYS: Final = 32  # longer than a card number


class TypeAhead:
    """Keys and text that wait."""

    __slots__ = ("_keys", "_text")

    def __init__(self) -> None:
        self._keys = self._text = ""

    def key(self, digit: str) -> None:
        """One more key."""
        self._keys = (self._keys + digit)[:MAX_KEYS]

    def write(self, text: str) -> None:
        """One more message; several become one."""
        self._text = f"{self._text} {text}".strip()[:MAX_TEXT_CHARS]

    def take(self) -> tuple[str, str]:
        """Keys and text so far, which are then forgotten."""
        taken = self._keys, self._text
        self._keys = self._text = ""
        return taken
