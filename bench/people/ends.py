"""Measures judges of the end of a turn on recorded people: `python -m bench people-ends FOLDER`.

Every judge gets the same silences of 200 ms (`bench.people.prompts`). The even half of the files sets how two
judges are added up; figures are of the odd half unless they say otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
from scipy.stats import mannwhitneyu

from bench import report
from bench.conversation.end_of_turn import PAUSES_S, Silence, cut_offs
from bench.embedded_stt.corpus import LINE_HZ
from bench.people import ends_page
from bench.people.corpus import texts
from bench.people.prompts import SILENCE_MS, SPEAKERS, Stop, prompts, stops, unpacked
from bench.training.weights import logistic
from pipeline.endpointing import smart_turn
from pipeline.endpointing.policy import EndOfTurnScorer, TurnEvidence
from pipeline.endpointing.scorer import (
    ASKING,
    ENDS,
    ENDS_LAST,
    OF_WORDS,
    WORDING,
    BuiltInDetector,
    by_words,
    unfinished,
)
from pipeline.endpointing.sentence_model import sentence_ends
from pipeline.endpointing.weights import ENGLISH, OTHERS, Terms

END: Final = "end"
KINDS: Final = ("begun", "short pause", "long pause")
BUILT_IN: Final = "built-in"
SMART: Final = "Smart Turn"
TOGETHER: Final = "together"
BEFORE: Final = "Smart Turn before it"
PITCH: Final = "the pitch of the ending"
PARTS: Final[Mapping[str, frozenset[str]]] = {
    PITCH: frozenset(["fall_st", "last_st", "floor_st", "over_floor_st", "higher"]),
    "the range of the voice": frozenset(["up_st", "down_st"]),
    "the last half second": frozenset(["late_high_st", "late_fall_st"]),
    "the last stretch": frozenset(
        ["held_ms", "stretch_high_st", "stretch_low_st", "stretch_fall_st", "peak_fall_st", "since_peak_ms"]
    ),
    "the level": frozenset(["drop_db", "fade_db"]),
    "the length of the voice": frozenset(["voiced_ms"]),
}
"""The measures of the voice in groups, for the ablation."""

WORD_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "learnt wording": frozenset([WORDING]),
    "sentence ends of the n-gram model": frozenset([ENDS, ENDS_LAST]),
    "number of words": frozenset(["words"]),
}


@dataclass(frozen=True, slots=True)
class Scored:
    """A silence with the judges' probabilities. `terms`: the voice's; `worded`: with the words too, None
    where they are not known."""

    stop: Stop
    terms: Terms
    worded: Terms | None
    p: Mapping[str, float]


def evidence(stop: Stop, words: str = "") -> TurnEvidence:
    """Returns what a judge gets."""
    language = stop.prompt.language
    return TurnEvidence(
        audio=stop.audio,
        rate_hz=LINE_HZ,
        words=words,
        silence_ms=SILENCE_MS,
        voiced_ms=stop.voiced_ms,
        language=language,
    )


def scored(found: Sequence[Stop], model: EndOfTurnScorer | None) -> list[Scored]:
    """Returns the judges' probabilities; without `model` those of the built-in judge."""
    judge, known = BuiltInDetector(sentence_ends()), texts()
    rows = []
    for stop in found:
        p = {BUILT_IN: judge.weighed(evidence(stop))}
        if model is not None:
            p[SMART] = model.p_eot(evidence(stop))
        words = known.get(stop.prompt.stem, "") if stop.prompt.language == "en" else ""
        worded = evidence(stop, words) if words and stop.kind in (END, "begun") else None
        if worded is not None:
            p["words"] = judge.p_eot(worded)
            if model is not None:
                p[BEFORE] = p["words"] if by_words(worded) is not None or unfinished(worded) else p[SMART]
        terms = judge.terms(evidence(stop))
        rows.append(Scored(stop, terms, None if worded is None else judge.terms(worded), p))
    return rows


def log_odds(p: float) -> float:
    """Returns the odds of `p` as a natural logarithm, at most 8 either way."""
    return max(-8.0, min(8.0, math.log(max(p, 1e-9) / max(1.0 - p, 1e-9))))


def added_up(rows: Sequence[Scored], first: str = BUILT_IN) -> Callable[[Scored], float]:
    """Returns the sum of two judges' odds, weighed on `rows`: those that tune."""

    def columns(each: Scored) -> list[float]:
        return [1.0, log_odds(each.p[first]), log_odds(each.p[SMART])]

    is_end = np.array([each.stop.kind == END for each in rows])
    count = np.where(is_end, 0.5 / is_end.mean(), 0.5 / (~is_end).mean())
    weights = logistic(
        np.array([columns(each) for each in rows]),
        np.where(is_end, 1.0, -1.0),
        count=count,
        penalty=0.1 * np.eye(3),
    )
    return lambda each: 1.0 / (1.0 + math.exp(-float(np.dot(weights, columns(each)))))


def area(rows: Sequence[Scored], p: Callable[[Scored], float]) -> dict[str, Any]:
    """Returns the area under the curve of ends against pauses, with its 95 % interval (Hanley and McNeil)."""
    ends = [p(each) for each in rows if each.stop.kind == END]
    pauses = [p(each) for each in rows if each.stop.kind != END]
    if not ends or not pauses:
        return {"auc": None, "ends": len(ends), "pauses": len(pauses)}
    n, m = len(ends), len(pauses)
    auc = float(mannwhitneyu(ends, pauses).statistic) / (n * m)
    first, second = auc / (2.0 - auc), 2.0 * auc**2 / (1.0 + auc)
    of_ends, of_pauses = (n - 1) * (first - auc**2), (m - 1) * (second - auc**2)
    spread = math.sqrt(max(0.0, auc * (1.0 - auc) + of_ends + of_pauses) / (n * m))
    within = [round(max(0.0, auc - 1.96 * spread), 3), round(min(1.0, auc + 1.96 * spread), 3)]
    return {"auc": round(auc, 3), "interval": within, "ends": n, "pauses": m}


