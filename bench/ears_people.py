"""`python -m bench ears-people FOLDER`: the embedded recogniser and people whom nothing was fitted to.

FOLDER holds the unpacked Debian packages ktuberling-data, hedgewars-data, tuxpaint-stamps-default and
asterisk-core-sounds-{es,fr,it,ru}-wav: single words and short phrases of more than forty people in 25
languages, by volunteers with microphones of every kind. What they say is other words to every question, but
for English digits (two people) and names of animals (one person) that are answers too."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import av
import click
import numpy as np

from bench import report
from bench.ears import measure, tables
from bench.ears_corpus import DIGITS, RATE_HZ, Spoken, on_the_line, texts
from bench.ears_questions import KINDS, Question, expected
from pipeline.audio import Pcm, silence
from pipeline.engines.pocketsphinx import unheard
from pipeline.speech import Expected

SHORTEST_S: Final = 0.2
LONGEST_S: Final = 5.0
OF_A_VOICE: Final = 3
LIST: Final = 10

_STAMPS: Final = "usr/share/tuxpaint/stamps"
_SOUNDS: Final = {
    "ktuberling": "usr/share/ktuberling/sounds/*/*",
    "hedgewars": "usr/share/games/hedgewars/Data/Sounds/voices/*/*.ogg",
    "asterisk": "usr/share/asterisk/sounds/[efir][!n]*/*.wav",
    "tuxpaint": f"{_STAMPS}/**/*_desc_??.ogg",
}
_NO_OTHER_WORDS: Final = re.compile(
    r"(^|[-_/ ])(yes|yessir|no|nooo|nope|ok|okay|si|one|two|three|beep|tone|silence|hmm|laugh|kamikaze)", re.I
)
_LANGUAGE: Final = re.compile(r"_desc_(..)\.ogg$")


def sound(path: Path) -> Pcm:
    """A file at 16 kHz, in one channel."""
    pieces = []
    with av.open(str(path), metadata_errors="ignore") as container:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE_HZ)
        for frame in (*container.decode(audio=0), None):
            pieces += [each.to_ndarray().reshape(-1) for each in resampler.resample(frame)]
    return np.concatenate(pieces).astype(np.int16) if pieces else np.empty(0, np.int16)


def spoken(path: Path, text: str = "") -> Spoken | None:
    """A file over the line; None where there is hardly a word in it, or too many."""
    try:
        samples = sound(path)
    except av.FFmpegError:
        return None
    if not SHORTEST_S * RATE_HZ < len(samples) < LONGEST_S * RATE_HZ or np.abs(samples).max() < 1000:
        return None
    return Spoken(path.name, "recorded", text, on_the_line(samples, RATE_HZ))


def other_words(folder: Path, dice: random.Random) -> Iterator[Spoken]:
    """Up to `OF_A_VOICE` files of each voice."""
    for source, pattern in _SOUNDS.items():
        voices: dict[str, list[Path]] = {}
        for path in sorted(folder.glob(f"*/{pattern}")):
            if not _NO_OTHER_WORDS.search(path.stem):
                language = _LANGUAGE.search(path.name)
                voices.setdefault(language[1] if language else path.parent.name, []).append(path)
        for paths in voices.values():
            dice.shuffle(paths)
            found = (each for each in map(spoken, paths) if each is not None)
            yield from (each for each, _ in zip(found, range(OF_A_VOICE), strict=False))
        click.echo(f"{source}: {len(voices)} voices", err=True)


def digits(folder: Path, dice: random.Random) -> Iterator[Spoken]:
    """Single digits and strings of two to five, by two people."""
    for voice in ("", "_en_GB"):
        paths = [next(folder.glob(f"*/{_STAMPS}/symbols/math/{digit}{voice}.ogg")) for digit in range(10)]
        said = [sound(path) for path in paths]
        strings = [[digit] for digit in range(10)]
        strings += [dice.choices(range(10), k=dice.randint(2, 5)) for _ in range(30)]
        for string in strings:
            gap = silence(RATE_HZ, dice.choice([20, 60, 100]))
            samples = np.concatenate([piece for digit in string for piece in (said[digit], gap)])
            text = " ".join(DIGITS[digit] for digit in string)
            yield Spoken(text, "recorded", text, on_the_line(samples, RATE_HZ))


def animals(folder: Path) -> Iterator[Spoken]:
    """Names of animals with their article, by one person."""
    for path in sorted(folder.glob(f"*/{_STAMPS}/animals/**/*_desc.ogg")):
        written = path.with_name(path.name.replace("_desc.ogg", ".txt"))
        text = written.read_text().splitlines()[0].lower().strip(" .") if written.is_file() else ""
        one = spoken(path, text) if text and not unheard([text]) else None
        if one is not None:
            yield one


def questions(folder: Path) -> Iterator[Question]:
    """Other words to every kind of question and to a list of ten; digits and animals where they answer."""
    dice = random.Random(21)
    words = sorted(set(texts().values()))
    for said in other_words(folder, dice):
        yield from (Question(kind, expected(kind), said, "") for kind in KINDS)
        yield Question("a list", Expected(tuple(dice.sample(words, LIST))), said, "")
    for said in digits(folder, dice):
        yield Question("digits", expected("digits"), said, said.text)
        yield Question("yes_no", expected("yes_no"), said, "")
    named = list(animals(folder))
    yield from _among(named, sorted({said.text for said in named}), dice)


def _among(named: Sequence[Spoken], pool: Sequence[str], dice: random.Random) -> Iterator[Question]:
    for said in named:
        others = [text for text in pool if text != said.text]
        for right in (said.text, ""):
            phrases = [*dice.sample(others, LIST - 1), right or dice.choice(others)]
            yield Question("a list", Expected(tuple(phrases)), said, right)
        yield from (Question(kind, expected(kind), said, "") for kind in KINDS)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(folder: Path) -> None:
    """Other words taken for answers, and answers refused, of people whom nothing was fitted to."""
    counts, _, _ = measure(questions(folder))
    others, answers = tables(counts)
    report.save("ears-people", {"others": others, "answers": answers})
