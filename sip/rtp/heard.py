"""What a row of the media plane has heard, passed on to the listener of a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, runtime_checkable

from pipeline.audio import frame_samples, kernels
from pipeline.audio.dtmf import KEYS
from pipeline.audio.vad import VadSettings, begin_energy_vad
from pipeline.leg import LegListener
from pipeline.plane.atomic import held
from pipeline.plane.incoming import ANY, STIRRING, Attention, Frames, Told
from pipeline.plane.rows import HEARD, PRESSES, SPARE, Note
from sip.rtp.dtmf_dedup import DtmfDedup, Way
from sip.rtp.telephone_event import DIGITS

_NS: Final = 1_000_000_000
_NEVER: Final = 1 << 62
_LONG_AGO_NS: Final = -(1 << 60)
_JUDGED: Final = int(Note.JUDGED)  # an int: `&` of an `IntFlag` takes a microsecond
_LOOKED_AT: Final = STIRRING | _JUDGED
_ACTIVE: Final = int(Note.ACTIVE)


@runtime_checkable
class LineListener(LegListener, Protocol):
    """A listener that takes the frames of a line many at once, with what the line has noticed in them."""

    def line_connected(self, line: Attention | None) -> None:
        """Takes what to ask of the line whose frames follow; None: no more do."""

    def frames_received(self, frames: Frames, told: Sequence[Told]) -> None:
        """Takes frames in their order, each with what is told of it (`LegListener.audio_received`)."""


class Heard:
    """The frames and keys of one stream, in their order; what a `LineListener` asks of the stream
    (`Attention`)."""

    __slots__ = (
        "_by_line", "_frames", "_infos", "_line", "_listener", "_noted", "_presses", "_reading", "_told",
        "_told_keys",
    )  # fmt: skip

    def __init__(self, line: Any) -> None:
        """`line`: a record of `pipeline.plane.rows.LINE`."""
        self._line, self._infos = line, line["heard_frames"]
        self._presses = DtmfDedup()
        samples = frame_samples(int(line["rate_hz"]))
        self._frames: Frames = line["heard"][: HEARD * samples].reshape(HEARD, samples)
        self._told, self._told_keys = int(line["frames"]), int(line["presses"])
        self._listener: LegListener | None = None
        self._by_line: LineListener | None = None  # the listener, if it takes many frames at once
        self._noted = 0  # of the frame told last
        self._reading = False

    @property
    def position(self) -> int:
        """Where the next frame is on the far end's media clock; 0 before the first."""
        frames = int(self._line["frames"])
        if not frames:
            return 0
        samples: int = self._frames.shape[1]
        return int(self._infos[(frames - 1) % HEARD]["position"]) + samples

    @property
    def listener(self) -> LegListener | None:
        """The listener; None: frames are dropped."""
        return self._listener

    @listener.setter
    def listener(self, listener: LegListener | None) -> None:
        if self._by_line is not None:
            self.catch_up()
            self._by_line.line_connected(None)
        self._rest()
        self._noted = 0
        self._listener = listener
        self._by_line = listener if isinstance(listener, LineListener) else None
        self._told, self._told_keys = int(self._line["frames"]), int(self._line["presses"])
        self._line["listening"] = listener is not None
        if self._by_line is not None:
            self._by_line.line_connected(self)

    def pass_on(self, frames: int, keys: int, now: float) -> None:
        """Passes on what there is up to frame number `frames` and key number `keys`. Of what a loop that
        stood still has missed, the last second is passed on; the rest is a hole in the positions."""
        newest = max(frames, int(self._line["frames"]))  # the plane goes on while its events wait
        self._told = max(self._told, newest - HEARD + SPARE)
        before, self._reading = self._reading, True
        try:
            while self._told < frames:
                if self._told_keys < keys:
                    self._press_before(self._told, keys, now)
                self._hand_on(min(frames, self._next_key(keys)))
        finally:
            self._reading = before
        if self._told_keys < keys:
            self._press_before(frames, keys, now)

    def catch_up(self) -> None:
        """Passes on the silence that has come since frames were passed on; nothing from within a listener."""
        frames = int(self._line["frames"])
        if frames == self._told or self._reading or self._by_line is None or self._noted & _ACTIVE:
            return
        quiet = self._told = max(self._told, frames - HEARD + SPARE)
        if self._told_keys == int(self._line["presses"]):
            while quiet < frames and self._infos[quiet % HEARD]["note"] & _LOOKED_AT == _JUDGED:
                quiet += 1
        self._reading = True
        try:
            while self._told < quiet:
                self._hand_on(quiet)
        finally:
            self._reading = False

    def _hand_on(self, end: int) -> None:
        """Passes on what lies in one piece of the ring, up to frame number `end`."""
        first = self._told % HEARD
        last = min(first + end - self._told, HEARD)
        told = self._infos[first:last].tolist()
        self._told += last - first
        if not told:
            return
        self._noted = told[-1][3]
        if self._by_line is not None:
            self._by_line.frames_received(self._frames[first:last], told)
            return
        listener = self._listener
        for frame, (position, arrived_ns, made_up, _, _) in zip(self._frames[first:last], told, strict=True):
            if listener is None or listener is not self._listener:
                return
            listener.audio_received(frame, position, arrived_ns / _NS, concealed=bool(made_up))

    # What a conversation asks (`Attention`) ---------------------------------------------------------------

    def follow(self) -> None:
        """Begins the echo gate of a conversation (`Attention`)."""
        line = self._line
        with held(line["owner"]):
            for name in ("echo_far", "echo_near", "echo_weights", "echo"):  # the others once the agent speaks
                line[name] = 0.0
            line["echo"][kernels.ECHO_LOCKED] = -1.0
            line["echo"][kernels.ECHO_QUIET] = kernels.ECHO_HANG
            line["echo_next_played"] = line["echo_next_heard"] = 0
            line["echo_played_ns"] = _LONG_AGO_NS
            line["follows"] = 1

    def detect(self, settings: VadSettings) -> None:
        """Detects voice in the frames from now on (`Attention`)."""
        line = self._line
        with held(line["owner"]):
            begin_energy_vad(line["voice"], line["voice_bands"], int(line["rate_hz"]), settings)
            line["noted"] = line["masked_until"] = 0
            line["alert_below"] = ANY
            line["detects"] = 1

    def attend(self, frames: int, below_dbov: float = ANY) -> None:
        """Sets after how much silence, and below which level of a voice, Python is told (`Attention`)."""
        self._line["beat"], self._line["alert_below"] = frames, below_dbov

    def mask(self, until: int) -> None:
        """Looks for no voice before the position `until` (`Attention`)."""
        self._line["masked_until"] = until

    def _rest(self) -> None:
        """Detects nothing: each frame is told."""
        line = self._line
        line["detects"] = line["follows"] = line["beat"] = 0

    # Keys ---------------------------------------------------------------------------------------------------

    def _next_key(self, keys: int) -> int:
        """The number of the frame before which the next key was pressed."""
        if self._told_keys >= keys:
            return _NEVER
        return max(self._told + 1, int(self._line["pressed"][self._told_keys % PRESSES]["frame"]))

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
