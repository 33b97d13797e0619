"""What stands for words that nobody but the agent may see: a card number, a PIN."""

from __future__ import annotations

from typing import Final

MASK: Final = "••••"
"""Always the same: the number of dots tells nothing about the number of digits."""


def masked(text: str) -> str:
    """What may be shown of `text`: that there was something."""
    return MASK if text else ""


class Redaction:
    """Whether what the caller says and keys now is for the agent alone. The agent asks for it with an
    `Expect`; an utterance that was heard under it stays masked to its end, whatever is asked next. Every
    method takes loop time."""

    __slots__ = ("_asked", "_heard", "_until")

    TAIL_S: Final = 1.0  # the tone of the last key, where it comes as sound, and of one too many

    def __init__(self) -> None:
        self._asked = self._heard = False
        self._until = 0.0

    def ask(self, masked: bool, now: float) -> None:
        """The next answer is masked, or not."""
        self._settle(masked, self._heard, now)

    def heard(self) -> None:
        """The caller is being listened to."""
        self._heard = self._heard or self._asked

    def forgotten(self, now: float) -> None:
        """They are not any more."""
        self._settle(self._asked, False, now)

    @property
    def active(self) -> bool:
        """What the caller says or keys is masked."""
        return self._asked or self._heard

    def covers(self, now: float) -> bool:
        """The same for sound, which ends a little later."""
        return self._asked or self._heard or now < self._until

    def _settle(self, asked: bool, heard: bool, now: float) -> None:
        was = self.active
        self._asked, self._heard = asked, heard
        if was and not self.active:
            self._until = now + self.TAIL_S
