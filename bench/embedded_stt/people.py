"""Measures the embedded recogniser on people to whom nothing was fitted: `python -m bench embedded-stt-people
FOLDER`.

FOLDER holds the unpacked Debian packages ktuberling-data, hedgewars-data, tuxpaint-stamps-default,
klettres-data, alsa-utils and asterisk-core-sounds-{fr,it,ru}-wav, and the wheel spokennumbers of PyPI: single
words and short phrases of some sixty people in 25 languages, by volunteers with microphones of every kind.
They are halved by the SHA-1 of the person's name here: the even ones tune, the odd ones are reported. Their
words answer no question, except the digits of three voices and the English words of five."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import av
import click
import numpy as np

from bench import report
from bench.embedded_stt.__main__ import measure, tables
from bench.embedded_stt.corpus import DIGITS, RATE_HZ, Spoken, on_the_line, texts
from bench.embedded_stt.questions import KINDS, Question, expected
from pipeline.audio import Pcm, silence
from pipeline.speech import Expected
from pipeline.stt.pocketsphinx import unheard

SHORTEST_S: Final = 0.2
LONGEST_S: Final = 5.0
OF_A_VOICE: Final = 6
LIST: Final = 10

_STAMPS: Final = "usr/share/tuxpaint/stamps"
_SOUNDS: Final = {
    "ktuberling": "usr/share/ktuberling/sounds/*/*",
    "hedgewars": "usr/share/games/hedgewars/Data/Sounds/voices/*/*.ogg",
    "asterisk": "usr/share/asterisk/sounds/[fir][!n]_*/*.wav",
    "tuxpaint": f"{_STAMPS}/**/*_desc_??.ogg",
}
_NO_OTHER_WORDS: Final = re.compile(
    r"(^|[-_/ ])(yes|yessir|no|nooo|nope|ok|okay|si|one|two|three|beep|tone|silence|hmm|laugh|kamikaze)", re.I
)
_DIGITS: Final = {
    "tuxpaint/digits": f"*/{_STAMPS}/symbols/math/{{}}.ogg",
    "tuxpaint/digits_en_GB": f"*/{_STAMPS}/symbols/math/{{}}_en_GB.ogg",
    "spokennumbers": "*/spokennumbers/default/{}.wav",
}
_NAMES: Final = {
    "tuxpaint/animals": f"*/{_STAMPS}/animals/**/*_desc.ogg",
    "ktuberling/en-words": "*/usr/share/ktuberling/sounds/en/*.ogg",
    "klettres/en": "*/usr/share/klettres/en/syllab/*.ogg",
    "klettres/en_GB": "*/usr/share/klettres/en_GB/syllab/*.ogg",
    "alsa": "*/usr/share/sounds/alsa/*.wav",
}
_NO_WORDS: Final = frozenset({"aw", "ch", "th", "Noise"})
_WRITTEN: Final = {"broccolli": "broccoli", "palmtree": "palm tree", "fallingstar": "falling star"}
_LOUD: Final = 0.03
_LANGUAGE: Final = re.compile(r"_desc_(..)\.ogg$")


def sound(path: Path) -> Pcm:
    """Reads a file at 16 kHz, in one channel."""
    pieces = []
    with av.open(str(path), metadata_errors="ignore") as container:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE_HZ)
        for frame in (*container.decode(audio=0), None):
            pieces += [each.to_ndarray().reshape(-1) for each in resampler.resample(frame)]
    return np.concatenate(pieces).astype(np.int16) if pieces else np.empty(0, np.int16)


def spoken(path: Path, person: str, text: str = "") -> Spoken | None:
    """Returns a file over the line; None where it is too short, too long or too soft."""
    try:
        samples = sound(path)
    except av.FFmpegError:
        return None
    if not SHORTEST_S * RATE_HZ < len(samples) < LONGEST_S * RATE_HZ or np.abs(samples).max() < 1000:
        return None
    return Spoken(person, person, text, on_the_line(samples, RATE_HZ))


def other_words(folder: Path, dice: random.Random) -> Iterator[Spoken]:
    """Yields up to `OF_A_VOICE` files of each voice."""
    for source, pattern in _SOUNDS.items():
        voices: dict[str, list[Path]] = {}
        for path in sorted(folder.glob(f"*/{pattern}")):
            if not _NO_OTHER_WORDS.search(path.stem):
                language = _LANGUAGE.search(path.name)
                voices.setdefault(language[1] if language else path.parent.name, []).append(path)
        for voice, paths in voices.items():
            dice.shuffle(paths)
            person = f"{source}/{voice}"
            found = (each for path in paths if (each := spoken(path, person)) is not None)
            yield from (each for each, _ in zip(found, range(OF_A_VOICE), strict=False))
        click.echo(f"{source}: {len(voices)} voices", err=True)


def digits(folder: Path, dice: random.Random) -> Iterator[Spoken]:
    """Yields single digits and strings of two to five, by three people."""
    for person, pattern in _DIGITS.items():
        paths = [next(folder.glob(pattern.format(digit))) for digit in range(10)]
        said = [_trimmed(sound(path)) for path in paths]
        strings = [[digit] for digit in range(10)]
        strings += [dice.choices(range(10), k=dice.randint(2, 5)) for _ in range(30)]
        for string in strings:
            gap = silence(RATE_HZ, dice.choice([20, 60, 100]))
            samples = np.concatenate([piece for digit in string for piece in (said[digit], gap)])
            text = " ".join(DIGITS[digit] for digit in string)
            yield Spoken(person, person, text, on_the_line(samples, RATE_HZ))


def _trimmed(samples: Pcm) -> Pcm:
    """Trims to 0.1 s around the loud part."""
    levels = np.abs(samples.astype(np.int32))
    loud = np.flatnonzero(levels > _LOUD * levels.max())
    return samples[max(0, loud[0] - RATE_HZ // 10) : loud[-1] + RATE_HZ // 10]


def named(folder: Path) -> Iterator[tuple[str, list[Spoken]]]:
    """Yields people with the words of each: animals with their article, things in pictures, short words,
    places."""
    for person, pattern in _NAMES.items():
        found = []
        for path in sorted(folder.glob(pattern)):
            text = _text(path)
            one = spoken(path, person, text) if text and not unheard([text]) else None
            if one is not None:
                found.append(one)
        yield person, found


def _text(path: Path) -> str:
    if path.name.endswith("_desc.ogg"):
        written = path.with_name(path.name.replace("_desc.ogg", ".txt"))
        return written.read_text().splitlines()[0].lower().strip(" .") if written.is_file() else ""
    if path.stem in _NO_WORDS:
        return ""
    if "ktuberling" in path.parts:
        last = path.stem.rpartition("_")[2]
        return _WRITTEN.get(last, last)
    return path.stem.replace("_", " ").lower()


def questions(folder: Path) -> Iterator[Question]:
    """Yields other words for every kind of question and a list of ten; digits and animals as answers too."""
    dice = random.Random(21)
    words = sorted(set(texts().values()))
    for said in other_words(folder, dice):
        yield from (Question(kind, expected(kind), said, "") for kind in KINDS)
        yield Question("a list", Expected(tuple(dice.sample(words, LIST))), said, "")
    for said in digits(folder, dice):
        yield Question("digits", expected("digits"), said, said.text)
        yield Question("yes_no", expected("yes_no"), said, "")
    for _, names in named(folder):
        yield from _among(names, sorted({said.text for said in names}), dice)


def _among(names: Sequence[Spoken], pool: Sequence[str], dice: random.Random) -> Iterator[Question]:
    for said in names:
        others = [text for text in pool if text != said.text]
        for right in (said.text, ""):
            phrases = [*dice.sample(others, min(LIST, len(others)) - 1), right or dice.choice(others)]
            yield Question("a list", Expected(tuple(phrases)), said, right)
        yield from (Question(kind, expected(kind), said, "") for kind in KINDS)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(folder: Path) -> None:
    """Measures accepted other words and rejected answers on recorded people, of whom the odd ones tuned
    nothing."""
    asked = list(questions(folder))
    found: dict[str, object] = {}
    for half, tunes in (("reported", False), ("tuned on", True)):
        part = [question for question in asked if question.spoken.tunes == tunes]
        click.echo(f"{half}: {len({question.spoken.voice for question in part})} people")
        counts, _, _ = measure(by_person(part))
        others, answers = tables(counts)
        people = sorted({question.spoken.voice for question in part})
        found[half] = {"people": people, "others": others, "answers": answers}
    report.save("embedded-stt-people", found)


def by_person(asked: Sequence[Question]) -> Iterator[Question]:
    """Yields questions with answers named by the person who gave these."""
    for each in asked:
        name = f"{each.spoken.voice}: {each.asked}" if each.right else each.asked
        yield replace(each, asked=name)
