"""Who hears whom in a call: the one table that the mix (`pipeline.media.bridge`) asks."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """What somebody is in a call. `CALLER`: whom the call is for, and everybody who joined like them.
    `COLLEAGUE`: a person of the company, to whom the caller was transferred. The other people are
    supervisors: one who listens, who speaks to the company's side, who speaks to all, and in place of the
    agent, which is `PAUSED_AGENT` meanwhile."""

    CALLER = "caller"
    AGENT = "agent"
    PAUSED_AGENT = "paused_agent"
    COLLEAGUE = "colleague"
    MONITOR = "monitor"
    WHISPER = "whisper"
    BARGE = "barge"
    TAKE_OVER = "take_over"


_ALOUD: Final = frozenset({Role.CALLER, Role.AGENT, Role.COLLEAGUE, Role.BARGE, Role.TAKE_OVER})

HEARS: Final[Mapping[Role, frozenset[Role]]] = {
    Role.CALLER: _ALOUD,
    Role.AGENT: frozenset({Role.CALLER, Role.COLLEAGUE, Role.BARGE}),  # a whisper reaches it as text
    Role.PAUSED_AGENT: frozenset(),
    Role.COLLEAGUE: _ALOUD | {Role.WHISPER},
    Role.MONITOR: _ALOUD | {Role.WHISPER},
    Role.WHISPER: _ALOUD | {Role.WHISPER},
    Role.BARGE: _ALOUD | {Role.WHISPER},
    Role.TAKE_OVER: _ALOUD | {Role.WHISPER},
}
"""The roles that each role hears. Nobody hears themselves."""

HEARD: Final = frozenset[Role]().union(*HEARS.values())
"""The roles that somebody hears."""

STAYS: Final = frozenset({Role.CALLER, Role.COLLEAGUE})
"""The roles with the last of which a conversation ends."""

SUPERVISORS: Final = frozenset({Role.MONITOR, Role.WHISPER, Role.BARGE, Role.TAKE_OVER})

UNSEEN: Final = frozenset({Role.MONITOR, Role.WHISPER})
"""The roles of supervisors of whom a caller is not to know."""
