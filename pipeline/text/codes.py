"""Reads e-mail addresses, URLs, telephone numbers and codes aloud, sign by sign."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

from pipeline.text.spoken_forms import Reading

_RUNS: Final = re.compile(r"\d+")
_VOWELS: Final = frozenset("AEIOUY")


def email(written: str, reading: Reading) -> str:
    tail = written[len(written.rstrip(".")) :]
    return _spelt(written.rstrip("."), reading) + tail


def url(written: str, reading: Reading) -> str:
    bare = written.rstrip(".,;:!?)\"'")
    tail = written[len(bare) :]
    _, _, host = bare.rpartition("://") if "://" in bare[:8] else ("", "", bare)
    return _spelt(host.removeprefix("www.").rstrip("/"), reading) + tail


_SPELT: Final = MappingProxyType(
    {".": "dot", "@": "at", "-": "dash", "_": "underscore", "/": "slash", "+": "plus", ":": "colon",
     "=": "equals", "&": "and", "%": "percent", "#": "number"}
)  # fmt: skip


def _spelt(address: str, reading: Reading) -> str:
    pieces = re.findall(r"\d{1,200}|[^\W\d_]{1,200}|.", address)
    said = (
        reading.digits(piece)
        if piece.isdecimal()
        else reading.words[_SPELT[piece]]
        if piece in _SPELT
        else piece
        if piece.isalpha()
        else ""
        for piece in pieces
    )
    return " ".join(word for word in said if word)


def phone(written: str, reading: Reading) -> str:
    runs = _RUNS.findall(written)
    groups = [group for run in runs for group in _groups(run)] if len(runs) < 3 else runs
    spoken = reading.pause([reading.digits(group) for group in groups])
    return f"{reading.words['plus']} {spoken}" if written.startswith("+") else spoken


def _groups(run: str) -> list[str]:
    """Groups of three digits, with four at the end where one would be left, as people dictate numbers."""
    if len(run) <= 4:
        return [run]
    groups = [run[at : at + 3] for at in range(0, len(run), 3)]
    if len(groups[-1]) == 1:
        groups[-2:] = [groups[-2] + groups[-1]]
    return groups


def vanity(written: str, reading: Reading) -> str:
    """ "1-800-FLOWERS": the figures one by one, then the word; letters that make no word are spelt."""
    pieces = re.findall(r"\d+|[A-Z]+", written)
    first = next(place for place, piece in enumerate(pieces) if piece.isalpha())
    figures = [reading.digits(piece) for piece in pieces[:first]]
    words = [reading.digits(piece) if piece.isdecimal() else _word(piece) for piece in pieces[first:]]
    return reading.pause([*figures, " ".join(words)])


def _word(capitals: str) -> str:
    return capitals.lower() if len(capitals) > 1 and _VOWELS & set(capitals) else " ".join(capitals)


def code(written: str, reading: Reading) -> str:
    """Reads a code ("BA245", "#A-1234", a PIN): letters stay, figures are read one by one."""
    spoken = [
        reading.pause([reading.digits(group) for group in _groups(piece)]) if piece.isdecimal() else piece
        for piece in re.findall(r"\d+|[^\W\d_]+", written)
    ]
    return " ".join([reading.words["number"], *spoken] if written.startswith("#") else spoken)


def keys(written: str, reading: Reading) -> str:
    """Reads keys of a telephone one by one: *67 is "star six seven"."""
    names = {"*": reading.words["star"], "#": reading.words["hash"]}
    return " ".join(names.get(key) or reading.digits(key) for key in written)
