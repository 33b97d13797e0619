"""Masks answers that only the agent may see, such as a card number or a PIN."""

from __future__ import annotations

import math
from typing import Final

MASK: Final = "••••"
"""The mask of any answer; its length does not depend on the answer."""


def masked(text: str) -> str:
    """Gives `MASK` for a text that is not empty, else ""."""
    return MASK if text else ""


class Redaction:
    """Decides whether the caller's words and digits are masked now. The agent asks for masking with `Expect`;
    an utterance that began while masking was asked for stays masked to its end. `now`: loop time.

    `asked`: the next answer is masked. `until`: loop time before which the caller's audio is masked, infinity
    while the words and digits are, and `TAIL_S` longer."""

    __slots__ = ("_heard", "asked", "until")

    TAIL_S: Final = 1.0  # covers the in-band tone of the last digit, and of a surplus one

    def __init__(self) -> None:
        self.asked = self._heard = False
        self.until = 0.0

    def ask(self, masked: bool, now: float) -> None:
        """Sets whether the next answer is masked."""
        self._settle(masked, self._heard, now)

    def heard(self) -> None:
        """Notes that an utterance of the caller began."""
        self._heard = self._heard or self.asked

    def forgotten(self, now: float) -> None:
        """Notes that the caller's utterance was closed."""
        self._settle(self.asked, False, now)

    @property
    def active(self) -> bool:
        """Whether the caller's words and digits are masked."""
        return self.asked or self._heard

    def _settle(self, asked: bool, heard: bool, now: float) -> None:
        was = self.active
        self.asked, self._heard = asked, heard
        if self.active:
            self.until = math.inf
        elif was:
            self.until = now + self.TAIL_S
