"""Tells the caller's voice from background speech by its level.

The person at the telephone is louder than the room. Once the caller's level is known, voice that stays far
below it (other people's talk, babble, a television) is background: it neither interrupts the agent nor keeps
a turn from ending. An energy detector alone takes babble 20 dB below the caller for speech, and no silence
ever comes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pipeline.audio import FRAME_MS, Pcm, kernels

MARGIN_DB: Final = 14.0
"""How far below the caller's loud syllables background speech lies, in dB. The caller's own last word is 6 to
10 dB below those, side talk 15 and more."""

ASIDE_MARGIN_DB: Final = 11.0
"""Like `MARGIN_DB`, while the agent speaks: a caller who talks over the agent does not lower their voice, and
the loudest syllables of side talk come within 14 dB."""

_KNOWN_FRAMES: Final = 25  # half a second of voice, before anybody is background
_HANG_FRAMES: Final = 8  # 160 ms: soft sounds after a loud one are the caller's own
_ATTACK: Final = 0.1  # of the way up, a voiced frame: a key's tone or a thump does not set the level
_NOISE_MARGIN_DB: Final = 5.0
_SYLLABLES_DB: Final = 6.0
_STANDS_OUT_DB: Final = 13.0
_NONE_DBOV: Final = -100.0
_FORGET_DB: Final = 0.25 * FRAME_MS / 1000  # a quarter of a dB a second: a caller may move away


class Foreground:
    """The level of one caller's voice. Call `is_background` with every frame that is not echo, and whether
    the frame is voiced."""

    __slots__ = ("_frames", "_hang", "_is_known", "_level_dbov", "_noise_dbov")

    def __init__(self) -> None:
        self._level_dbov = -100.0
        self._frames = 0
        self._hang = 0
        self._noise_dbov = _NONE_DBOV
        self._is_known = False

    def believe(self) -> None:
        """Takes the level for the caller's: the speech had words, and was answered."""
        self._is_known = True

    def accept_speech(self) -> None:
        """There were words in what was taken for noise: nothing is background, until the next noise."""
        self._noise_dbov = _NONE_DBOV

    def reject_as_noise(self, noise: Pcm, frame_samples: int) -> None:
        """`noise` had no words in it: what is not louder is background, for some minutes."""
        frames = noise[: noise.size // frame_samples * frame_samples].reshape(-1, frame_samples)
        if len(frames):
            levels = [kernels.rms_dbfs(frame) for frame in frames]
            loud_dbov = float(np.percentile(levels, 90)) + _NOISE_MARGIN_DB
            # Their loud syllables always count, whatever was taken for noise.
            most_dbov = self._level_dbov - (_SYLLABLES_DB if self._is_known else 0.0)
            self._noise_dbov = min(loud_dbov, most_dbov)
        self._hang = 0

    @property
    def stands_out(self) -> bool:
        """Whether the caller's level is so far above that of the noise that voice in it, with its melody, is
        the caller's."""
        known = self._noise_dbov > _NONE_DBOV
        return known and self._level_dbov - self._noise_dbov > _STANDS_OUT_DB

    def is_background(self, frame: Pcm, *, voiced: bool, over_agent: bool = False) -> bool:
        """`frame` (20 ms) is sound from behind the caller. Never while their level is not known.
        `over_agent`: the agent speaks."""
        if not voiced:
            self._hang -= self._hang > 0
            return False
        level_dbov = kernels.rms_dbfs(frame)
        if level_dbov < self._noise_dbov:
            self._noise_dbov -= _FORGET_DB
            self._hang -= self._hang > 0
            return self._hang == 0
        above_db = level_dbov - self._level_dbov
        if above_db > 0.0:
            self._level_dbov += above_db if self._frames == 0 else _ATTACK * above_db
        if above_db > -(ASIDE_MARGIN_DB if over_agent else MARGIN_DB):
            self._frames += 1
            self._hang = _HANG_FRAMES
            return False
        self._level_dbov -= _FORGET_DB
        self._hang -= self._hang > 0
        return self._frames >= _KNOWN_FRAMES and self._hang == 0
