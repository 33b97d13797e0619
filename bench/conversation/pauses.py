"""Turns with the positions at which their callers pause: read from the files in `turns/`, and spoken.

A pause is cut into a whole sentence, so that the melody before it is that of a speaker who goes on."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import numpy as np

from bench.conversation.sounds import FLITE, RATE_HZ, Sound, TruthWord, espeak, flite
from pipeline.endpointing.policy import TurnEvidence

TURNS: Final = Path(__file__).parent.parent / "turns"
SILENCE_MS: Final = 200
"""Milliseconds of silence after which the scorer is called."""


class Place(Enum):
    """Where a speaker pauses, by the words so far."""

    INSIDE = "/"  # no complete turn
    CLAUSE = "|"  # a complete turn, in the middle of a sentence
    SENTENCE = "||"  # a complete sentence, spoken as one: another follows


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn. `asked`: the agent's last words. `pauses`: after how many of the words, and the kind of
    place."""

    asked: str
    words: tuple[str, ...]
    pauses: tuple[tuple[int, Place], ...]

    @property
    def text(self) -> str:
        """The words of the turn."""
        return " ".join(self.words)

    def sentences(self) -> list[str]:
        """Returns the text in pieces that are spoken one by one."""
        ends = [at for at, place in self.pauses if place is Place.SENTENCE]
        pieces = zip([0, *ends], [*ends, len(self.words)], strict=True)
        return [" ".join(self.words[start:end]) for start, end in pieces]


def read(name: str) -> list[Turn]:
    """Returns the turns of a file in `turns/`, in its order."""
    lines = (TURNS / name).read_text(encoding="utf-8").splitlines()
    return [_turn(line) for line in lines if line and not line.startswith("#")]


def _turn(line: str) -> Turn:
    asked, _, said = line.rpartition(" > ")
    marks = {place.value: place for place in Place}
    words: list[str] = []
    pauses = []
    for token in said.split():
        if token in marks:
            pauses.append((len(words), marks[token]))
        else:
            words.append(token)
    return Turn(asked, tuple(words), tuple(pauses))


@dataclass(frozen=True, slots=True)
class Voice:
    """One voice. `wpm`: words a minute; 0 for a voice of flite, whose speed is fixed."""

    name: str
    wpm: int = 0

    @property
    def is_there(self) -> bool:
        """Whether the voice's program is installed."""
        return bool(self.wpm) or shutil.which(FLITE) is not None


TUNING_VOICES: Final = (
    Voice("en-us", 165),
    Voice("en-gb", 150),
    Voice("en-us+f3", 180),
    Voice("en-us+m3", 200),
    Voice("slt"),
    Voice("kal16"),
)
"""The voices on which the scorer's weights were tuned."""

OTHER_VOICES: Final = (
    Voice("en-gb-scotland+f5", 170),
    Voice("en-gb-x-rp+m7", 160),
    Voice("en-029+f2", 150),
    Voice("en-gb-x-gbclan+m5", 185),
)
OTHER_PROGRAM: Final = (Voice("rms"), Voice("awb"))
"""Two voices of flite, whose melody hardly falls at the end."""

ARABIC_VOICES: Final = (Voice("ar", 150), Voice("ar+f2", 165))


@dataclass(frozen=True, slots=True)
class Moment:
    """A silence in a turn, or after it, with the evidence at that time. `place`: None at the end."""

    evidence: TurnEvidence
    place: Place | None


def moments(turns: Sequence[Turn], sounds: Sequence[Sound], language: str = "en") -> Iterator[Moment]:
    """Yields the pauses of each turn, then its end."""
    for turn, sound in zip(turns, sounds, strict=True):
        for at, place in turn.pauses:
            yield Moment(evidence(sound.cut(at)[0], turn.asked, language), place)
        yield Moment(evidence(sound, turn.asked, language), None)


def evidence(sound: Sound, asked: str, language: str = "en") -> TurnEvidence:
    """Returns the evidence `SILENCE_MS` after `sound`."""
    silence = np.zeros(SILENCE_MS * RATE_HZ // 1000, np.int16)
    return TurnEvidence(
        audio=np.concatenate((np.zeros(RATE_HZ, np.int16), sound.samples, silence)),
        rate_hz=RATE_HZ,
        words=" ".join(word.text for word in sound.words),
        asked=asked,
        silence_ms=SILENCE_MS,
        voiced_ms=round(sound.seconds * 1000),
        language=language,
    )


def speak(turns: Sequence[Turn], voices: Sequence[Voice], language: str = "en") -> list[Sound]:
    """Speaks each turn in one of the voices, in rotation, without those that are not installed."""
    there = [voice for voice in voices if voice.is_there]
    jobs = [
        (piece, there[number % len(there)]) for number, turn in enumerate(turns) for piece in turn.sentences()
    ]
    said = iter(_spoken(jobs, language))
    return [_joined([next(said) for _ in turn.sentences()], turn) for turn in turns]


def _spoken(jobs: Sequence[tuple[str, Voice]], language: str) -> list[Sound]:
    slow = iter(asyncio.run(espeak([(text, v.name, v.wpm) for text, v in jobs if v.wpm], language)))
    return [next(slow) if voice.wpm else flite(text, voice.name) for text, voice in jobs]


def _joined(sounds: Sequence[Sound], turn: Turn) -> Sound:
    """Joins sentences, with the words as they are written."""
    whole = sounds[0]
    for sound in sounds[1:]:
        whole = whole.then(0.0, sound)
    if len(whole.words) != len(turn.words):
        raise ValueError(f"{turn.text!r}: the voice has {len(whole.words)} words")
    words = (
        TruthWord(text.strip(".,?!؟").lower(), word.start_s, word.end_s)
        for text, word in zip(turn.words, whole.words, strict=True)
    )
    return Sound(whole.samples, tuple(words))
