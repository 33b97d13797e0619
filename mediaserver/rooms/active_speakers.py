"""Detects active speakers from levels, for LiveKit's speaker updates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mediaserver.rooms.participant import Participant
from pipeline.media.bridge import ACTIVE

LOOK_S: Final = 0.25
"""Seconds between two readings of the levels; LiveKit's servers take 0.4 s."""

HOLD: Final = 3
"""Looks in a row below the level before a participant has stopped speaking: pauses between words."""


@dataclass(frozen=True, slots=True)
class Speaking:
    """A participant began (`active`) or stopped speaking. `level`: 0 to 1, root mean square relative to full
    scale."""

    participant: Participant
    level: float
    active: bool


class Speakers:
    """The active speakers of one room."""

    __slots__ = ("_quiet",)

    def __init__(self) -> None:
        self._quiet: dict[str, int] = {}  # active speakers by sid: looks since they were loud

    def look(self, levels: Iterable[tuple[Participant, float]]) -> list[Speaking]:
        """Takes the level of every participant since the last call; returns what has changed."""
        changes, here = [], set()
        for participant, level in levels:
            sid = participant.sid
            here.add(sid)
            if level >= ACTIVE:
                if sid not in self._quiet:
                    changes.append(Speaking(participant, min(1.0, level), active=True))
                self._quiet[sid] = 0
            elif sid in self._quiet:
                self._quiet[sid] += 1
                if self._quiet[sid] >= HOLD:
                    del self._quiet[sid]
                    changes.append(Speaking(participant, 0.0, active=False))
        for sid in self._quiet.keys() - here:
            del self._quiet[sid]  # they have left, which clients know
        return changes
