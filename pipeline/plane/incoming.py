"""What a conversation asks of the line that it hears by, and what the line tells of the frames heard."""

from __future__ import annotations

import math
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.audio.vad import VadSettings
from pipeline.plane.rows import Note

Frames: TypeAlias = npt.NDArray[np.int16]
"""Frames of 20 ms, a row each; views, valid for as long as they are handed on."""

Told: TypeAlias = tuple[int, int, int, int, float]
"""Of a frame that was heard: position, arrival in nanoseconds, whether it was made up, its `Note`, and the
level of a voiced one in dBov."""

STIRRING: Final = int(Note.VOICED | Note.ACTIVE | Note.MASKED)
"""What makes a frame more than silence."""

ALWAYS: Final = 0
"""`attend`: Python is told of every frame."""

ANY: Final = math.inf
"""`attend`: Python is told of every frame of a voice."""


class Attention(Protocol):
    """What a conversation asks of the line that it hears by (`sip.rtp.heard.Heard`)."""

    def catch_up(self) -> None:
        """Passes on the silence of which Python was not told yet; what is more than silence comes by
        itself."""

    def follow(self) -> None:
        """Begins the echo gate of a conversation: the agent's frames are remembered from now on."""

    def detect(self, settings: VadSettings) -> None:
        """Detects voice by `pipeline.audio.vad` in the frames from now on."""

    def attend(self, frames: int, below_dbov: float = ANY) -> None:
        """Wants to be told after so many frames of silence, `ALWAYS`: of each; and at once of the frames of a
        voice that are quieter than `below_dbov`, `ANY`: of all of them. Louder ones are told as silence is;
        the beginning and the end of a voice are told at once anyway."""

    def mask(self, until: int) -> None:
        """Looks for no voice before the position `until`."""


class _NoLine:
    """A leg that hands on each frame as it comes."""

    def catch_up(self) -> None: ...
    def follow(self) -> None: ...
    def detect(self, settings: VadSettings) -> None: ...
    def attend(self, frames: int, below_dbov: float = ANY) -> None: ...
    def mask(self, until: int) -> None: ...


NO_LINE: Final[Attention] = _NoLine()
