"""Turns a language model's output into speakable text: no Markdown, emoji, SSML, thoughts or stage
directions.

Models are told to write plain sentences and do not always. A caller must never hear "asterisk asterisk".
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Final

from pipeline.agents.llm import directions
from pipeline.text import formulas

MAX_HELD: Final = 300
"""Characters after which an open bracket is a bracket, not the start of markup."""

_TAGS: Final = (
    "think|thinking|thought|thoughts|reasoning|reflection|analysis|scratchpad|tool_call|tool_calls"
    "|tool_response|function_call|function|invoke"
)
_HIDDEN: Final = re.compile(
    rf"```.*?```|<({_TAGS})\b[^<>]{{0,80}}>.*?</\1>|<!--.*?-->"
    r"|<\|channel\|>(?:analysis|commentary).*?<\|(?:end|call)\|>"
    r"|<[|｜]tool[^<>|｜]{0,40}begin[|｜]>.*?<[|｜]tool[^<>|｜]{0,40}end[|｜]>"
    r"|\{\s{0,9}\"\w{1,40}\"\s{0,9}:.*?\}[ \t]*\n",
    re.DOTALL | re.IGNORECASE,
)
"""Fences, thoughts, comments, and calls of tools that a server took for words: in tags, between the special
tokens of a model's own format, or as bare JSON."""

_HIDDEN_OPEN: Final = re.compile(
    rf"```|<(?:{_TAGS})\b[^<>]{{0,80}}>|<!--|<\|channel\|>(?:analysis|commentary)"
    r"|<[|｜]tool[^<>|｜]{0,40}begin[|｜]>|<\|python_tag\|>|\[TOOL_CALLS\]"
    r"|\{\s{0,9}\"\w{1,40}\"\s{0,9}:",
    re.IGNORECASE,
)
_PERHAPS: Final = re.compile(r"(?:<\|(?:start|channel)\|>\w{0,20}|\{\s{0,9}(?:\"\w{0,40}(?:\"\s{0,9})?)?)\Z")
_LONGEST_MARK: Final = 20
_AT_ONCE: Final = 500
"""Characters searched at once: the time of a search to the end of the text grows with its square."""
_THOUGHT: Final = re.compile(r"</(?:think|thinking|thought|thoughts|reasoning)>", re.IGNORECASE)
_TAG: Final = re.compile(
    r"</?[A-Za-z][^<>]{0,300}>|<\|(?:start|channel)\|>\w{0,20}|<[|｜][^<>|｜]{0,60}[|｜]>"
)
_LINK: Final = re.compile(r"!?\[([^\[\]]{0,300})\]\([^()]{0,300}\)")
_LINE_MARK: Final = re.compile(
    r"(?m)^[ \t]*(?:#{1,6}[ \t]+|>(?:[ \t]+|(?!\d))|[-*+•][ \t]+(?:\[[ xX]\][ \t]*)?|[-*_=]{3,}[ \t]*$)"
)
_NUMBERED: Final = re.compile(r"(?m)^[ \t]*(\d{1,2})[.)][ \t]+")
_NOTE: Final = re.compile(r"\[\^\d{1,3}\]|(?<=\S)\[\d{1,3}\]|\\[()\[\]]|\$\$")
"""Marks of footnotes, and loose ones of mathematics."""
_ADDRESS: Final = re.compile(r"<(https?://[^\s<>]{1,300}|(?:mailto:)?[^\s<>@]{1,64}@[^\s<>]{1,255})>")
_ENTITY: Final = re.compile(r"&(?:[a-z]{2,8}|#\d{1,6});")
_CELLS: Final = re.compile(r"[ \t]*\|[ \t|:-]*")
_KEY: Final = r"(?<=\s)\*(?=[ \t]\w|[.,;!?)]|\Z)"
"""The key of a telephone; bullets have been removed before."""
_LOOSE: Final = re.compile(r" (?=[.,;:!?](?:\s|\Z))")
_EMPHASIS: Final = re.compile(rf"(?<![A-Za-z0-9])_+|_+(?![A-Za-z0-9])|~~+|~(?!\d)|(?!{_KEY})[*`]+")
_JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f\u20e3")


