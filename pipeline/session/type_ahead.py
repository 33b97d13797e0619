"""Type-ahead: keeps digits and text messages of the caller during protected words until those words end."""

from __future__ import annotations

from typing import Final

MAX_TEXT_CHARS: Final = 4000  # a limit, since the text goes into a language model's prompt
MAX_KEYS: Final = 32  # longer than a card number


class TypeAhead:
    """Keys and messages of the caller that wait for the end of protected words."""

    __slots__ = ("_keys", "_text")

    def __init__(self) -> None:
        self._keys = self._text = ""

    def key(self, digit: str) -> None:
        """Adds a digit; those beyond `MAX_KEYS` are dropped."""
        self._keys = (self._keys + digit)[:MAX_KEYS]

    def write(self, text: str) -> None:
        """Adds a message; several messages become one."""
        self._text = f"{self._text} {text}".strip()[:MAX_TEXT_CHARS]

    def take(self) -> tuple[str, str]:
        """Returns the keys and the text, and empties both."""
        taken = self._keys, self._text
        self._keys = self._text = ""
        return taken
