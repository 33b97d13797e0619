"""Makes a JSGF grammar of the expected answers to a question, for pocketsphinx.

With a grammar 0 to 7 % of the words of human-like voices on a telephone line are wrong, with free dictation
42 to 77 %. English only, like the acoustic model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache

from pipeline.speech import Expected
from pipeline.text.fold import plain_words

_RULES = """
<d> = zero | oh | one | two | three | four | five | six | seven | eight | nine;
<dd> = one | two | three | four | five | six | seven | eight | nine;
<teen> = ten | eleven | twelve | thirteen | fourteen | fifteen | sixteen | seventeen | eighteen | nineteen;
<ten> = twenty | thirty | forty | fifty | sixty | seventy | eighty | ninety;
<nn> = <dd> | <teen> | <ten> [<dd>];
<hundreds> = <nn> | (one | a | <dd>) hundred [[and] <nn>];
<hour> = <dd> | ten | eleven | twelve;
<ord> = first | second | third | fourth | fifth | sixth | seventh | eighth | ninth | tenth | eleventh
    | twelfth | thirteenth | fourteenth | fifteenth | sixteenth | seventeenth | eighteenth | nineteenth
    | twentieth | thirtieth | thirty first
    | twenty (first | second | third | fourth | fifth | sixth | seventh | eighth | ninth);
<month> = january | february | march | april | may | june | july | august | september | october | november
    | december;
<day> = monday | tuesday | wednesday | thursday | friday | saturday | sunday | today | tomorrow;
<part> = morning | afternoon | evening;
<year> = nineteen <nn> | two thousand [[and] <nn>] | twenty <nn>;
<clock> = <hour> [o'clock] | half past <hour> | quarter (past | to) <hour>
    | <hour> (fifteen | thirty | forty five | oh five | ten | twenty | forty | fifty) | noon | midnight;
<when> = <clock> [in the <part>];
<first> = james | mary | john | patricia | robert | jennifer | michael | linda | david | elizabeth | william
    | barbara | richard | susan | joseph | jessica | thomas | sarah | karen | daniel | lisa | mark | nancy
    | paul | anna | peter | maria | george | helen | omar | ali | fatima | ahmed;
<last> = smith | johnson | williams | brown | jones | garcia | miller | davis | martinez | wilson | anderson
    | taylor | thomas | moore | jackson | martin | lee | thompson | white | harris | clark | lewis | walker
    | hall | young | king | wright | green | baker | adams | hassan | khan;
<yes_no> = yes | no | yes please | no thank you | no thanks | yeah | yep | yup | nope | sure | okay | correct
    | right | wrong | of course | that is correct | that is right | that is not correct | that is not right
    | that's correct | that's right | that's not right | that's wrong;
<digits> = ([double] <d>)+;
<number> = [<hundreds> thousand [and]] <hundreds> | <hundreds> thousand | zero;
<date> = [on | next | this] <day> [<part>] [at <when>] | <month> [the] <ord> [<year>]
    | [on] [the] <ord> [of <month> [<year>]];
<time> = [at] <when>;
<name> = [my name is | this is | it is | it's | i am | i'm] <first> [<last>];
"""

GRAMMAR_KINDS = ("yes_no", "digits", "number", "date", "time", "name")
"""Kinds of `pipeline.speech.Expected` that have a rule; "free" has none."""

_RULE = re.compile(r"<(\w+)> = ([^;]+);")
_REFERENCE = re.compile(r"<(\w+)>")
_TOKEN = re.compile(r"<\w+>|[\w']+|[()\[\]|+]")
_AS_PATTERN = {"(": "(?:", ")": ")", "[": "(?:", "]": ")?", "|": "|", "+": "+"}
_WORD = re.compile(r"[a-z][a-z']*")


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar. `jsgf`: the text. `words`: all words of the grammar. `dropped`: phrases that were left out,
    since a word has no pronunciation. `kinds`: the built-in kinds in the grammar."""

    jsgf: str
    words: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


def grammar(expected: Expected | None, knows: Callable[[str], bool]) -> Grammar | None:
    """Makes the grammar of `expected`; None where any words are allowed, or where no answer can be
    recognised.

    `knows(word)`: whether a word has a pronunciation. A phrase with a word without one is left out, since
    without that word the phrase would be another answer. Phrases have known words only, so that no text of a
    script can be read as JSGF.
    """
    if expected is None or "free" in expected.kinds:
        return None
    phrases = [plain_words(phrase) for phrase in expected.phrases]
    heard = [phrase for phrase in phrases if not unknown_words([phrase], knows)]
    kinds = [kind for kind in expected.kinds if kind in GRAMMAR_KINDS]
    if not heard and not kinds:
        return None
    needed = _needed(kinds)
    rules = [f"<{name}> = {body};" for name, body in _rules().items() if name in needed]
    choices = " | ".join([*heard, *(f"<{kind}>" for kind in kinds)])
    body = "\n".join((*rules, f"public <answer> = {choices};"))
    return Grammar(
        jsgf=f"#JSGF V1.0;\ngrammar answers;\n{body}\n",
        words=tuple(sorted({word for phrase in heard for word in phrase.split()} | _words(rules))),
        dropped=tuple(phrase for phrase in phrases if phrase not in heard),
        kinds=tuple(kinds),
    )


def is_whole(made: Grammar, text: str) -> bool:
    """Whether `text` is an answer from its first word to its last. A search that ends inside a phrase gives
    the words so far: "side" for "side left" where only "side right" is an answer."""
    return _pattern(made).fullmatch(f"{text} ") is not None


def unknown_words(phrases: Iterable[str], knows: Callable[[str], bool]) -> list[str]:
    """Gives the words of `phrases` without a pronunciation, each once, in order."""
    words = dict.fromkeys(word for phrase in phrases for word in plain_words(phrase).split() or [""])
    return [word for word in words if not _WORD.fullmatch(word) or not knows(word)]


def kind_words() -> frozenset[str]:
    """Every word of the built-in kinds."""
    return frozenset(_words(f"<{name}> = {body};" for name, body in _rules().items()))


def yes_no() -> tuple[str, ...]:
    """The answers to a yes-or-no question."""
    return tuple(answer.strip() for answer in _rules()["yes_no"].split("|"))


@cache
def _rules() -> dict[str, str]:
    return {name: " ".join(body.split()) for name, body in _RULE.findall(_RULES)}


@lru_cache(maxsize=1024)
def _pattern(made: Grammar) -> re.Pattern[str]:
    rules = dict(_RULE.findall(made.jsgf))

    def expanded(rule: str) -> str:
        return "".join(as_pattern(token) for token in _TOKEN.findall(rules[rule]))

    def as_pattern(token: str) -> str:
        if token in _AS_PATTERN:
            return _AS_PATTERN[token]
        return f"(?:{expanded(token[1:-1])})" if token[0] == "<" else f"(?:{re.escape(token)} )"

    return re.compile(expanded("answer"))


def _needed(kinds: Iterable[str]) -> set[str]:
    """The rules that `kinds` refer to, directly or not."""
    needed: set[str] = set()
    waiting = list(kinds)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += _REFERENCE.findall(_rules()[name])
    return needed


def _words(rules: Iterable[str]) -> set[str]:
    return {word for rule in rules for word in _WORD.findall(_REFERENCE.sub(" ", rule))}