class MarkupGate:
    """Passes a stream of text on, without parts that are not said, such as thoughts and tool calls.

    A hidden part is dropped, also when it is never closed; text that may begin a tag or a link waits for its
    end. `thinks`: the model is known to begin with thoughts and to mark only their end, so that all text
    waits for that mark. `has_thought`: such a mark has come."""

    __slots__ = ("_held", "_waits", "has_thought")

    def __init__(self, *, thinks: bool = False) -> None:
        self.has_thought = False
        self._held = ""
        self._waits = thinks

    @property
    def is_hiding(self) -> bool:
        """Whether the next text belongs to a hidden part that has not ended."""
        return bool(self._held) and (self._waits or _HIDDEN_OPEN.match(self._held) is not None)

    def feed(self, text: str) -> str:
        """Takes more of the stream; returns the text that may be said."""
        return "".join(self._feed(text[at : at + _AT_ONCE]) for at in range(0, len(text), _AT_ONCE))

    def _feed(self, text: str) -> str:
        seen, self._held = max(0, len(self._held) - _LONGEST_MARK), self._held + text
        if self._waits and not _THOUGHT.search(self._held, seen):
            return ""
        self._waits = False
        self._held = _HIDDEN.sub(" ", self._held)
        for thought in [*_THOUGHT.finditer(self._held)][-1:]:
            self.has_thought = True
            self._held = self._held[thought.end() :]
        cut = self._certain()
        out, self._held = self._held[:cut], self._held[cut:]
        opened = _HIDDEN_OPEN.match(self._held)
        if opened:  # only the end of the hidden part matters from here on
            self._held = self._held[: opened.end()] + self._held[opened.end() :][-60:]
        return _without_tags(out)

    def finish(self) -> str:
        """Ends the stream; returns held text that turned out to be no markup."""
        held, self._held = self._held, ""
        opened = _HIDDEN_OPEN.search(held)
        return _without_tags(held[: opened.start()] if opened else held)

    def _certain(self) -> int:
        held = self._held
        opened = _HIDDEN_OPEN.search(held)
        if opened:
            held = held[: opened.start()]
        limit = len(held.rstrip("`"))  # one or two at the end may become a fence
        perhaps = _PERHAPS.search(held)
        if perhaps:
            limit = min(limit, perhaps.start())
        link = held.rfind("[", max(0, len(held) - MAX_HELD))
        if link >= 0 and _link_unfinished(held[link:]):
            limit = min(limit, link)
        tag = held.rfind("<", 0, limit)
        if tag >= 0 and len(held) - tag <= MAX_HELD and _tag_unfinished(held[tag:limit]):
            limit = tag
        return min(limit, formulas.unfinished(held[:limit]), directions.unfinished(held[:limit]))


def _tag_unfinished(text: str) -> bool:
    return ">" not in text and (len(text) == 1 or text[1] in "/!|｜" or text[1].isalpha())


def _link_unfinished(text: str) -> bool:
    ended = text.find("]")
    if ended < 0:
        return True
    return len(text) == ended + 1 or (text[ended + 1] == "(" and ")" not in text[ended:])


def _without_tags(text: str) -> str:
    return directions.without_directions(_TAG.sub(" ", _ADDRESS.sub(r"\1", _LINK.sub(r"\1", text))))


def tidy(text: str) -> str:
    """Returns a piece of text as it is said: without Markdown, emoji and control characters; "" where nothing
    is left to say."""
    text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), _NOTE.sub("", text))
    text = _NUMBERED.sub(r"\1, ", _LINE_MARK.sub("", text))
    text = "\n".join(_CELLS.sub(", ", line.strip(" \t|")) for line in text.split("\n"))
    text = _EMPHASIS.sub("", text)
    text = " ".join("".join(character if _sayable(character) else " " for character in text).split())
    text = _LOOSE.sub("", text)
    return text if any(character.isalnum() for character in text) else ""


def _sayable(character: str) -> bool:
    if character in _JOINERS:
        return False
    category = unicodedata.category(character)
    if category == "So":
        return character in "°№"
    return category not in ("Cc", "Cs", "Co", "Cn", "Sk")
