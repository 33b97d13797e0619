"""What an answer means: the value of a digit string, a yes, a date … in words as a recogniser writes them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from pipeline.engines.script_lexicon import Lexicon

KINDS = ("yes_no", "digits", "date", "time", "name", "number", "free")
"""The shapes of `pipeline.speech.Expected.kinds`."""


def value_of(kind: str, text: str, lexicon: Lexicon, *, digits: int = 0) -> str:
    """The value of `text` (see `plain_words`) as `kind`, "" where it has none.

    yes_no: "yes" or "no". digits: figures without spaces; exactly `digits` of them where that is not 0.
    number: figures. date, time: the words that say it. name: capitalised. free: the text itself.
    """
    if kind == "digits":
        found = _digits(text, lexicon)
        return found if not digits or len(found) == digits else ""
    return _READERS[kind](text, lexicon)


def _yes_no(text: str, lexicon: Lexicon) -> str:
    """The first word decides where it can ("yes, no problem"); after that a no outweighs a yes, because
    "that is not right" holds both."""
    words = text.split()
    if words and words[0] in lexicon.yes:
        return "yes"
    if any(word in lexicon.no for word in words):
        return "no"
    return "yes" if any(word in lexicon.yes for word in words) else ""


def _digits(text: str, lexicon: Lexicon) -> str:
    """All digits said, in order: "double five oh twelve" is "55012". "twenty three" is "23": nobody who
    dictates a number means "203" by it."""
    units, tens, repeats = lexicon.units or {}, lexicon.tens or {}, lexicon.repeats or {}
    out: list[str] = []
    times, open_ten = 1, False
    for word in text.split():
        if word in repeats:
            times, open_ten = repeats[word], False
            continue
        piece = _digit_piece(word, units, tens)
        if piece is None:
            if word in lexicon.hundred:
                out.append("00")
            times, open_ten = 1, False
            continue
        if open_ten and len(piece) == 1 and piece != "0":
            out[-1] = out[-1][:-1] + piece
        else:
            out.append(piece * times)
        times, open_ten = 1, word in tens
    return "".join(out)


def _digit_piece(word: str, units: dict[str, int], tens: dict[str, int]) -> str | None:
    if word.isdecimal():
        return "".join(str(unicodedata.decimal(letter)) for letter in word)
    value = units.get(word, tens.get(word))
    return None if value is None else str(value)


def _number(text: str, lexicon: Lexicon) -> str:
    """The first number said, 0 to 999 999."""
    total, current, seen = 0, 0, False
    for word in text.split():
        value = _number_word(word, lexicon)
        if value is not None:
            current, seen = current + value, True
        elif word in lexicon.hundred:
            current, seen = (current or 1) * 100, True
        elif word in lexicon.thousand:
            total, current, seen = total + (current or 1) * 1000, 0, True
        elif seen and word != "and":
            break
    return str(total + current) if seen else ""


def _number_word(word: str, lexicon: Lexicon) -> int | None:
    if word.isdecimal():
        return int(word)
    return (lexicon.units or {}).get(word, (lexicon.tens or {}).get(word))


def _date(text: str, lexicon: Lexicon) -> str:
    """The longest run of date words with a day or a month in it; "one second please" and "may i" are none."""
    known = lexicon.date | lexicon.date_glue
    runs = _runs(text, lambda word: word in known or _number_like(word, lexicon))
    return _longest(run for run in runs if _is_date(run, lexicon))


def _is_date(run: list[str], lexicon: Lexicon) -> bool:
    if any(word in lexicon.date for word in run):
        return True
    return lexicon.date_phrase is not None and lexicon.date_phrase.search(" ".join(run)) is not None


def _time(text: str, lexicon: Lexicon) -> str:
    """The longest run of time words with a number or a part of the day in it ("half past nine", "3 30")."""
    known = lexicon.time | lexicon.time_glue
    runs = _runs(text, lambda word: word in known or _number_like(word, lexicon))
    return _longest(
        run for run in runs if any(word in lexicon.time or _number_like(word, lexicon) for word in run)
    )


def _runs(text: str, fits: Callable[[str], bool]) -> Iterator[list[str]]:
    for fitting, words in groupby(text.split(), fits):
        if fitting:
            yield list(words)


def _longest(runs: Iterable[list[str]]) -> str:
    best: list[str] = []
    for run in runs:
        best = run if len(run) > len(best) else best
    return " ".join(best)


def _number_like(word: str, lexicon: Lexicon) -> bool:
    known = (lexicon.units or {}, lexicon.tens or {}, lexicon.hundred, lexicon.thousand)
    return word[:1].isdecimal() or any(word in words for words in known)


def _name(text: str, lexicon: Lexicon) -> str:
    for opening in lexicon.name_openings:
        _, found, rest = f" {text} ".partition(f" {opening} ")
        if found and rest.strip():
            return rest.strip().title()
    return text.title()


def _free(text: str, lexicon: Lexicon) -> str:
    return text


_READERS: dict[str, Callable[[str, Lexicon], str]] = {
    "yes_no": _yes_no,
    "number": _number,
    "date": _date,
    "time": _time,
    "name": _name,
    "free": _free,
}
