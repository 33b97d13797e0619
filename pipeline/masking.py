"""What stands for words that nobody but the agent may see: a card number, a PIN."""

from __future__ import annotations

from typing import Final

MASK: Final = "••••"
"""Always the same: the number of dots tells nothing about the number of digits."""


def masked(text: str) -> str:
    """What may be shown of `text`: that there was something."""
    return MASK if text else ""
