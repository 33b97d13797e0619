"""Finds cues in the caller's words: evidence for or against the end of the turn, which
`pipeline.endpointing.scorer` weighs.

The strongest cue is a last word after which another word must follow. Others are the beginning of the
sentence (a condition without its main clause, a question) and the agent's question: five digits are no
telephone number, and a date of birth needs a year.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum, StrEnum, auto
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from pipeline.text.word_lists import WordLists, plain

_CLAUSE_WORDS: Final = 4
_CONDITION_WORDS: Final = 8
_NUMBER_DIGITS: Final = 7  # the shortest telephone number, without an area code
_WHOLE_DIGITS: Final = 10  # a usual telephone number, with an area code
_NAME_LETTERS: Final = 4
_PRONOUN: Final = "one"  # "is there a cheaper one"
_POINTING: Final = frozenset({"that", "this"})  # "how much was that", "who is this"
_WHOLE_WORDS: Final = range(3, 9)
_OR: Final = "or"  # "is it a laptop or a desktop"
_CHOICE_WORDS: Final = 4
_CHOICES_WORDS: Final = 8


class Asked(Enum):
    """The kind of answer that the agent's last words ask for. `asked_for` tries the kinds in this order."""

    LETTERS = auto()
    MAIL = auto()
    DIGITS = auto()
    CODE = auto()  # of an unknown number of digits
    ADDRESS = auto()
    BIRTHDAY = auto()
    NAME = auto()
    COUNT = auto()
    TIME = auto()
    PLACE = auto()
    HELP = auto()  # "how can I help you": a sentence or more
    CHOICE = auto()  # any other question, or unknown words
    YES_NO = auto()
    NOTHING = auto()  # no question


class Cue(StrEnum):
    """A cue; its value, the name in lower case, is its key in `pipeline.endpointing.weights`."""

    DANGLING = auto()  # "and", "the"
    WANTING = auto()  # "need"
    CLOSING = auto()  # "please"
    NUMBER = auto()  # the last word is a number
    LETTER = auto()
    QUESTION = auto()
    QUESTION_BEGUN = auto()  # a question that is too short, or whose last word needs another
    CONDITION = auto()  # "if it rains tomorrow"
    LONE_WORD = auto()
    LIGHT_WORD = auto()  # a single word without content: "just", "well"
    YES_FIRST = auto()  # yes or no, and up to two more words
    YES_ALONE = auto()
    FEW_DIGITS = auto()
    SOME_DIGITS = auto()  # perhaps a complete telephone number
    ALL_DIGITS = auto()
    FEW_LETTERS = auto()
    NO_LETTERS = auto()  # the answer has to be spelled, and no letter has come
    MAIL_PART = auto()
    ADDRESS_PART = auto()
    ADDRESS_WHOLE = auto()
    NO_YEAR = auto()
    COUNT_GIVEN = auto()
    TO_LETTERS = auto()
    TO_DIGITS = auto()
    TO_ADDRESS = auto()
    TO_NAME = auto()
    TO_COUNT = auto()
    TO_TIME = auto()
    TO_PLACE = auto()
    TO_HELP = auto()
    TO_YES_NO = auto()


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_KNOWN_BY: Final[Mapping[Asked, frozenset[str]]] = MappingProxyType(
    {
        Asked.LETTERS: _set("spell reference"),
        Asked.MAIL: _set("email mail البريد"),
        Asked.DIGITS: _set("phone telephone mobile card هاتفك"),
        Asked.CODE: _set("number meter zip postcode code رقم"),
        Asked.ADDRESS: _set("address عنوانك"),
        Asked.BIRTHDAY: _set("birth born الميلاد"),
        Asked.NAME: _set("name اسمك"),
        Asked.COUNT: _set("many much old tall big long كم"),
        Asked.TIME: _set("when time day days date متي"),
        Asked.PLACE: _set("where city floor اين"),
        Asked.HELP: _set("help problem trouble happened calling tell why more مساعدتك حدث لماذا"),
    }
)
_ASKS_YES_NO: Final = _set("is are do does did have has will would can could may shall any so was were هل")
_WANTS_WORDS: Final = (Asked.LETTERS, Asked.NAME, Asked.HELP)  # "can you spell that?" is no yes-no question
_TO: Final[Mapping[Asked, Cue]] = MappingProxyType(
    {
        Asked.LETTERS: Cue.TO_LETTERS,
        Asked.MAIL: Cue.TO_LETTERS,
        Asked.DIGITS: Cue.TO_DIGITS,
        Asked.CODE: Cue.TO_DIGITS,
        Asked.ADDRESS: Cue.TO_ADDRESS,
        Asked.BIRTHDAY: Cue.TO_TIME,
        Asked.NAME: Cue.TO_NAME,
        Asked.COUNT: Cue.TO_COUNT,
        Asked.TIME: Cue.TO_TIME,
        Asked.PLACE: Cue.TO_PLACE,
        Asked.HELP: Cue.TO_HELP,
        Asked.YES_NO: Cue.TO_YES_NO,
    }
)
_OPEN: Final = (Asked.HELP, Asked.NOTHING, Asked.CHOICE)
"""Kinds to which "if you could" and "after five" are incomplete answers."""

