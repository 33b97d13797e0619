"""Measures how often the embedded recogniser accepts other words as an answer, and rejects an answer: `python
-m bench embedded-stt`.

The figures are of the half of the corpus that sets no weights. An agent confirms a doubtful answer with the
caller, so a doubtful answer counts as confirmed, neither accepted nor rejected; a doubtful yes or no counts
as not understood, as in a script.

The baseline is pocketsphinx's search of the grammar alone: the unadapted acoustic model, answers accepted
from a mean word posterior of 0.3, the same audio frame by frame. Both are measured in turns, by CPU time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click
import pocketsphinx

from bench import report
from bench.embedded_stt.corpus import LINE_HZ, PROMPTS, RATE_HZ, widened
from bench.embedded_stt.questions import KINDS, Question, questions
from mediaserver.demo.persona import word_errors
from pipeline.speech import Hypothesis
from pipeline.stt.pocketsphinx import SphinxSettings, dictionary
from pipeline.stt.sphinx.decoder import SphinxDecoder, hypothesis, means
from pipeline.stt.sphinx.jsgf import Grammar, grammar
from pipeline.stt.sphinx.verified import Verified

LONGEST_S: Final = 8
SHORT: Final = 8
"""A short run takes one in so many questions."""

_POSTERIOR: Final = 0.3
_FRAME: Final = RATE_HZ // 50 * 2

Recognize = Callable[[bytes, Grammar], Hypothesis]


class Alone:
    """The baseline: pocketsphinx's search of the grammar, without rejection."""

    def __init__(self) -> None:
        self._decoder = pocketsphinx.Decoder(
            pocketsphinx.Config(lm=None, dict=None, loglevel="FATAL", wbeam=1e-12, wip=0.2)
        )
        self._known: dict[Grammar, str] = {}

    def __call__(self, samples: bytes, made: Grammar) -> Hypothesis:
        """Recognises int16 `samples` at `RATE_HZ`; a hypothesis without words is no answer."""
        decoder = self._decoder
        if made not in self._known:
            self._learn(made)
        decoder.activate_search(self._known[made])
        decoder.set_cmn(means(narrow=True))
        decoder.start_utt()
        for start in range(0, len(samples), _FRAME):
            decoder.process_raw(samples[start : start + _FRAME])
        decoder.end_utt()
        heard = hypothesis(decoder)
        return heard if heard.confidence >= _POSTERIOR else Hypothesis("")

    def _learn(self, made: Grammar) -> None:
        for word in made.words:
            for entry, phones in dictionary().pronunciations(word):
                if not self._decoder.lookup_word(entry):
                    self._decoder.add_word(entry, phones, False)
        self._known[made] = f"grammar{len(self._known)}"
        self._decoder.add_jsgf_string(self._known[made], made.jsgf)


class Shipped:
    """The recogniser of a call: the search during the utterance, and the verification at its end."""

    def __init__(self) -> None:
        self._live = SphinxDecoder(dictionary(), narrow=True)
        self._verified = Verified(dictionary(), narrow=True)

    def __call__(self, samples: bytes, made: Grammar) -> Hypothesis:
        """Recognises int16 `samples` at `RATE_HZ`; a hypothesis without words is no answer."""
        self._live.begin(made)
        for start in range(0, len(samples), _FRAME):
            self._live.feed(samples[start : start + _FRAME])
        self._live.end()
        if not self._live.may_hold(samples, made):
            return Hypothesis("")
        heard = SphinxSettings().judged(self._verified.hear(samples, made))
        return Hypothesis("") if heard.doubtful and made.kinds == ("yes_no",) else heard


@dataclass(slots=True)
class Count:
    """Counts of the questions of one kind. `taken`: answers accepted without confirmation. `confirmed`:
    doubtful answers. `right`: answers recognised word for word. `words`, `wrong`: words of the accepted and
    confirmed answers, and the wrong ones of these."""

    asked: int = 0
    taken: int = 0
    confirmed: int = 0
    right: int = 0
    words: int = 0
    wrong: int = 0

    def add(self, right: str, heard: Hypothesis) -> None:
        """Counts a question with the right answer and the recognised one."""
        self.asked += 1
        self.taken += heard.text != "" and not heard.doubtful
        self.confirmed += heard.doubtful
        self.right += heard.text == right
        if right and heard.text:
            wrong, words = word_errors(right, heard.text)
            self.wrong += wrong
            self.words += words


