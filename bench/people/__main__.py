"""Measures how well recorded people are understood without a network: `python -m bench people`.

"embedded" is pocketsphinx with the grammar of the question (free dictation where there is none), "local" is
Whisper tiny.en by pip, at 8 kHz over µ-law and at 16 kHz. A script's own matching decides which answer an
agent would take. The recognisers take turns, utterance by utterance; CPU is that of this process and its
children."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click
import numpy as np

from bench import report
from bench.embedded_stt.corpus import LINE_HZ, RATE_HZ, Spoken
from bench.people import partials as people_partials
from bench.people import report as people_report
from bench.people.corpus import ANNOUNCER, PACKAGES, halves, numbers, said, sounds
from bench.people.questions import LANGUAGE, Question, dictated, of_ten, other_words
from mediaserver.demo.persona import word_errors
from pipeline.audio import Pcm
from pipeline.errors import EngineMissing
from pipeline.registry import load
from pipeline.speech import Expected, Hypothesis, SpeechToText
from pipeline.stt.faster_whisper import FasterWhisper
from pipeline.stt.whisper.rules import is_figures
from pipeline.text.lexicon import lexicon
from pipeline.text.spoken_numbers import in_figures, spoken_digits

NOISE_S: Final = 600.0
SHORT: Final = 4
"""One in so many utterances is used in a short run, and as much less noise."""

_FREE: Final = Expected(kinds=("free",))
_YES_NO: Final = Expected(kinds=("yes_no",))


@dataclass(slots=True)
class Share:
    """A count and its total."""

    part: int = 0
    whole: int = 0

    def add(self, part: int, whole: int = 1) -> None:
        """Adds to count and total."""
        self.part, self.whole = self.part + part, self.whole + whole


@dataclass(slots=True)
class Figures:
    """The figures of one recogniser; shares by the kind of question."""

    shares: dict[str, Share] = field(default_factory=dict)
    waited_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    made_up: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, part: int, whole: int = 1) -> None:
        """Adds to the share `name`."""
        self.shares.setdefault(name, Share()).add(part, whole)


class Contender:
    """A recogniser at a rate, with its results. One that uses only the expected phrases (`listens_for_all`)
    hears each utterance once per list of phrases."""

    def __init__(self, engine: SpeechToText, rate_hz: int, *, listens_for_all: bool) -> None:
        self.figures = Figures()
        self.rate_hz = rate_hz
        self._engine = engine
        self._listens_for_all = listens_for_all
        self._heard: dict[tuple[str, tuple[str, ...]], Hypothesis] = {}

    async def hear(self, name: str, samples: Pcm, expected: Expected) -> Hypothesis:
        """Recognises `samples` as the answer to a question with this grammar."""
        key = name, expected.phrases
        if self._listens_for_all and key in self._heard:
            return self._heard[key]
        cpu, step = people_partials.cpu_s(), self.rate_hz // 50
        listening = self._engine.listen(rate_hz=self.rate_hz, language=LANGUAGE, expected=expected)
        for start in range(0, len(samples), step):
            listening.push(samples[start : start + step])
        began = time.perf_counter()
        heard = await listening.result()
        self.figures.waited_s.append(time.perf_counter() - began)
        listening.close()
        self.figures.cpu_s.append(people_partials.cpu_s() - cpu)
        self._heard[key] = heard
        return heard


@dataclass(frozen=True, slots=True)
class Corpus:
    """The half of the utterances that is reported, by rate, with the same names at both. `tuning`: the other
    half at 8 kHz."""

    questions: Sequence[Question]
    texts: Sequence[Spoken]
    samples: Mapping[int, Mapping[str, Pcm]]
    tuning: Sequence[Spoken]

    @classmethod
    def read(cls, every: int) -> Corpus:
        """Reads one of `every` utterances."""
        rows = {rate: (said(rate), list(numbers(rate))) for rate in (LINE_HZ, RATE_HZ)}
        tuning, texts = halves(rows[LINE_HZ][0])
        tuned, spelt = halves(rows[LINE_HZ][1])
        questions = [*dictated(spelt), *of_ten(texts), *other_words(texts)]
        samples = {
            rate: {_key(each): each.samples for each in (*words, *figures)}
            for rate, (words, figures) in rows.items()
        }
        return cls(questions[::every], texts[::every], samples, [*tuning, *tuned][::every])


def _key(spoken: Spoken) -> str:
    return f"{spoken.voice} {spoken.name}"


async def measure(every: int) -> tuple[dict[str, Figures], list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the figures by recogniser, every confidence with the share of right words, and the age of
    interim words."""
    corpus = Corpus.read(every)
    whisper: FasterWhisper = load("stt", "faster-whisper", {"threads": 1, "partial_every_s": 0})
    sphinx: SpeechToText = load("stt", "pocketsphinx", {})
    for engine in (whisper, sphinx):
        await engine.start()
    contenders = {
        "embedded": Contender(sphinx, LINE_HZ, listens_for_all=False),
        "local, 8 kHz": Contender(whisper, LINE_HZ, listens_for_all=True),
        "local, 16 kHz": Contender(whisper, RATE_HZ, listens_for_all=True),
    }
    try:
        await _ask(corpus, contenders.values())
        await _transcribe(corpus, contenders.values())
        await _make_up(NOISE_S / every, contenders.values())
        rated = await _rate(corpus, contenders["local, 8 kHz"])
        partials = await asyncio.to_thread(people_partials.measure, whisper, corpus.texts)
    finally:
        for engine in (whisper, sphinx):
            await engine.close()
    return {name: each.figures for name, each in contenders.items()}, rated, partials


