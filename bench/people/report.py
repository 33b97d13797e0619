"""Formats the tables of `python -m bench people`, for the terminal and results/people.md."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench import report

ANNOUNCEMENT: Final = 5
"""Words from which on a text is an announcement."""

AIMS: Final = {
    "digits wrong": "at most 2 %",
    "numbers whole": "",
    "a phrase of ten": "at least 95 %",
    "a phrase of ten, second person": "",
    "others taken": "at most 5 %",
    "others taken: yes_no": "",
    "others taken: digits": "",
    "others taken: date": "",
    "others taken: ten phrases": "",
    "sounds taken for words": "0",
    "words wrong, announcements": "",
    "words wrong, short": "",
}
"""Rows with their targets."""

EDGES: Final = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.01)

_TEXT: Final = """# Recorded people

`python -m bench people`, {conditions}.

The announcer of Debian's `asterisk-core-sounds-en` (one speaker, and no caller: she reads, close to a good
microphone), at 8 kHz over µ-law and, from the G.722 files, at 16 kHz; and, as a second person, single words
of `ktuberling-data`, a children's game. Files whose name's SHA-1 is even tune, the others are in this table.
Numbers are 3 to 10 of her digits with 60 to 400 ms between them. "Embedded" is pocketsphinx with the grammar
of the question, "local" Whisper tiny.en by pip (int8, one thread, 12 s).

What counts is what a script would act upon: its own matching reads the text. "A phrase of ten": one that the
question expects, among nine others. "Others taken": what was said is no answer to a question for yes or no,
digits, a date or ten other phrases, and the script would have taken one from it. Sounds: ten minutes of
tones, noise, music, knocks and silence, 1 to 8 s at a time (embedded: put to a yes-or-no question).

{table}

Texts made of sounds: {made_up}.

Confidence, and how many of the words (of the digits, where the text is figures alone) were said, at 8 kHz;
texts that the rules drop are left out:

{confidence}

Words that are known while she speaks, at 8 kHz, one speaker: how long after their end, the decode's CPU time
included (what it takes on a free core).

{partials}
"""


def table(found: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """Returns columns and rows: the question, the target, each recogniser."""
    rows: list[list[object]] = []
    for name, aim in AIMS.items():
        cells = [_share(each["shares"].get(name)) for each in found.values()]
        if any(cells):
            rows.append([name, aim, *cells])
    for name, key in (
        ("result after the last sample, s, p50", "result_s_p50"),
        ("p95", "result_s_p95"),
        ("CPU s an utterance", "cpu_s_an_utterance"),
    ):
        rows.append([name, "", *(f"{each[key]:.3f}" for each in found.values())])
    return ["", "aim", *found], rows


def confidences(rated: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns, by range of confidence, [right, all] words of texts, and digits of numbers, in either half."""
    bins = []
    for low, high in itertools.pairwise(EDGES):
        here = [each for each in rated if low <= each["confidence"] < high]
        row: dict[str, Any] = {"from": low}
        for figures in (False, True):
            for tunes in (True, False):
                mine = [each for each in here if each["figures"] == figures and each["tunes"] == tunes]
                name = f"{'figures' if figures else 'words'}, {'tuning' if tunes else 'reported'}"
                row[name] = [sum(each["words"][place] for each in mine) for place in (0, 1)]
        bins.append(row)
    return bins


def confidence_table(bins: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """Returns the columns and rows of confidences."""
    names = [name for name in bins[0] if name != "from"]
    rows: list[list[object]] = [
        [f"from {row['from']}", *(_share(row[name]) for name in names)] for row in bins
    ]
    return ["confidence", *names], rows


def partial_table(partials: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """Returns the columns and rows of interim words."""
    columns = [
        "decoded every",
        "a word's age, p50",
        "p95",
        "CPU s a second of speech",
        "other words in the result",
    ]
    rows: list[list[object]] = [
        [
            f"{row['every_s']} s",
            f"{row['age_s_p50']:.2f} s",
            f"{row['age_s_p95']:.2f} s",
            f"{row['cpu_s_a_second_of_speech']:.2f}",
            _share(row["differ_from_the_result"]),
        ]
        for row in partials
    ]
    return columns, rows


def write(measured: Mapping[str, Any], *, load_1m: float, short: bool) -> None:
    """Writes results/people.md."""
    found = measured["recognisers"]
    machine = report.machine()
    short_run = ", a quarter of it" if short else ""
    conditions = f"{machine['cpu']}, {machine['cores']} cores, load {load_1m}{short_run}"
    made_up = [
        f"{name}: {text!r} of {kind}" for name, each in found.items() for kind, text in each["made_up"]
    ]
    (report.RESULTS / "people.md").write_text(
        _TEXT.format(
            conditions=conditions,
            table=_markdown(*table(found)),
            made_up="; ".join(made_up) or "none",
            confidence=_markdown(*confidence_table(measured["confidence"])),
            partials=_markdown(*partial_table(measured["partials"])),
        ),
        encoding="utf-8",
    )


def _share(share: Sequence[int] | None) -> str:
    if not share or not share[1]:
        return ""
    return f"{100 * share[0] / share[1]:.1f} % ({share[0]} of {share[1]})"


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|---" + "|---:" * (len(columns) - 1) + "|"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)
