"""What a language model writes, made into what can be said: no Markdown, emoji or SSML, no thinking aloud.

Models are told to write plain sentences and do not always. A caller must never hear "asterisk asterisk".
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_HELD: Final = 300
"""Characters: a bracket that is not closed after so many is a bracket, not the start of markup."""

_HIDDEN: Final = re.compile(
    r"```.*?```|<(think|thinking|reasoning)>.*?</\1>|<!--.*?-->", re.DOTALL | re.IGNORECASE
)
_HIDDEN_OPEN: Final = re.compile(r"```|<(?:think|thinking|reasoning)>|<!--", re.IGNORECASE)
_TAG: Final = re.compile(r"</?[A-Za-z][^<>]{0,300}>")
_LINK: Final = re.compile(r"!?\[([^\[\]]{0,300})\]\([^()]{0,300}\)")
_LINE_MARK: Final = re.compile(r"(?m)^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|[-*+•][ \t]+|[-*_=]{3,}[ \t]*$)")
_NUMBERED: Final = re.compile(r"(?m)^[ \t]*(\d{1,2})[.)][ \t]+")
_EMPHASIS: Final = re.compile(r"(?<![A-Za-z0-9])[_~]+|[_~]+(?![A-Za-z0-9])|[*`]+")
_JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f\u20e3")


class MarkupGate:
    """Lets a stream of text through once it is certain that it is not part of something that is not said.

    Fences, thinking and comments are dropped, also when they are never closed; a tag or a link waits for
    its end."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """More of the stream; what of it may go on."""
        self._held = _HIDDEN.sub(" ", self._held + text)
        cut = self._certain()
        out, self._held = self._held[:cut], self._held[cut:]
        if _HIDDEN_OPEN.match(self._held):
            self._held = self._held[:20] + self._held[20:][-20:]  # only its end matters any more
        return _without_tags(out)

    def finish(self) -> str:
        """The stream is over; what was held and is text after all."""
        held, self._held = self._held, ""
        opened = _HIDDEN_OPEN.search(held)
        return _without_tags(held[: opened.start()] if opened else held)

    def _certain(self) -> int:
        held = self._held
        opened = _HIDDEN_OPEN.search(held)
        if opened:
            held = held[: opened.start()]
        limit = len(held.rstrip("`"))  # one or two at the end may become a fence
        tag = held.rfind("<")
        if tag >= 0 and len(held) - tag <= MAX_HELD and _tag_unfinished(held[tag:]):
            limit = min(limit, tag)
        link = held.rfind("[", max(0, len(held) - MAX_HELD))
        if link >= 0 and _link_unfinished(held[link:]):
            limit = min(limit, link)
        return limit


def _tag_unfinished(text: str) -> bool:
    return ">" not in text and (len(text) == 1 or text[1] in "/!" or text[1].isalpha())


def _link_unfinished(text: str) -> bool:
    ended = text.find("]")
    if ended < 0:
        return True
    return len(text) == ended + 1 or (text[ended + 1] == "(" and ")" not in text[ended:])


def _without_tags(text: str) -> str:
    return _TAG.sub(" ", _LINK.sub(r"\1", text))


def tidy(text: str) -> str:
    """A piece of text as it is said: without marks of Markdown, emoji and control characters; "" where
    nothing is left to say."""
    text = _NUMBERED.sub(r"\1, ", _LINE_MARK.sub("", text))
    text = _EMPHASIS.sub("", text.replace("|", ", "))
    text = " ".join("".join(character if _sayable(character) else " " for character in text).split())
    return text if any(character.isalnum() for character in text) else ""


def _sayable(character: str) -> bool:
    if character in _JOINERS:
        return False
    category = unicodedata.category(character)
    if category == "So":
        return character in "°№"
    return category not in ("Cc", "Cs", "Co", "Cn", "Sk")