def without(terms: Terms, names: frozenset[str]) -> Terms:
    """Returns `terms` without the measures `names`, also those of a question."""
    kept = {name: of for name, of in terms.measures.items() if name.removeprefix(ASKING) not in names}
    return Terms(terms.cues, kept)


def parts(rows: Sequence[Scored]) -> dict[str, Any]:
    """Returns the area without each part of the judge of the voice."""
    groups = {"nothing": frozenset[str](), **PARTS}
    groups[f"all but {PITCH}"] = frozenset().union(*(names for name, names in PARTS.items() if name != PITCH))

    def of(names: frozenset[str]) -> dict[str, Any]:
        return area(rows, lambda each: OTHERS.p(without(each.terms, names), heard=False))

    return {name: of(names) for name, names in groups.items()}


def word_parts(rows: Sequence[Scored]) -> dict[str, Any]:
    """Returns the same of the voice and the words together, for the recordings whose words are known."""
    heard = [(each, each.worded) for each in rows if each.worded is not None]
    if not heard:
        return {}
    terms = {id(each): worded for each, worded in heard}
    some = [each for each, _ in heard]

    def of(change: Callable[[Terms], Terms]) -> dict[str, Any]:
        return area(some, lambda each: ENGLISH.p(change(terms[id(each)])))

    voice = frozenset(name for _, worded in heard for name in worded.measures if name not in OF_WORDS)
    every = frozenset(name.removeprefix(ASKING) for name in voice)
    return {
        "nothing": of(lambda each: each),
        "cues": of(lambda each: Terms(frozenset(), each.measures)),
        **{name: of(partial(without, names=names)) for name, names in WORD_PARTS.items()},
        "voice": of(lambda each: without(each, every)),
        "all words": of(lambda each: Terms(frozenset(), without(each, OF_WORDS).measures)),
    }


def figures(rows: Sequence[Scored]) -> dict[str, Any]:
    """Returns all figures, as in results/people_ends.json."""
    tuning, shown = ([each for each in rows if each.stop.prompt.tunes is half] for half in (True, False))
    judges: dict[str, Callable[[Scored], float]] = {BUILT_IN: lambda each: each.p[BUILT_IN]}
    if all(SMART in each.p for each in rows):
        judges |= {SMART: lambda each: each.p[SMART], TOGETHER: added_up(tuning)}
    halves = {"tuning": tuning, "reported": shown}
    return {
        "speakers": {
            language: {name: area(_of(shown, language), p) for name, p in judges.items()}
            for language in SPEAKERS
        },
        "kinds": {
            kind: {name: area(_kind(shown, kind), p) for name, p in judges.items()}
            for kind in (*KINDS, "all")
        },
        "cut_offs": {name: cut_offs(_silences(shown, p)) for name, p in judges.items()},
        "worded": _worded(tuning, shown),
        "parts": {
            f"{half}, {kind}": parts(_kind(rows, kind))
            for kind in ("all", "begun")
            for half, rows in halves.items()
        },
        "word_parts": {half: word_parts(rows) for half, rows in halves.items()},
    }


def _of(rows: Sequence[Scored], language: str) -> list[Scored]:
    return [each for each in rows if each.stop.prompt.language == language]


def _kind(rows: Sequence[Scored], kind: str) -> list[Scored]:
    return [each for each in rows if kind == "all" or each.stop.kind in (END, kind)]


def _silences(rows: Sequence[Scored], p: Callable[[Scored], float]) -> list[Silence]:
    """Lengths of pauses are random, as in `bench conversation`; the recordings' own are a reader's."""
    lengths_ms = np.random.default_rng(0).uniform(*PAUSES_S, len(rows)) * 1000
    return [
        Silence(p(each), None if each.stop.kind == END else float(gap_ms))
        for each, gap_ms in zip(rows, lengths_ms, strict=True)
    ]


def _worded(tuning: Sequence[Scored], shown: Sequence[Scored]) -> dict[str, Any]:
    """English recordings whose words are known: ends, and beginnings of sentences."""
    heard = [each for each in shown if "words" in each.p]
    judges: dict[str, Callable[[Scored], float]] = {
        "built-in, voice": lambda each: each.p[BUILT_IN],
        "built-in, voice and words": lambda each: each.p["words"],
    }
    if heard and SMART in heard[0].p:
        both = added_up([each for each in tuning if "words" in each.p], "words")
        judges |= {SMART: lambda each: each.p[SMART], BEFORE: lambda each: each.p[BEFORE], TOGETHER: both}
    return {name: area(heard, p) for name, p in judges.items()}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--smart-turn", "file", help="ONNX file of `mediaserver models get smart-turn`.")
@click.option("--short", is_flag=True, help="Take a tenth of the recordings, and save nothing.")
def main(folder: Path, file: str | None, *, short: bool) -> None:
    """Ends of turns of recorded people in five languages, by the built-in judge and Smart Turn."""
    model = smart_turn.load(file) if file else None
    root = unpacked(folder)
    found = [
        stop
        for language in SPEAKERS
        for prompt in list(prompts(root, language))[:: 10 if short else 1]
        for stop in stops(prompt)
    ]
    measured = figures(scored(found, model))
    text = ends_page.page(measured, report.machine())
    click.echo(text)
    if short:
        return
    report.save("people_ends", measured)
    (report.RESULTS / "people_ends.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
