"""The corpus to fit and measure the embedded recogniser: recorded prompts and synthetic voices, over a
telephone line of 8 kHz.

The prompts are Debian's `asterisk-core-sounds-en-wav`: one person, 551 files, of which some are one word.
They are halved by their name: the even ones tune, the odd ones are reported. A digit string or a date is
joined from the files of its words. Synthetic answers are halved by voice and text in the same way."""

from __future__ import annotations

import hashlib
import itertools
import random
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bench.micro_whisper.corpus import MONTHS, ORDINALS, PHRASES
from bench.support.codecs import over_ulaw
from pipeline.audio import Pcm, silence
from pipeline.audio.resample import Resampler, resample
from pipeline.audio.wav import read
from pipeline.stt.sphinx.jsgf import yes_no
from pipeline.tts.espeak_library import EspeakLibrary, WordEvent

PROMPTS: Final = Path("/usr/share/asterisk/sounds/en_US_f_Allison")
LINE_HZ: Final = 8000
RATE_HZ: Final = 16000
STRINGS: Final = 60
FLITE_VOICES: Final = ("kal", "kal16", "slt", "rms", "awb")
ESPEAK: Final = "espeak"
TUNING_VOICES: Final = ((150, 40), (200, 65), (175, 30), (130, 55))
"""Words a minute and pitch of the espeak-ng voices that are used for tuning only."""

