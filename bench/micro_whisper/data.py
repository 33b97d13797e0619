"""Synthesises training speech: espeak-ng in many voices, flite where it is installed, over noise and a
telephone line. 2.5 ms of CPU an utterance; 24,000 utterances were used."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from bench.micro_whisper.corpus import sentence, spoken
from bench.micro_whisper.extras import LazyModule
from pipeline.audio.wav import read
from pipeline.tts.espeak_library import EspeakLibrary, WordEvent

signal: Any = LazyModule("scipy.signal")
soxr: Any = LazyModule("soxr")
features: Any = LazyModule("faster_whisper.feature_extractor")

Floats = npt.NDArray[np.float32]

RATE_HZ = 16000
LONGEST_S = 9.0
_VARIANT_NAMES = (
    "+m1 +m2 +m3 +m4 +m6 +m7 +f1 +f2 +f4 +f5 +Alex +Andy +Annie +Lee +Mike +adam +anika +david +edward +ian "
    "+john +linda +michael +steph +klatt +klatt3 +Michael +rob +max"
)
VARIANTS = ("", *_VARIANT_NAMES.split())
"""espeak-ng voices for training; +f3 and +klatt2 are reserved for measuring."""

ACCENTS = ("en-us", "en-us", "en-us", "en-gb", "en-gb-scotland", "en-029")
FLITE_VOICES = ("kal16", "awb", "rms", "rms", "kal")
"""flite voices for training; slt is reserved for measuring."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """Speech at 16 kHz (-1 to 1), with start and end of the words in seconds."""

    text: str
    samples: Floats
    start_s: float
    end_s: float


class Voices:
    """The voices installed on this machine."""

    def __init__(self) -> None:
        self._library = EspeakLibrary()
        self.has_flite = shutil.which("flite") is not None

    def espeak(self, text: str, *, voice: str, rate_wpm: int = 175, pitch: int = 50) -> Floats:
        """Speaks `text` at 16 kHz."""
        sound = bytearray()

        def keep(samples: bytes, words: list[WordEvent]) -> bool:
            sound.extend(samples)
            return False

        parameters = {"rate_wpm": rate_wpm, "pitch": pitch, "volume": 100}
        self._library.speak(text, keep, voice=voice, parameters=parameters)
        samples = np.frombuffer(bytes(sound), "<i2").astype(np.float32) / np.float32(32768)
        return _resampled(samples, self._library.rate_hz)

    def flite(self, text: str, *, voice: str) -> Floats:
        """Speaks `text` at 16 kHz."""
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            subprocess.run(("flite", "-voice", voice, "-t", text, "-o", file.name), check=True)
            samples, rate_hz = read(file.name)
        return _resampled(samples.astype(np.float32) / np.float32(32768), rate_hz)


def utterance(voices: Voices, rng: random.Random, noise: np.random.Generator) -> Utterance:
    """Makes one utterance with random voice, level, pace and line; one in 25 is noise without words."""
    if rng.random() < 0.04:
        level = 10 ** rng.uniform(-5, -1.5)
        hiss = noise.standard_normal(int(rng.uniform(0.6, 4) * RATE_HZ)).astype(np.float32) * level
        return Utterance("", _spoiled(hiss, rng, noise), 0.0, 0.0)
    text = sentence(rng)
    speech = _trimmed(_voice(voices, text, rng))
    lead, tail = rng.uniform(0.02, 0.5), rng.uniform(0.05, 0.6)
    samples = np.pad(speech, (int(lead * RATE_HZ), int(tail * RATE_HZ))) * 10 ** (rng.uniform(-18, 0) / 20)
    end = lead + len(speech) / RATE_HZ
    return Utterance(text, _spoiled(samples.astype(np.float32), rng, noise), lead, end)


def over_the_line(samples: Floats, *, band: bool = True) -> Floats:
    """Applies a telephone line: 8 kHz, 300 to 3400 Hz if `band`, µ-law."""
    narrow = soxr.resample(samples, RATE_HZ, RATE_HZ // 2)
    if band:
        sections = signal.butter(4, [300, 3400], btype="band", fs=RATE_HZ // 2, output="sos")
        narrow = signal.sosfilt(sections, narrow)
    pressed = np.sign(narrow) * np.log1p(255 * np.abs(np.clip(narrow, -1, 1))) / np.log1p(255)
    coded = np.round((pressed + 1) / 2 * 255) / 255 * 2 - 1
    back = np.sign(coded) * np.expm1(np.abs(coded) * np.log1p(255)) / 255
    return _resampled(back.astype(np.float32), RATE_HZ // 2)


def noisy(samples: Floats, snr_db: float, noise: Floats) -> Floats:
    """Adds `noise` of unit power at `snr_db` below the speech."""
    peak = np.abs(samples).max(initial=0.0)
    loud = samples[np.abs(samples) > 0.01 * peak + 1e-6]
    power = float(np.mean(loud**2)) if len(loud) else 1e-4
    louder: Floats = (samples + noise * np.sqrt(power / 10 ** (snr_db / 10))).astype(np.float32)
    return louder


def shard(voices: Voices, *, seed: int, count: int, path: Path) -> int:
    """Writes the features and texts of `count` utterances to an .npz; returns their number."""
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    extractor = features.FeatureExtractor()
    mels: list[npt.NDArray[np.float16]] = []
    kept: list[Utterance] = []
    while len(kept) < count:
        made = utterance(voices, rng, noise)
        if len(made.samples) <= LONGEST_S * RATE_HZ:
            mels.append(extractor(made.samples).astype(np.float16))
            kept.append(made)
    np.savez(
        path,
        lengths=np.array([mel.shape[1] for mel in mels]),
        features=np.concatenate(mels, 1),
        texts=json.dumps([made.text for made in kept]),
        spans=np.array([(made.start_s, made.end_s) for made in kept]),
    )
    return len(kept)


def _voice(voices: Voices, text: str, rng: random.Random) -> Floats:
    if voices.has_flite and rng.random() < 0.2:
        return _paced(voices.flite(text, voice=rng.choice(FLITE_VOICES)), rng.uniform(0.78, 1.32))
    voice = rng.choice(ACCENTS) + rng.choice(VARIANTS)
    rate_wpm, pitch = rng.randint(125, 250), rng.randint(20, 80)
    speech = voices.espeak(spoken(text, rng), voice=voice, rate_wpm=rate_wpm, pitch=pitch)
    return _paced(speech, rng.uniform(0.9, 1.1)) if rng.random() < 0.5 else speech


def _spoiled(samples: Floats, rng: random.Random, noise: np.random.Generator) -> Floats:
    """Adds noise to three of four, half of it coloured; a telephone line to every second."""
    if rng.random() < 0.75:
        hiss = noise.standard_normal(len(samples)).astype(np.float32)
        if rng.random() < 0.5:
            hiss = signal.lfilter([1], [1, -rng.uniform(0.5, 0.97)], hiss).astype(np.float32)
        samples = noisy(samples, rng.uniform(8, 40), hiss / (np.sqrt(np.mean(hiss**2)) + 1e-9))
    return over_the_line(samples, band=rng.random() < 0.8) if rng.random() < 0.5 else samples


def _trimmed(samples: Floats) -> Floats:
    loud = np.flatnonzero(np.abs(samples) > 0.003)
    return samples[loud[0] : loud[-1] + 1] if len(loud) else samples


def _paced(samples: Floats, factor: float) -> Floats:
    paced: Floats = soxr.resample(samples, RATE_HZ, int(RATE_HZ / factor))
    return paced


def _resampled(samples: Floats, rate_hz: int) -> Floats:
    same: Floats = samples if rate_hz == RATE_HZ else soxr.resample(samples, rate_hz, RATE_HZ)
    return same


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="folder of shards"
)
@click.option("--shards", default=40, show_default=True, help="files to write")
@click.option("--count", default=1000, show_default=True, help="utterances a file")
@click.option("--first", default=0, show_default=True, help="seed of the first file")
def main(*, out: Path, shards: int, count: int, first: int) -> None:
    """Synthesises training speech."""
    out.mkdir(parents=True, exist_ok=True)
    voices = Voices()
    if not voices.has_flite:
        click.echo("flite is not installed: its voices are left out")
    for seed in range(first, first + shards):
        path = out / f"shard{seed}.npz"
        click.echo(f"{path}: {shard(voices, seed=seed, count=count, path=path)} utterances")
