"""What a row of the media plane has heard, passed on to the listener of a call."""

from __future__ import annotations

from typing import Any, Final

from pipeline.audio import Pcm, frame_samples
from pipeline.audio.dtmf import KEYS
from pipeline.leg import LegListener
from pipeline.plane.rows import HEARD, PRESSES, SPARE
from sip.rtp.dtmf_dedup import DtmfDedup, Way
from sip.rtp.telephone_event import DIGITS

_NS: Final = 1_000_000_000


class Heard:
    """The frames and keys of one stream, in their order."""

    __slots__ = ("_frames", "_infos", "_line", "_listener", "_presses", "_told", "_told_keys")

    def __init__(self, line: Any) -> None:
        """`line`: a record of `pipeline.plane.rows.LINE`."""
        self._line, self._infos = line, line["heard_frames"]
        self._presses = DtmfDedup()
        samples = frame_samples(int(line["rate_hz"]))
        self._frames: Pcm = line["heard"][:, :samples]
        self._told, self._told_keys = int(line["frames"]), int(line["presses"])
        self._listener: LegListener | None = None

    @property
    def listener(self) -> LegListener | None:
        """The listener; None: frames are dropped."""
        return self._listener

    @listener.setter
    def listener(self, listener: LegListener | None) -> None:
        self._listener = listener
        self._line["listening"] = listener is not None

    def pass_on(self, frames: int, keys: int, now: float) -> None:
        """Passes on what there is up to frame number `frames` and key number `keys`. Of what a loop that
        stood still has missed, the last second is passed on; the rest is a hole in the positions."""
        newest = max(frames, int(self._line["frames"]))  # the plane goes on while its events wait
        self._told = max(self._told, newest - HEARD + SPARE)
        while self._told < frames:
            if self._told_keys < keys:
                self._press_before(self._told, keys, now)
            slot = self._told % HEARD
            self._told += 1
            position, arrived_ns, made_up = self._infos[slot].item()
            if self._listener is not None:
                self._listener.audio_received(
                    self._frames[slot], position, arrived_ns / _NS, concealed=bool(made_up)
                )
        self._press_before(frames, keys, now)

    def _press_before(self, frame: int, keys: int, now: float) -> None:
        while self._told_keys < keys:
            key, is_tone, before = self._line["pressed"][self._told_keys % PRESSES].item()
            if before > frame:
                return
            self._told_keys += 1
            self.press(KEYS[key] if is_tone else DIGITS[key], Way.TONE if is_tone else Way.EVENT, now)

    def press(self, digit: str, way: Way, now: float) -> None:
        """A key of the far end's, however it was signalled."""
        if self._listener is not None and self._presses.counts(digit, way, now):
            self._listener.digit_received(digit, now)
