"""The speech of scripted callers, with the exact time of every word.

All voices are synthetic: espeak-ng in several voices and at several speeds, and flite. The ground truth is
therefore exact; how people sound is not covered."""

from __future__ import annotations

import asyncio
import subprocess
import wave
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeline.audio import Pcm
from pipeline.audio.resample import resample
from pipeline.speech import SpokenWord
from pipeline.tts.espeak import Espeak, EspeakSettings

RATE_HZ: Final = 8000
VOICES: Final = (("en-us", 165), ("en-gb", 150), ("en-us+f3", 180), ("en-us+m3", 200), ("slt", 0))
"""The callers' voices with their speed in words a minute; 0 for a voice of flite, whose speed is fixed."""

FLITE: Final = "flite"
_SILENT_PHONE: Final = "pau"

AGENT_VOICE: Final = ("en-us+f2", 160)
SPEECH_DBOV: Final = -22.0
_LAST_SOUND_DB: Final = -30.0  # relative to the loudest 20 ms: softer frames are the room, not the voice
_READING: Final = (
    "Thank you for calling the service line, where we look after orders, deliveries and invoices for you. "
    "Your parcel left the warehouse early this morning and is expected at the front door before the evening. "
    "The driver carries a small telephone and will ring you shortly before arriving at the given address. "
    "Please keep some form of identity ready, because several items in the shipment need your signature. "
    "Should nobody be present, a neighbour may accept the package, or we bring everything back on Thursday. "
    "Our office opens every weekday at seven and closes late, so there is always somebody to talk with. "
)


@dataclass(frozen=True, slots=True)
class TruthWord:
    """A word with its start and end, in seconds from the start of its sound."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Sound:
    """A sound of a caller. `samples` at 8 kHz, without surrounding silence. `confidence`: the most that the
    recogniser may have in the words."""

    samples: Pcm
    words: tuple[TruthWord, ...] = ()
    confidence: float = 0.95

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return self.samples.size / RATE_HZ

    def then(self, gap_s: float, other: Sound) -> Sound:
        """Returns this sound, a pause, and `other`."""
        at = self.seconds + gap_s
        gap = np.zeros(round(gap_s * RATE_HZ), np.int16)
        later = tuple(TruthWord(word.text, word.start_s + at, word.end_s + at) for word in other.words)
        return Sound(np.concatenate((self.samples, gap, other.samples)), (*self.words, *later))

    def cut(self, words: int) -> tuple[Sound, Sound]:
        """Returns the parts before and after the first `words`: a sentence that its speaker interrupts keeps
        the melody of one that goes on."""
        at_s = self.words[words].start_s
        at = round(at_s * RATE_HZ)
        first, second = self.samples[:at], self.samples[at:]
        spoken = slice(_bounds(first)[0], _bounds(first)[1])
        later = tuple(
            TruthWord(word.text, word.start_s - at_s, word.end_s - at_s) for word in self.words[words:]
        )
        return Sound(first[spoken], self.words[:words]), Sound(second, later)

    def quieter(self, by_db: float, *, confidence: float) -> Sound:
        """Returns the sound from a greater distance."""
        far = np.convolve(self.samples.astype(np.float64), np.hanning(7) / np.hanning(7).sum(), "same")
        return Sound(_pcm(far * 10 ** (-by_db / 20)), self.words, confidence)


class Phrasebook:
    """Every phrase in every voice, synthesised once: espeak-ng's at the start, flite's when used, since flite
    takes a process per word."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self._texts = frozenset(phrases)
        wanted = [(text, *voice) for voice in VOICES if voice[1] for text in sorted(self._texts)]
        said = asyncio.run(espeak(wanted))
        self._sounds = {(text, name): sound for (text, name, _), sound in zip(wanted, said, strict=True)}

    def __call__(self, text: str, voice: int) -> Sound:
        """Returns `text` in one of the voices. Raises KeyError for a text that is not among the phrases."""
        key = text, VOICES[voice % len(VOICES)][0]
        if key not in self._sounds and text in self._texts:
            self._sounds[key] = flite(*key)
        return self._sounds[key]


_read: list[Sound] = []


def reading() -> Sound:
    """Returns a minute of the agent's voice."""
    if not _read:
        adopt(asyncio.run(espeak([(_READING, *AGENT_VOICE)]))[0])
    return _read[0]


def adopt(read: Sound) -> None:
    """Uses the reading of another process: some of espeak-ng's voices contain random noise, so that two
    processes never synthesise quite the same."""
    _read[:] = [read]


