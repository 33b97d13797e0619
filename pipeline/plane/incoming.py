"""What one stream has heard, as Python reads it: many frames at once, and what it wants to be told of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.audio import kernels
from pipeline.audio.vad import VadSettings, begin_energy_vad
from pipeline.plane.atomic import held
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
"""`be_alert`: Python is told of every frame of a voice."""

_LONG_AGO_NS: Final = -(1 << 60)


class Incoming:
    """What Python wants of a row of `pipeline.plane.rows.LINE`. `catch_up` passes on the silence of which
    Python was not told yet; what is more than silence comes by itself."""

    __slots__ = ("_line", "catch_up")

    def __init__(self, line: Any, catch_up: Callable[[], None]) -> None:
        self._line, self.catch_up = line, catch_up

    def follow(self) -> None:
        """Begins the echo gate of a conversation: the agent's frames are remembered from now on."""
        line = self._line
        with held(line["owner"]):
            for name in ("echo_far", "echo_near", "echo_rings", "echo_sums", "echo_weights", "echo"):
                line[name] = 0.0
            line["echo"][kernels.ECHO_LOCKED] = -1.0
            line["echo"][kernels.ECHO_QUIET] = kernels.ECHO_HANG
            line["echo_next_played"] = line["echo_next_heard"] = 0
            line["echo_played_ns"] = _LONG_AGO_NS
            line["follows"] = 1

    def detect(self, settings: VadSettings) -> None:
        """Detects voice by `pipeline.audio.vad` in the frames from now on."""
        line = self._line
        with held(line["owner"]):
            begin_energy_vad(line["voice"], line["voice_bands"], int(line["rate_hz"]), settings)
            line["noted"] = line["masked_until"] = 0
            line["alert_below"] = ANY
            line["detects"] = 1

    def attend(self, frames: int) -> None:
        """Wants to be told after so many frames of silence; `ALWAYS`: of each."""
        self._line["beat"] = frames

    def be_alert(self, below_dbov: float) -> None:
        """Wants to be told at once of the frames of a voice that are quieter than `below_dbov`, `ANY`: of all
        of them; of the others as of silence. The beginning and the end of a voice are told at once anyway."""
        self._line["alert_below"] = below_dbov

    def mask(self, until: int) -> None:
        """Looks for no voice before the position `until`."""
        self._line["masked_until"] = until

    def rest(self) -> None:
        """Detects nothing: each frame is told."""
        line = self._line
        line["detects"] = line["follows"] = line["beat"] = 0


class Attention(Protocol):
    """What a conversation asks of the line that it hears by (`Incoming`)."""

    @property
    def catch_up(self) -> Callable[[], None]:
        """Passes on the silence that Python was not told of yet."""

    def detect(self, settings: VadSettings) -> None:
        """Begins to look for voice."""

    def attend(self, frames: int) -> None:
        """Sets after how many frames of silence Python is told."""

    def be_alert(self, below_dbov: float) -> None:
        """Sets the level below which Python is told of a voiced frame at once."""

    def mask(self, until: int) -> None:
        """Looks for no voice before the position `until`."""


class _NoLine:
    """A leg that hands on each frame as it comes."""

    def catch_up(self) -> None: ...
    def detect(self, settings: VadSettings) -> None: ...
    def attend(self, frames: int) -> None: ...
    def be_alert(self, below_dbov: float) -> None: ...
    def mask(self, until: int) -> None: ...


NO_LINE: Final[Attention] = _NoLine()
