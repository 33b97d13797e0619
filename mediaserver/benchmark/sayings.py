"""What the caller says: WAV files, or sentences by the voice that comes with the server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from mediaserver.errors import LocalError
from pipeline.audio import FRAME_MS, Pcm, frame_samples, wav
from pipeline.audio.resample import resample
from pipeline.audio.vad import EnergyVad
from pipeline.tts.espeak import Espeak, EspeakSettings

SENTENCES: Final = (
    "Hello, I would like to ask you something.",
    "Could you tell me when you are open on Saturday?",
    "I am not sure that I understood you, could you say that again please?",
    "And what does it cost if I come on Monday morning?",
    "Wait a moment please, I have one more question about my appointment.",
    "All right, thank you very much.",
)
LONGEST_S: Final = 30.0
"""Of a file: nobody asks a telephone anything that takes longer."""

VOICE: Final = "en-us+f3"
"""Not that of an agent that speaks by espeak-ng: its words would be taken for our own come back."""

_LEAD_FRAMES: Final = 25
_FADE_MS: Final = 10


class NoSpeech(LocalError):
    """A file, or the voice, has nothing that can be said; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Speech at the rate that it was recorded at."""

    name: str
    samples: Pcm
    rate_hz: int


@dataclass(frozen=True, slots=True)
class Saying:
    """What is said in one turn: `frames` of 20 ms at the line's rate, whose `first` and `last` are the first
    and the last with voice. Nothing of the recording is left out."""

    name: str
    frames: npt.NDArray[np.int16]
    first: int
    last: int

    @property
    def samples(self) -> Pcm:
        """The sentence as one array of int16 samples."""
        return self.frames.reshape(-1)

    @property
    def voice_ms(self) -> int:
        """From the first voiced frame to the last."""
        return (self.last - self.first + 1) * FRAME_MS


def recorded(path: Path) -> Recorded:
    """The speech in a WAV file. Raises `NoSpeech`."""
    try:
        samples, rate_hz = wav.read(path)
    except OSError as error:
        raise NoSpeech(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except wav.WavError as error:
        raise NoSpeech(f"{path}: {error}") from None
    if len(samples) > LONGEST_S * rate_hz:
        raise NoSpeech(f"{path}: {len(samples) / rate_hz:.0f} s, longer than {LONGEST_S:.0f}")
    return Recorded(str(path), samples, rate_hz)


async def synthesised(texts: Iterable[str] = SENTENCES) -> list[Recorded]:
    """`texts` by espeak-ng. Raises `pipeline.errors.EngineError`."""
    voice = Espeak(EspeakSettings(voice=VOICE))
    await voice.start()
    try:
        return [Recorded(text, await _spoken(voice, text), voice.rate_hz) for text in texts]
    finally:
        await voice.close()


async def _spoken(voice: Espeak, text: str) -> Pcm:
    samples: Pcm = np.concatenate([chunk.samples async for chunk in voice.speak(text, language="en")])
    return samples


def sayings(speech: Sequence[Recorded], rate_hz: int) -> list[Saying]:
    """`speech` for a line of `rate_hz`. Raises `NoSpeech` for what has no voice in it."""
    return [_saying(each, rate_hz) for each in speech]


def _saying(speech: Recorded, rate_hz: int) -> Saying:
    """The last 10 ms die away: a wave that is cut off rings on in any detector's filters."""
    try:
        samples = resample(speech.samples, speech.rate_hz, rate_hz).copy()
    except ValueError as error:
        raise NoSpeech(f"{speech.name}: {error}") from None
    fade = min(len(samples), rate_hz * _FADE_MS // 1000)
    if fade:
        samples[-fade:] = (samples[-fade:] * np.linspace(1, 0, fade)).astype(np.int16)
    size = frame_samples(rate_hz)
    frames = np.concatenate([samples, np.zeros(-len(samples) % size, np.int16)]).reshape(-1, size)
    voiced = voiced_frames(frames, rate_hz)
    if not len(voiced):
        raise NoSpeech(f"{speech.name}: there is no voice in it")
    return Saying(speech.name, frames, int(voiced[0]), int(voiced[-1]))


def voiced_frames(frames: npt.NDArray[np.int16], rate_hz: int) -> npt.NDArray[np.intp]:
    """The numbers of the frames with voice, of a line that was silent before."""
    vad = EnergyVad(rate_hz)
    for _ in range(_LEAD_FRAMES):
        vad.push(np.zeros(frames.shape[1], np.int16))
    return np.flatnonzero([vad.push(frame).voiced for frame in frames])