_HELP_ENOUGH: Final = frozenset({Cue.QUESTION, Cue.LONE_WORD, Cue.CLOSING})
"""Cues that make a short answer to "how can I help you" complete."""

_YEAR: Final = re.compile(
    r"\b(19|20)\d\d$|\b(nineteen (\w+ty( \w+)?|\w+teen|oh \w+)|two thousand( and)?( \w+)?|twenty (oh )?\w+"
    r"|\w+(st|nd|rd|th) (of )?.*(fifty|sixty|seventy|eighty|ninety)( \w+)?)$"
)


@lru_cache(maxsize=256)
def asked_for(asked: str) -> Asked:
    """Gives the kind of answer that the last sentence of `asked` asks for."""
    last = re.split(r"[.!]\s", asked.strip())[-1]
    if not last:
        return Asked.CHOICE
    if not last.endswith(("?", "؟")):
        return Asked.NOTHING
    words = plain(last).split()
    kind = next((kind for kind, known in _KNOWN_BY.items() if known.intersection(words)), Asked.CHOICE)
    yes_no = bool(words) and words[0] in _ASKS_YES_NO
    return Asked.YES_NO if yes_no and kind not in _WANTS_WORDS else kind


def cues_of(text: str, asked: str, lists: WordLists) -> frozenset[Cue]:
    """Gives the cues in `text`, which is `plain` and not empty, as an answer to the agent's words `asked`."""
    words = text.split()
    kind = asked_for(asked)
    found = set(_of_the_end(words, lists)) | set(_of_the_sentence(words, lists))
    if kind in _OPEN and words[0] in lists.conditions and len(words) < _CONDITION_WORDS:
        found.add(Cue.CONDITION)
    found.update(_of_the_answer(text, words, kind, lists))
    if kind in _TO and not (kind is Asked.HELP and found & _HELP_ENOUGH):
        found.add(_TO[kind])
    return frozenset(found)


def is_question(words: list[str], lists: WordLists) -> bool:
    """Whether `words` begin like a question, after any leading filler, "so" or "sorry"."""
    before = lists.light | lists.fillers | lists.stops
    first = next((word for word in words if word in lists.asking or word not in before), "")
    return first in lists.asking


def is_whole(words: list[str], asked: str, lists: WordLists) -> bool:
    """Whether `words` are a short request or question that ends with "that" or "this", or one of the things
    between which `asked` lets choose."""
    if _chooses(words, asked, lists):
        return True
    pointing = len(words) in _WHOLE_WORDS and words[-1] in _POINTING
    return pointing and words[0] in lists.imperatives | lists.asking


