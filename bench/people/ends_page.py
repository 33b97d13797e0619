"""Formats results/people_ends.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bench.conversation.end_of_turn import BUDGETS_MS
from bench.people.prompts import SPEAKERS
from bench.vad.page import table

_TEXT: Final = """# Ends of turns of recorded people

`python -m bench people-ends`, {conditions}.

Five packages of Debian's `asterisk-core-sounds-*-wav`, over µ-law at 8 kHz, by four speakers ({speakers}).
**They read prompts, close to good microphones; nobody answers or thinks aloud**: the figures compare
judges, they do not promise what callers will feel. Recordings whose name's SHA-1 is even tune (they set how
two judges are added up), the others are in these tables, unless a column says "tuning". Neither judge's
weights were set on any of them.

An end is that of a recording of a sentence. A pause is 200 ms and more of silence within a recording ("short"
below 400 ms, "long" above), or the end of a recording after which Asterisk plays more of the same sentence
("begun": "there are currently"). A pause within a recording may be one after a whole sentence. After the last
voice there are 200 ms of digital silence, at a pause as at an end. "Together" adds up the odds of both
judges. Ranges are 95 % intervals (Hanley and McNeil; Wilson for shares).

## An end told from a pause, by the voice alone

Area under the curve, 0.5 is chance:

{by_speaker}

All speakers, by the kind of pause:

{by_kind}

## Pauses taken for an end

By the voice alone, at a mean delay of true ends of at most so much, with the best setting of the three knobs
for each judge; pauses have people's lengths (`bench/README.md`):

{cut_offs}

## With the words

English, one speaker: recordings whose words are known. Pauses are the begun sentences alone, so few that
only large differences mean anything.

{worded}

## Without a part of the built-in judge

Area by the voice alone, four speakers, without one group of measures; weights are not set anew:

{parts}

Voice and words, one speaker, in English:

{word_parts}
"""


def page(measured: Mapping[str, Any], machine: Mapping[str, Any]) -> str:
    """Returns the page of the figures that `bench.people.ends` measures."""
    by_speaker = {f"{name}, {SPEAKERS[name][1]}": of for name, of in measured["speakers"].items()}
    return _TEXT.format(
        conditions=f"{machine['cpu']}, {machine['cores']} cores",
        speakers=", ".join(sorted({speaker for _, speaker in SPEAKERS.values()})),
        by_speaker=_areas("language, speaker", by_speaker),
        by_kind=_areas("pauses", measured["kinds"]),
        cut_offs=_cut_offs(measured["cut_offs"], measured["kinds"]["all"]),
        worded=_areas("judge", {name: {"area": of} for name, of in measured["worded"].items()}),
        parts=_parts(measured["parts"]),
        word_parts=_parts(measured["word_parts"]),
    )


def _areas(first: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    judges = list(next(iter(rows.values())))
    told = [
        (name, of[judges[0]]["ends"], of[judges[0]]["pauses"], *(_area(of[judge]) for judge in judges))
        for name, of in rows.items()
    ]
    return table((first, "ends", "pauses", *judges), told)


def _area(of: Mapping[str, Any]) -> str:
    return (
        "" if of["auc"] is None else f"{of['auc']:.2f} ({of['interval'][0]:.2f} to {of['interval'][1]:.2f})"
    )


def _cut_offs(judges: Mapping[str, Any], counts: Mapping[str, Any]) -> str:
    pauses = next(iter(counts.values()))["pauses"]
    columns = ("judge", *(f"{budget} ms" for budget in BUDGETS_MS), "cut off, delay ms as shipped")
    rows: list[tuple[object, ...]] = []
    for name, of in judges.items():
        shares = [_share(of[f"at_{budget}_ms"]["real_lengths"], pauses) for budget in BUDGETS_MS]
        delay, cut = of["defaults"]
        rows.append((name, *shares, f"{100 * cut:.1f} %, {delay:.0f}"))
    fixed = next(iter(judges.values()))
    shares = [_share(fixed[f"at_{budget}_ms"]["real_lengths_fixed_silence"], pauses) for budget in BUDGETS_MS]
    return table(columns, [*rows, ("a fixed silence", *shares, "")])


def _share(share: float, count: int) -> str:
    """Formats a share with its interval by Wilson."""
    low, high = wilson(share, count)
    return f"{100 * share:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def wilson(share: float, count: int) -> tuple[float, float]:
    """Returns the 95 % interval of a share of `count`."""
    z = 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    spread = z / (1 + z * z / count) * (share * (1 - share) / count + z * z / (4 * count**2)) ** 0.5
    return max(0.0, middle - spread), min(1.0, middle + spread)


def _parts(halves: Mapping[str, Mapping[str, Any]]) -> str:
    names = next(iter(halves.values()))
    rows = [(name, *(_area(of[name]) for of in halves.values())) for name in names]
    return table(("without", *halves), rows)
