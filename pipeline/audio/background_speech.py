"""Tells the caller's voice from background speech by level.

The person at the telephone is louder than the room. Once the caller's level is known, a voice far below that
level (other people's talk, babble, a television) is background: such a voice neither interrupts the agent nor
keeps a turn from ending. An energy detector alone takes babble 20 dB below the caller for speech, so that no
silence would end the turn.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pipeline.audio import FRAME_MS, Pcm, kernels

MARGIN_DB: Final = 14.0
"""Least distance of background speech below the caller's loud syllables, in dB. The last word of the caller
is 6 to 10 dB below those syllables, side talk 15 dB and more."""

ASIDE_MARGIN_DB: Final = 11.0
"""`MARGIN_DB` while the agent speaks: a caller who talks over the agent speaks as loudly as before, and the
loudest syllables of side talk come within 14 dB."""

_KNOWN_FRAMES: Final = 25  # half a second of voice before the caller's level counts as known
_HANG_FRAMES: Final = 8  # 160 ms: soft sounds after a loud one are the caller's too
_ATTACK: Final = 0.1  # share of a rise per voiced frame, so that a DTMF tone or a thump sets no level
_NOISE_MARGIN_DB: Final = 5.0
_SYLLABLES_DB: Final = 6.0
_STANDS_OUT_DB: Final = 13.0
_NONE_DBOV: Final = -100.0
_FORGET_DB: Final = 0.25 * FRAME_MS / 1000  # a quarter of a dB a second: a caller may move away


class Foreground:
    """Follows the level of one caller's voice. Call `is_background` for every frame that is not echo.

    `loud_dbov`: the level from which on a voiced frame is the caller's, whatever else is so."""

    __slots__ = ("_frames", "_hang", "_is_known", "_level_dbov", "_noise_dbov", "loud_dbov")

    def __init__(self) -> None:
        self._level_dbov = -100.0
        self._frames = 0
        self._hang = 0
        self._noise_dbov = _NONE_DBOV
        self._is_known = False
        self.loud_dbov = _NONE_DBOV

    def believe(self) -> None:
        """Takes the level for the caller's, since the speech had words and was answered."""
        self._is_known = True

    def accept_speech(self) -> None:
        """Drops the level of noise, since sound that was taken for noise had words."""
        self._noise_dbov = _NONE_DBOV
        self._set_loud()

    def reject_as_noise(self, noise: Pcm, frame_samples: int) -> None:
        """Learns the level of `noise`, which had no words: sound that is not louder is background, for some
        minutes. `frame_samples`: samples in 20 ms."""
        frames = noise[: noise.size // frame_samples * frame_samples].reshape(-1, frame_samples)
        if len(frames):
            levels = [kernels.rms_dbfs(frame) for frame in frames]
            loud_dbov = float(np.percentile(levels, 90)) + _NOISE_MARGIN_DB
            # The caller's loud syllables are never background, however loud the noise was.
            most_dbov = self._level_dbov - (_SYLLABLES_DB if self._is_known else 0.0)
            self._noise_dbov = min(loud_dbov, most_dbov)
        self._hang = 0
        self._set_loud()

    def _set_loud(self) -> None:
        known = self._frames >= _KNOWN_FRAMES
        self.loud_dbov = max(self._noise_dbov, self._level_dbov - ASIDE_MARGIN_DB if known else _NONE_DBOV)

    def pass_over(self, frames: int) -> None:
        """Takes so many frames that are unvoiced."""
        self._hang = max(0, self._hang - frames)

    @property
    def stands_out(self) -> bool:
        """Whether the caller is more than 13 dB above a known noise, so that the audio's pitch is that of the
        caller's voice."""
        known = self._noise_dbov > _NONE_DBOV
        return known and self._level_dbov - self._noise_dbov > _STANDS_OUT_DB

    def is_background(self, frame: Pcm, *, voiced: bool, over_agent: bool = False) -> bool:
        """Whether `frame` (20 ms of int16) is background speech; False until the caller's level is known,
        unless the frame is as quiet as rejected noise. `over_agent`: the agent speaks."""
        return self.is_behind(kernels.rms_dbfs(frame) if voiced else None, over_agent=over_agent)

    def is_behind(self, level_dbov: float | None, *, over_agent: bool) -> bool:
        """The same by the level of a frame; None: it is unvoiced."""
        if level_dbov is None:
            self.pass_over(1)
            return False
        behind = self._weigh(level_dbov, ASIDE_MARGIN_DB if over_agent else MARGIN_DB)
        self._set_loud()
        return behind

    def _weigh(self, level_dbov: float, margin_db: float) -> bool:
        if level_dbov < self._noise_dbov:
            self._noise_dbov -= _FORGET_DB
            self._hang -= self._hang > 0
            return self._hang == 0
        above_db = level_dbov - self._level_dbov
        if above_db > 0.0:
            self._level_dbov += above_db if self._frames == 0 else _ATTACK * above_db
        if above_db > -margin_db:
            self._frames += 1
            self._hang = _HANG_FRAMES
            return False
        self._level_dbov -= _FORGET_DB
        self._hang -= self._hang > 0
        return self._frames >= _KNOWN_FRAMES and self._hang == 0
