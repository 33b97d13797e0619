"""Users of this server in the place of telephone numbers."""

from __future__ import annotations

from typing import Final

USER: Final = "user:"
"""How a call names a user in place of a telephone number."""

LINE: Final = "users:"
"""What the id of a company's line begins with: its users' calls are counted there, and no trunk has such a
name."""


def user_named(number: str) -> str:
    """Returns the user that a call is for or from, "" where that is a telephone number."""
    return number.removeprefix(USER) if number.startswith(USER) else ""