TUNING_TEXTS: Final = 45


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NUMBERS: Final = _split(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
DIGITS: Final = NUMBERS[:10]
TENS: Final = _split("twenty thirty forty fifty sixty seventy eighty ninety")
DAYS: Final = _split("sunday monday tuesday wednesday thursday friday saturday")
_AS_NAMED: Final = _split(
    "activated added cancelled disabled enabled extension for goodbye hello hours invalid is location "
    "lowercase minute minutes number removed second seconds sorry time transfer uppercase with your"
)
_OF_DIGITS: Final = _split(
    "today tomorrow yesterday star pound dollars oh hundred thousand million billion at minus"
)
_SPELLING: Final = _split(
    "alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo lima mike november oscar papa "
    "quebec romeo sierra tango uniform victor whiskey zulu"
)
_VOICE_MAIL: Final = _split(
    "goodbye and first last message messages no received Family Friends Work extension for from password "
    "minutes press"
)
_AS_SAID: Final = _split(
    "hello-world telephone-number one-moment-please do-not-disturb call-waiting call-forwarding "
    "please-try-again you-entered speed-dial is-in-use is-set-to"
)
_OTHERS: Final = {
    "digits/oclock": "o'clock",
    "digits/h-30": "thirtieth",
    "letters/o": "oh",
    "im-sorry": "i'm sorry",
    "vm-deleted": "message deleted",
    "vm-sorry": "i'm sorry",
    "vm-youhave": "you have",
}

ASIDES: Final = (
    "hello there",
    "what is this about",
    "who are you",
    "the weather is nice today",
    "call me back later",
    "hold on a second",
    "i do not know",
    "what did you say",
    "my dog is barking",
    "is this a robot",
    "good morning",
    "maybe",
    "never mind",
    "hello",
    "what",
    "who is this",
    "wait a moment",
    "excuse me",
    "i am busy",
)
"""Utterances that answer no question of a grammar."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """One utterance. `samples`: at 8 kHz, over the line. `text`: "" where it is not known. `voice`:
    "recorded" or a synthetic one. `name`: decides the half."""

    name: str
    voice: str
    text: str
    samples: Pcm

    @property
    def tunes(self) -> bool:
        """Whether the utterance is in the half that tunes."""
        return int(hashlib.sha1(self.name.encode()).hexdigest(), 16) % 2 == 0


def on_the_line(samples: Pcm, rate_hz: int, *, after_ms: int = 500) -> Pcm:
    """Returns `samples` as a telephone delivers them: 8 kHz, µ-law, with pauses around."""
    heard = over_ulaw(resample(samples, rate_hz, LINE_HZ))
    return np.concatenate([silence(LINE_HZ, 300), heard, silence(LINE_HZ, after_ms)])


def prompt(name: str) -> Pcm:
    """Returns a recording of Debian's announcer, over the line."""
    return on_the_line(*read(PROMPTS / f"{name}.wav"))


def widened(samples: Pcm) -> Pcm:
    """Resamples a line's samples to 16 kHz, as for a recogniser of that rate."""
    return Resampler(LINE_HZ, RATE_HZ)(samples)


def flite(text: str, voice: str) -> Pcm:
    """Speaks `text` at 16 kHz."""
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        subprocess.run(("flite", "-voice", voice, "-t", text, "-o", file.name), check=True)
        samples, rate_hz = read(file.name)
    return resample(samples, rate_hz, RATE_HZ)


def espeak(library: EspeakLibrary, text: str, rate_wpm: int = 175, pitch: int = 50) -> Pcm:
    """Speaks `text` at 16 kHz."""
    sound = bytearray()

    def keep(samples: bytes, words: list[WordEvent]) -> bool:
        sound.extend(samples)
        return False

    parameters = {"rate_wpm": rate_wpm, "pitch": pitch, "volume": 100}
    library.speak(text, keep, voice="en-us", parameters=parameters)
    return resample(np.frombuffer(bytes(sound), np.int16), library.rate_hz, RATE_HZ)


def texts() -> dict[str, str]:
    """Returns the texts of short prompts by name."""
    named = {
        **{f"digits/{number}": word for number, word in enumerate(NUMBERS)},
        **{f"digits/{20 + 10 * number}": word for number, word in enumerate(TENS)},
        **{f"digits/h-{number}": word for number, word in enumerate(ORDINALS[:20], 1)},
        **{f"digits/mon-{number}": word for number, word in enumerate(MONTHS)},
        **{f"digits/day-{number}": word for number, word in enumerate(DAYS)},
        **{f"digits/{word}": word for word in _OF_DIGITS},
        **{word: word for word in _AS_NAMED},
        **{f"phonetic/{word[0]}_p": word for word in _SPELLING},
        **{f"vm-{word}": word.lower() for word in _VOICE_MAIL},
        **{name: name.replace("-", " ") for name in _AS_SAID},
    }
    return named | _OTHERS


def prompts() -> list[Spoken]:
    """Returns every file that contains words."""
    known = texts()
    found = []
    for path in sorted(PROMPTS.rglob("*.wav")):
        name = path.relative_to(PROMPTS).with_suffix("").as_posix()
        if any(part in name for part in ("silence/", "tone", "beep", "monkeys")):
            continue
        samples, rate_hz = read(path)
        found.append(Spoken(path.name, "recorded", known.get(name, ""), on_the_line(samples, rate_hz)))
    return found


def joined(names: Sequence[str], gap_ms: int) -> Pcm:
    """Joins several prompts, over the line."""
    pieces: list[Pcm] = []
    for name in names:
        samples, rate_hz = read(PROMPTS / f"{name}.wav")
        pieces += [resample(samples, rate_hz, LINE_HZ), silence(LINE_HZ, gap_ms)]
    return on_the_line(np.concatenate(pieces), LINE_HZ)


def digit_strings() -> Iterator[Spoken]:
    """Yields numbers of 4 to 10 recorded digits."""
    dice = random.Random(5)
    for _ in range(STRINGS):
        digits = [dice.randrange(10) for _ in range(dice.choice([4, 5, 7, 10]))]
        text = " ".join(DIGITS[digit] for digit in digits)
        samples = joined([f"digits/{digit}" for digit in digits], dice.choice([0, 40, 80, 160]))
        yield Spoken(text, "recorded", text, samples)


def dates() -> Iterator[Spoken]:
    """Yields recorded months with days."""
    dice = random.Random(6)
    for _ in range(STRINGS):
        month, day = dice.randrange(12), dice.randrange(20)
        text = f"{MONTHS[month]} {ORDINALS[day]}"
        samples = joined([f"digits/mon-{month}", f"digits/h-{day + 1}"], dice.choice([0, 40, 80]))
        yield Spoken(text, "recorded", text, samples)


def synthetic() -> Iterator[Spoken]:
    """Yields answers and asides by flite's voices and espeak-ng."""
    library = EspeakLibrary()
    every = sorted({*yes_no(), *PHRASES, *ASIDES})
    for voice, text in itertools.product((*FLITE_VOICES, ESPEAK), every):
        samples = espeak(library, text) if voice == ESPEAK else flite(text, voice)
        yield Spoken(f"{voice}: {text}", voice, text, on_the_line(samples, RATE_HZ))


def variants() -> Iterator[Spoken]:
    """Yields answers, asides, digits and dates by espeak-ng at other speeds and pitches, for tuning."""
    library, dice = EspeakLibrary(), random.Random(8)
    every = sorted({*yes_no(), *PHRASES, *ASIDES})
    for rate_wpm, pitch in TUNING_VOICES:
        said = dice.sample(every, TUNING_TEXTS)
        said += [" ".join(dice.choices(DIGITS, k=dice.choice([1, 2, 4, 5]))) for _ in range(8)]
        said += [f"{dice.choice(MONTHS)} {dice.choice(ORDINALS[:20])}" for _ in range(5)]
        for text in said:
            samples = on_the_line(espeak(library, text, rate_wpm, pitch), RATE_HZ)
            yield Spoken(f"{ESPEAK} {rate_wpm} {pitch}: {text}", ESPEAK, text, samples)
