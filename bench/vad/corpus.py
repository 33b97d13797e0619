"""Recorded people on a telephone line, with the places of their voice, and sounds without a voice.

People: Debian's `asterisk-core-sounds-en-wav`, one announcer, and single words of a second person from
`ktuberling-data`. Where a recording has voice is decided by its level before noise is added: stretches within
`BELOW_DB` of its loudest 10 ms."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.conversation.noises import babble, steady
from bench.conversation.sounds import at_level
from bench.embedded_stt.corpus import LINE_HZ, PROMPTS
from bench.people.corpus import ANNOUNCER, PLAYER, WORDS, decoded
from bench.support.codecs import over_ulaw
from pipeline.audio import Pcm
from pipeline.audio.resample import resample
from pipeline.audio.wav import read

VOICE_DBOV: Final = -22.0
BELOW_DB: Final = 30.0
STEP_MS: Final = 10
GAP_MS: Final = 200
"""A pause within a stretch of voice is shorter."""

LEAST_MS: Final = 60
BEFORE_S: Final = 2.0
AFTER_S: Final = 1.0
LONGEST_S: Final = 12.0

NOISES: Final = {
    "quiet line": None,
    "noise 20 dB below": ("steady", 20.0),
    "noise 10 dB below": ("steady", 10.0),
    "noise 5 dB below": ("steady", 5.0),
    "babble 20 dB below": ("babble", 20.0),
    "babble 10 dB below": ("babble", 10.0),
}
"""Backgrounds by name: the kind of noise, and its level below the voice in dB."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording of one person at 8 kHz. `voice`: first and last position of each stretch of voice, in
    milliseconds."""

    name: str
    speaker: str
    samples: Pcm
    voice: tuple[tuple[int, int], ...]

    @property
    def tunes(self) -> bool:
        """Whether the recording is in the half that tunes: the SHA-1 of its name is even."""
        return int(hashlib.sha1(self.name.encode(), usedforsecurity=False).hexdigest(), 16) % 2 == 0

    def over(self, background: str) -> Pcm:
        """Returns the recording over µ-law with `background`, a name of `NOISES`, from its beginning to its
        end. The noise of a recording is the same for every detector."""
        noise = NOISES[background]
        if noise is None:
            return on_line(self.samples)
        kind, below_db = noise
        rng = np.random.default_rng(int(hashlib.sha1(self.name.encode()).hexdigest()[:8], 16))
        make = steady if kind == "steady" else babble
        added = make(rng, self.samples.size / LINE_HZ + 0.1, VOICE_DBOV - below_db)[: self.samples.size]
        return on_line(self.samples.astype(np.int32) + added)


def recordings() -> Iterator[Recording]:
    """Yields all recordings with voice that are no longer than `LONGEST_S`."""
    for path in sorted(PROMPTS.rglob("*.wav")):
        samples, rate_hz = read(path)
        name = path.relative_to(PROMPTS).as_posix()
        yield from _recording(name, ANNOUNCER, resample(samples, rate_hz, LINE_HZ))
    for path in sorted(WORDS.glob("*.ogg")):
        samples, rate_hz = decoded(path)
        yield from _recording(path.name, PLAYER, resample(samples, rate_hz, LINE_HZ))


def _recording(name: str, speaker: str, samples: Pcm) -> Iterator[Recording]:
    if not samples.any() or samples.size > LONGEST_S * LINE_HZ or _no_person(name):
        return
    before, after = (np.zeros(int(each * LINE_HZ), np.int16) for each in (BEFORE_S, AFTER_S))
    whole = np.concatenate((before, at_level(samples, VOICE_DBOV), after))
    if voice := stretches(whole):
        yield Recording(name, speaker, whole, voice)


def _no_person(name: str) -> bool:
    return Path(name).parent.name == "silence" or "tone" in name or "beep" in name


def stretches(samples: Pcm) -> tuple[tuple[int, int], ...]:
    """Returns where `samples` (8 kHz, without noise) have voice: first and last millisecond of each
    stretch."""
    step = LINE_HZ * STEP_MS // 1000
    steps = samples[: samples.size // step * step].reshape(-1, step).astype(np.float64)
    level_db = 10 * np.log10((steps**2).mean(axis=1) + 1e-3)
    loud = np.flatnonzero(level_db > level_db.max() - BELOW_DB)
    found: list[tuple[int, int]] = []
    for place in loud.tolist():
        begins, ends = place * STEP_MS, (place + 1) * STEP_MS
        if found and begins - found[-1][1] < GAP_MS:
            found[-1] = found[-1][0], ends
        else:
            found.append((begins, ends))
    return tuple((begins, ends) for begins, ends in found if ends - begins >= LEAST_MS)


def on_line(samples: npt.ArrayLike) -> Pcm:
    """Returns `samples` after µ-law."""
    return over_ulaw(np.clip(np.asarray(samples), -32768, 32767).astype(np.int16))