def agent_words(text: str) -> Sound:
    """Returns the stub voice's speech of `text`: as many words of the reading, from a place that depends on
    the text. It takes no time to synthesise, and every word's time is known."""
    spoken = reading().words
    wanted = text.split()
    start = sum(map(ord, text)) % max(1, len(spoken) - 60)
    samples: list[Pcm] = []
    words: list[TruthWord] = []
    at = 0
    for place, word in enumerate(wanted):
        index = (start + place) % (len(spoken) - 1)
        first = round(spoken[index].start_s * RATE_HZ)
        last = round(spoken[index + 1].start_s * RATE_HZ)
        piece = reading().samples[first : min(last, first + RATE_HZ // 2)]
        words.append(TruthWord(word, at / RATE_HZ, (at + piece.size) / RATE_HZ))
        samples.append(piece)
        at += piece.size
    return Sound(np.concatenate(samples) if samples else np.zeros(0, np.int16), tuple(words))


async def espeak(wanted: Sequence[tuple[str, str, int]], language: str = "en") -> list[Sound]:
    """Speaks each text in a voice at a speed."""
    sounds: list[Sound] = []
    engines: dict[tuple[str, int], Espeak] = {}
    try:
        for text, voice, wpm in wanted:
            engine = engines.get((voice, wpm))
            if engine is None:
                engine = engines[voice, wpm] = Espeak(EspeakSettings(voice=voice, rate_wpm=wpm))
                await engine.start()
            sounds.append(await _say(engine, text, language))
    finally:
        for engine in engines.values():
            await engine.close()
    return sounds


async def _say(engine: Espeak, text: str, language: str) -> Sound:
    pieces: list[Pcm] = []
    places: list[SpokenWord] = []
    async with aclosing(engine.speak(text, language=language)) as chunks:
        async for chunk in chunks:
            pieces.append(chunk.samples)
            places += chunk.words
    ratio = 1 / engine.rate_hz
    words = [TruthWord(place.text, place.start * ratio, place.end * ratio) for place in places]
    whole = resample(np.concatenate(pieces), engine.rate_hz, RATE_HZ)
    return trimmed(at_level(whole, SPEECH_DBOV), words)


def flite(text: str, voice: str) -> Sound:
    """Speaks a text in a voice of flite, which reports phones but not words: the phones of the first n words
    are as many as those words have by themselves."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "said.wav"
        phones = _phones(text, voice, str(path))
        with wave.open(str(path)) as file:
            rate_hz, frames = file.getframerate(), file.readframes(file.getnframes())
    samples = resample(np.frombuffer(frames, np.int16), rate_hz, RATE_HZ)
    spoken = text.split()
    counts = [len(_phones(" ".join(spoken[:count]), voice, "none")) for count in range(1, len(spoken))]
    ends = [phones[min(count, len(phones)) - 1] for count in (*counts, len(phones))]
    starts = [0.0, *ends[:-1]]
    return trimmed(at_level(samples, SPEECH_DBOV), [*map(TruthWord, spoken, starts, ends)])


def _phones(text: str, voice: str, path: str) -> list[float]:
    """Returns the end of each phone in seconds, without silences."""
    command = [FLITE, "-voice", voice, "-psdur", "-t", text + " ", "-o", path]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    pairs = (each.rsplit(":", 1) for each in told.split())
    return [float(end) for phone, end in pairs if phone != _SILENT_PHONE]


def trimmed(whole: Pcm, words: Sequence[TruthWord]) -> Sound:
    """Trims from the first sound to the last."""
    first, last = _bounds(whole)
    samples, shift = whole[first:last], first / RATE_HZ
    placed = (
        _placed(word.text, samples, max(0.0, word.start_s - shift), word.end_s - shift) for word in words
    )
    return Sound(samples, tuple(placed))


def _placed(text: str, samples: Pcm, start_s: float, end_s: float) -> TruthWord:
    """Returns the word with the end of its sound: the engine counts the pause at a comma as part of the word
    before."""
    piece = samples[round(start_s * RATE_HZ) : round(end_s * RATE_HZ)]
    end_s = start_s + (_bounds(piece)[1] / RATE_HZ if piece[: piece.size // 80 * 80].any() else 0.0)
    return TruthWord(text.strip(".,?!").lower(), start_s, end_s)


def _bounds(samples: Pcm) -> tuple[int, int]:
    """Returns the first and the last 10 ms with a voice."""
    n = RATE_HZ // 100
    frames = samples[: samples.size // n * n].reshape(-1, n).astype(np.float64)
    power = (frames**2).mean(axis=1)
    loud = np.flatnonzero(power > power.max() * 10 ** (_LAST_SOUND_DB / 10))
    return int(loud[0]) * n, int(loud[-1] + 1) * n


def at_level(wave: npt.ArrayLike, dbov: float) -> Pcm:
    """Scales `wave` to `dbov`, RMS without silence."""
    values = np.asarray(wave, np.float64)
    loud = values[np.abs(values) > np.abs(values).max() * 0.02]
    return _pcm(values * (32768 * 10 ** (dbov / 20) / np.sqrt((loud**2).mean())))


def _pcm(wave: npt.ArrayLike) -> Pcm:
    return np.clip(np.round(np.asarray(wave)), -32768, 32767).astype(np.int16)
