"""Extracts the value of an answer (digits, yes or no, a date, a name …) from a recogniser's words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Final

from pipeline.text.fold import folded
from pipeline.text.lexicon import Lexicon
from pipeline.text.spoken_numbers import first_number, gathered

_MARKS: Final = {"yes": "\N{CHECK MARK}", "no": "\N{BALLOT X}", "": "?"}  # never in a recogniser's text

KINDS = ("yes_no", "digits", "date", "time", "name", "number", "free")
"""The kinds of answers for `pipeline.speech.Expected.kinds`."""


def value_of(kind: str, text: str, lexicon: Lexicon, *, digits: int = 0) -> str:
    """Gives the value of `text` (in the form of `plain_words`) as `kind`, "" for none.

    yes_no: "yes" or "no". digits: figures without spaces, exactly `digits` of them unless that is 0. number:
    figures. date, time: the words of the date or time. name: capitalised words. free: the whole text.
    """
    if kind == "digits":
        found = gathered(text, lexicon, wanted=digits)
        return found if not digits or len(found) == digits else ""
    return _READERS[kind](text, lexicon)


def _yes_no(text: str, lexicon: Lexicon) -> str:
    """Gives "yes", "no" or "". A first word "yes" decides ("yes, not before nine"); otherwise a no outweighs
    a yes, because "that is not right" has both. Idioms ("no problem", "not sure") count by their meaning."""
    said = folded(text)
    if said in lexicon.whole_yes:
        return "yes"
    for meaning, phrases in lexicon.meant:
        said = phrases.sub(_MARKS[meaning], said)
    words = said.split()
    yes, no = lexicon.yes | {_MARKS["yes"]}, lexicon.no | {_MARKS["no"]}
    if words and words[0] in yes:
        return "yes"
    if any(word in no for word in words):
        return "no"
    return "yes" if any(word in yes for word in words) else ""


def _date(text: str, lexicon: Lexicon) -> str:
    """The longest run of date words with a day or a month in it; "one second please" and "may i" are none."""
    known = lexicon.date | lexicon.date_glue
    runs = _runs(text, lambda word: folded(word) in known or _number_like(word, lexicon), lexicon)
    return _longest(run for run in runs if _is_date(run, lexicon))


def _is_date(run: list[str], lexicon: Lexicon) -> bool:
    if any(folded(word) in lexicon.date for word in run):
        return True
    return lexicon.date_phrase is not None and lexicon.date_phrase.search(" ".join(run)) is not None


def _time(text: str, lexicon: Lexicon) -> str:
    """The longest run of time words with a number or a part of the day in it ("half past nine", "3 30")."""
    known = lexicon.time | lexicon.time_glue
    runs = _runs(text, lambda word: folded(word) in known or _number_like(word, lexicon), lexicon)
    return _longest(run for run in runs if any(_is_time(word, lexicon) for word in run))


def _is_time(word: str, lexicon: Lexicon) -> bool:
    return folded(word) in lexicon.time or _number_like(word, lexicon)


def _runs(text: str, fits: Callable[[str], bool], lexicon: Lexicon) -> Iterator[list[str]]:
    """Runs of words that fit, except those after a word that excludes ("not monday")."""
    before = ""
    for fitting, group in groupby(text.split(), fits):
        words = list(group)
        if fitting and folded(before) not in lexicon.excluding:
            yield words
        before = words[-1]


def _longest(runs: Iterable[list[str]]) -> str:
    best: list[str] = []
    for run in runs:
        best = run if len(run) > len(best) else best
    return " ".join(best)


def _number_like(word: str, lexicon: Lexicon) -> bool:
    plain = folded(word)
    known = (lexicon.units, lexicon.tens, lexicon.hundreds, lexicon.scales)
    joined = plain.removeprefix(lexicon.joining_prefix) if lexicon.joining_prefix else plain
    return word[:1].isdecimal() or any(plain in words or joined in words for words in known)


def _name(text: str, lexicon: Lexicon) -> str:
    if all(word in lexicon.nameless or word in lexicon.yes | lexicon.no for word in folded(text).split()):
        return ""
    for opening in lexicon.name_openings:
        _, found, rest = f" {text} ".partition(f" {opening} ")
        if found and rest.strip():
            return rest.strip().title()
    return text.title()


def _free(text: str, lexicon: Lexicon) -> str:
    return text


_READERS: dict[str, Callable[[str, Lexicon], str]] = {
    "yes_no": _yes_no,
    "number": first_number,
    "date": _date,
    "time": _time,
    "name": _name,
    "free": _free,
}