def _chooses(words: list[str], asked: str, lists: WordLists) -> bool:
    if len(words) > _CHOICE_WORDS or not asked.rstrip().endswith("?"):
        return False
    choices = plain(re.split(r"[.!]\s", asked.strip())[-1]).split()[-_CHOICES_WORDS:]
    return _OR in choices and words[-1] in choices and words[-1] not in lists.dangling


def dangles(words: list[str], lists: WordLists) -> bool:
    """Whether another word must follow the last one; not so in "turn it on" and "what I asked for"."""
    ending = words[-2:]
    if ending[-1] in lists.stranded and lists.relatives.intersection(words[:-2]):
        return False
    return ending[-1] in lists.dangling and " ".join(ending) not in lists.finished


def _of_the_end(words: list[str], lists: WordLists) -> Iterator[Cue]:
    last = words[-1]
    if _closes(words, lists):
        yield Cue.CLOSING
    elif dangles(words, lists):
        yield Cue.DANGLING
    elif last in lists.wanting:
        yield Cue.WANTING
    elif _is_number(last, lists) and not (last == _PRONOUN and len(words) > 2):
        yield Cue.NUMBER
    elif len(last) == 1:
        yield Cue.LETTER


def _of_the_sentence(words: list[str], lists: WordLists) -> Iterator[Cue]:
    if is_question(words, lists):
        whole = len(words) >= _CLAUSE_WORDS and not dangles(words, lists) and words[-1] not in lists.wanting
        yield Cue.QUESTION if whole else Cue.QUESTION_BEGUN
    if words[0] in lists.yes_no:
        if len(words) == 1:
            yield Cue.YES_ALONE
        elif len(words) < _CLAUSE_WORDS:
            yield Cue.YES_FIRST
    elif len(words) == 1:
        light = words[0] in lists.light | lists.wanting | lists.stops | lists.dangling
        yield Cue.LIGHT_WORD if light else Cue.LONE_WORD


def _of_the_answer(text: str, words: list[str], kind: Asked, lists: WordLists) -> Iterator[Cue]:
    numbers = [word for word in words if _is_number(word, lists)]
    letters = sum(len(word) == 1 for word in words)
    match kind:
        case Asked.DIGITS if numbers:
            digits = sum(len(word) if word.isdecimal() else 1 for word in numbers)
            digits += words.count("double") + 2 * words.count("triple")
            few = Cue.FEW_DIGITS if digits < _NUMBER_DIGITS else Cue.SOME_DIGITS
            yield few if digits < _WHOLE_DIGITS else Cue.ALL_DIGITS
        case Asked.LETTERS if not letters and not numbers:
            yield Cue.NO_LETTERS
        case Asked.LETTERS if letters < _NAME_LETTERS:
            yield Cue.FEW_LETTERS
        case Asked.MAIL if "dot" not in words[:-1]:
            yield Cue.MAIL_PART
        case Asked.ADDRESS:
            yield from _of_an_address(words, numbers, lists)
        case Asked.BIRTHDAY if not _YEAR.search(text):
            yield Cue.NO_YEAR
        case Asked.COUNT if numbers and not dangles(words, lists):
            yield Cue.COUNT_GIVEN


def _of_an_address(words: list[str], numbers: list[str], lists: WordLists) -> Iterator[Cue]:
    if lists.streets.intersection(words):
        yield Cue.ADDRESS_WHOLE
    elif words[-1] in numbers and len(words) < _CLAUSE_WORDS:
        yield Cue.ADDRESS_PART


def _is_number(word: str, lists: WordLists) -> bool:
    return word.isdecimal() or word in lists.digits or word in lists.numbers


def _closes(words: list[str], lists: WordLists) -> bool:
    longest = min(_longest_of(lists.closing), len(words))
    return any(" ".join(words[-size:]) in lists.closing for size in range(1, longest + 1))


@lru_cache(maxsize=64)
def _longest_of(phrases: frozenset[str]) -> int:
    return max((phrase.count(" ") + 1 for phrase in phrases), default=0)
