"""The caller's permission for a tool: asked for and understood by this code, not by the model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from pipeline.agents.llm.tools.tool import Tool
from pipeline.text.fold import folded, plain_words
from pipeline.text.templates import PLACEHOLDER, placeholders

MAX_VALUE: Final = 200
"""The most characters of one argument that is read to the caller. A longer one is refused: nobody agrees to
what they have not heard."""
_YES: Final = "\N{WHITE HEAVY CHECK MARK}"  # never said by a caller


def _phrases(listed: str) -> tuple[str, ...]:
    """Returns a comma-separated list as folded phrases, the longest first."""
    return tuple(sorted((folded(phrase.strip()) for phrase in listed.split(",")), key=len, reverse=True))


_AGREEMENT: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "en": _phrases(
            "yes, yeah, yep, yup, sure, ok, okay, alright, all right, correct, right, fine, absolutely, "
            "certainly, definitely, exactly, agreed, confirmed, of course, go ahead, go for it, do it, do "
            "that, please do, sounds good, you can, you may, you can do that, i agree, i confirm, i do, i "
            "would, it is, that's right, that's correct, that's fine, that's ok, that's okay, that is "
            "right, that is correct, that is fine, that works, by all means"
        ),
        "ar": _phrases(
            "نعم, أجل, أيوه, أيوا, إيه, اي, طبعا, أكيد, صحيح, تمام, موافق, موافقة, حاضر, ماشي, صح, "
            "بالتأكيد, بلى, مضبوط, أوافق, اوكي, اوك"
        ),
    }
)
"""Phrases that agree by themselves, by language."""

_COMPANIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "en": _phrases(
            "please, thanks, thank you, very much, oh, ah, um, uh, er, hm, hmm, mm, sir, madam, ma'am, "
            "dear, then, it, that, great, perfect, no problem, why not, for me"
        ),
        "ar": _phrases(
            "شكرا, شكرا لك, شكرا جزيلا, رجاء, من فضلك, لو سمحت, طيب, أنا, هذا, هو, يا, سيدي, أخي, أختي, "
            "تفضل, تفضلي, آه, لا مشكلة, ما في مشكلة, مافي مشكلة"
        ),
    }
)
"""Phrases of politeness that may stand beside an agreement, by language."""

_NOT_ECHOED: Final = frozenset(
    _phrases(
        "or, if, but, not, is, are, was, do, does, did, can, could, may, shall, should, will, would, "
        "what, which, who, whose, when, where, why, how, wait, no, never, don't, هل, أم, أو, لو, إذا, "
        "لكن, ما, ماذا, من, متى, أين, كيف, كم, لا, ليس, غير"
    )
)
"""Words of the question that would turn an answer into something else, and so do not count as an echo."""

_UNCLEAR: Final = frozenset({"yeah right"})


@dataclass(frozen=True, slots=True)
class Pending:
    """A tool that waits for the caller's yes, with the arguments that were read to the caller."""

    tool: Tool
    arguments: Mapping[str, Any]
    question: str


def question(template: str, arguments: Mapping[str, Any]) -> str:
    """Returns the question to the caller: `{{name}}` in the template is an argument."""
    return PLACEHOLDER.sub(lambda mark: _read_out(arguments.get(mark[1], "")), template)


def unreadable(template: str, arguments: Mapping[str, Any]) -> list[str]:
    """Returns the arguments in the question that are too long to be read out."""
    named = dict.fromkeys(placeholders(template))
    return [name for name in named if len(_read_out(arguments.get(name, ""))) > MAX_VALUE]


def agrees(text: str, language: str, asked: str = "") -> bool:
    """Whether the caller's words are a yes and nothing else: words that agree, politeness, and after them
    words of the question that was `asked`. Any other words are not, and the caller is asked again: "okay can
    you repeat that" contains a yes-word too."""
    said = folded(plain_words(text))
    if said in _UNCLEAR:
        return False
    languages = dict.fromkeys((language.lower().split("-")[0], "en"))
    for lists, mark in ((_AGREEMENT, f" {_YES} "), (_COMPANIONS, " ")):
        for each in languages:
            said = _any_of(lists.get(each, ())).sub(mark, said)
    words = said.split()
    echoed = set(folded(plain_words(asked)).split()) - _NOT_ECHOED
    return words[:1] == [_YES] and all(word == _YES or word in echoed for word in words)


@cache
def _any_of(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """Returns a pattern for any of the phrases, as whole words."""
    return re.compile(rf"(?<!\S)(?:{'|'.join(map(re.escape, phrases))})(?!\S)" if phrases else r"(?!)")


def _read_out(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split())