Counts = dict[tuple[str, str, bool], Count]


def measure(asked: Iterable[Question]) -> tuple[dict[str, Counts], dict[str, float], float]:
    """Asks each contender every question. Returns the counts by contender, material, kind and whether the
    question had an answer; the CPU seconds by contender; the seconds of audio."""
    contenders: dict[str, Recognize] = {"shipped": Shipped(), "grammar alone": Alone()}
    counts: dict[str, Counts] = {name: defaultdict(Count) for name in contenders}
    spent: dict[str, float] = dict.fromkeys(contenders, 0.0)
    audio_s = 0.0
    for question in asked:
        made = grammar(question.expected, dictionary().knows)
        assert made is not None
        samples = widened(question.spoken.samples[: LONGEST_S * LINE_HZ]).tobytes()
        audio_s += len(samples) / (2 * RATE_HZ)
        for name, recognizer in contenders.items():
            begun = time.process_time()
            heard = recognizer(samples, made)
            spent[name] += time.process_time() - begun
            counts[name][question.material, question.asked, question.right != ""].add(question.right, heard)
    return counts, spent, audio_s


def _rows(counts: dict[str, Counts], *, answers: bool) -> list[list[object]]:
    found: list[list[object]] = []
    shipped, alone = counts["shipped"], counts["grammar alone"]
    for material, kind, answered in sorted(shipped):
        key = (material, kind, answered)
        if answered != answers:
            continue
        row: list[object] = [f"{material}, {kind}", shipped[key].asked]
        row.append(_share(shipped[key].confirmed, shipped[key]))
        for count in (shipped[key], alone[key]):
            row += _refused(count) if answers else [_share(count.taken, count)]
        found.append(row)
    return found


def _refused(count: Count) -> Sequence[Any]:
    refused = count.asked - count.taken - count.confirmed
    return _share(refused, count), count.asked - count.right, _percent(count.wrong, count.words)


def _share(part: int, count: Count) -> str:
    return f"{part} ({_percent(part, count.asked)})"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def tables(counts: dict[str, Counts]) -> tuple[list[list[object]], list[list[object]]]:
    """Prints and returns the tables of other words and of answers."""
    others, answers = _rows(counts, answers=False), _rows(counts, answers=True)
    columns = ["", "asked", "confirmed", "taken", "taken, grammar alone"]
    report.show("no answer, and taken for one", columns, others)
    each = ["refused", "refused or wrong", "words wrong"]
    report.show("answers", ["", "asked", "confirmed", *each, *(f"{name}, alone" for name in each)], answers)
    return others, answers


@click.command()
@click.option("--short", is_flag=True, help="Ask every eighth question and save nothing.")
@click.option("--every", default=1, metavar="N", help="Ask one in N of the questions without an answer.")
def main(short: bool, every: int) -> None:
    """Measures accepted other words and rejected answers of the embedded recogniser."""
    if not PROMPTS.is_dir():
        raise click.ClickException("the Debian package asterisk-core-sounds-en-wav is not installed")
    asked = [question for question in questions() if not question.spoken.tunes]
    others = [question for question in asked if not question.right][::every]
    asked = [*(question for question in asked if question.right), *others]
    counts, spent, audio_s = measure(asked[:: SHORT if short else 1])
    taken, answers = tables(counts)
    costs = {name: 1000 * seconds / audio_s / 50 for name, seconds in spent.items()}
    report.show("CPU, ms for 20 ms of audio", ["", "ms"], [[name, cost] for name, cost in costs.items()])
    if not short:
        told = {"kinds": KINDS, "others_asked": f"1 in {every}", "cpu_ms_per_20_ms": costs}
        report.save("embedded-stt", {**told, "others": taken, "answers": answers})