async def _ask(corpus: Corpus, contenders: Iterable[Contender]) -> None:
    for question in corpus.questions:
        for each in contenders:
            spoken = question.spoken
            samples = corpus.samples[each.rate_hz][_key(spoken)]
            heard = await each.hear(_key(spoken), samples, question.expected)
            acted = question.acted_on(heard.text)
            if question.name == "digits" and question.right:
                wrong, digits = word_errors(" ".join(question.right), " ".join(acted))
                each.figures.add("digits wrong", wrong, digits)
                each.figures.add("numbers whole", acted == question.right)
            elif question.right:
                person = "" if spoken.voice == ANNOUNCER else ", second person"
                each.figures.add(f"{question.name}{person}", acted == question.right)
            else:
                each.figures.add(f"others taken: {question.name}", acted != "")
                each.figures.add("others taken", acted != "")


async def _transcribe(corpus: Corpus, contenders: Iterable[Contender]) -> None:
    for spoken in corpus.texts:
        for each in contenders:
            samples = corpus.samples[each.rate_hz][_key(spoken)]
            heard = await each.hear(_key(spoken), samples, _FREE)
            wrong, words = word_errors(_plain(spoken.text), _plain(heard.text))
            long = len(spoken.text.split()) >= people_report.ANNOUNCEMENT
            each.figures.add("words wrong, announcements" if long else "words wrong, short", wrong, words)


async def _make_up(seconds: float, contenders: Iterable[Contender]) -> None:
    for each in contenders:
        for number, (kind, samples) in enumerate(sounds(seconds, each.rate_hz)):
            heard = await each.hear(f"sound {number}", samples, _YES_NO)
            each.figures.add("sounds taken for words", heard.text != "")
            if heard.text:
                each.figures.made_up.append((kind, heard.text))


async def _rate(corpus: Corpus, contender: Contender) -> list[dict[str, Any]]:
    """Returns the confidence of every text, of both halves, with its number of right words (digits)."""
    rated = []
    reported = {_key(question.spoken): question.spoken for question in corpus.questions}
    for spoken in (*corpus.tuning, *reported.values()):
        heard = await contender.hear(_key(spoken), spoken.samples, _FREE)
        if heard.text:
            rated.append(
                {
                    "tunes": spoken.tunes,
                    "figures": is_figures(heard.text, LANGUAGE),
                    "confidence": round(heard.confidence, 3),
                    "words": _right_words(heard.text, spoken.text),
                }
            )
    return rated


def _right_words(heard: str, was_said: str) -> tuple[int, int]:
    """Returns the number of right words of `heard` (digits where a number was said), and the number of
    all."""
    found, wanted = _plain(heard), _plain(was_said)
    if was_said.isdecimal():
        found, wanted = " ".join(spoken_digits(heard, lexicon(LANGUAGE))), " ".join(was_said)
    words = len(found.split())
    return max(0, words - word_errors(wanted, found)[0]), words


def _plain(text: str) -> str:
    return in_figures(text, lexicon(LANGUAGE))


def summary(figures: Figures) -> dict[str, Any]:
    """Returns the figures for the JSON file."""
    waited = np.array(figures.waited_s)
    return {
        "shares": {name: [share.part, share.whole] for name, share in figures.shares.items()},
        "result_s_p50": round(float(np.median(waited)), 3),
        "result_s_p95": round(float(np.percentile(waited, 95)), 3),
        "cpu_s_an_utterance": round(float(np.mean(figures.cpu_s)), 3),
        "made_up": figures.made_up,
    }


@click.command()
@click.option("--short", is_flag=True, help="Take every fourth utterance and a quarter of the noise.")
def main(short: bool) -> None:
    """Recorded people: digits, phrases, other words, noise; results/people.json and people.md."""
    lacking = [package for package, file in PACKAGES.items() if not file.is_file()]
    if lacking:
        raise click.ClickException(f"Debian packages are not installed: {', '.join(lacking)}")
    try:
        figures, rated, partials = asyncio.run(measure(SHORT if short else 1))
    except EngineMissing as error:
        raise click.ClickException(str(error)) from error
    found = {name: summary(each) for name, each in figures.items()}
    confidences = people_report.confidences(rated)
    columns, rows = people_report.table(found)
    report.show("recorded people", columns, rows)
    report.show("confidence", *people_report.confidence_table(confidences))
    report.show("words while somebody speaks", *people_report.partial_table(partials))
    load_1m = round(os.getloadavg()[0], 1)
    about = {"load_1m": load_1m, "short": short}
    measured = {"recognisers": found, "confidence": confidences, "partials": partials}
    report.save("people", {**about, **measured})
    people_report.write(measured, load_1m=load_1m, short=short)
