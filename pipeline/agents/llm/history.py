"""The messages that tell a model the conversation so far, as the caller heard it.

An answer that was interrupted is cut at the last word that the caller heard. One that nobody heard is left
out, unless one of its tools has changed something. The oldest exchanges are dropped at the limits, each as a
whole: a tool's result never stands without its call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from pipeline.net.untrusted import NotJson, read_json

Message: TypeAlias = dict[str, Any]

BYTES_A_TOKEN: Final = 3
"""UTF-8 bytes: low for English (four) and about right for Arabic, so that the limit holds for both."""

SHORTEST_RESULT: Final = 300
"""Bytes of a tool's result that are sent however long the messages are."""

CUT: Final = " [cut]"

UNFINISHED: Final = '{"error": "not finished when the caller spoke; whether it was done is not known"}'

_WORD: Final = re.compile(r"\w+")
_LOOK_AHEAD: Final = 2
"""Words that a voice may have written differently from the text it was given."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as the model wrote it: `arguments` should be JSON, and may not be."""

    id: str
    name: str
    arguments: str


class Said(Protocol):
    """A piece of what the agent says: `text` as the model wrote it, `spoken` as it is said."""

    @property
    def text(self) -> str:
        """The words as the model wrote them."""

    @property
    def spoken(self) -> str:
        """The words as they are said."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of text for the voice: `text` as the model wrote it, `spoken` as it is said."""

    text: str
    spoken: str


@dataclass(slots=True)
class Round:
    """One answer of the model: its words, its tool calls, and their results. `told`: how many of the segments
    a model that keeps the conversation itself knows."""

    segments: list[Said] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    told: int = 0

    def result(self, call_id: str) -> str:
        """The result of a call of a tool, as the model is told it."""
        return self.results.get(call_id, UNFINISHED)

    def messages(self) -> Iterator[Message]:
        """Yields the round as messages of the chat API."""
        content = " ".join(segment.text for segment in self.segments)
        if not content and not self.calls:
            return
        message: Message = {"role": "assistant", "content": content or None}
        if self.calls:
            message["tool_calls"] = [_call_message(call) for call in self.calls]
        yield message
        for call in self.calls:
            yield {"role": "tool", "tool_call_id": call.id, "content": self.result(call.id)}


@dataclass(slots=True)
class Exchange:
    """One event (`user`, None for the greeting) and the rounds that answer it. `acted`: a tool has changed
    something; `told`: a model that keeps the conversation itself knows of the event."""

    user: str | None
    rounds: list[Round] = field(default_factory=list)
    acted: bool = False
    told: bool = False

    def messages(self) -> Iterator[Message]:
        """Yields the exchange as messages of the chat API."""
        if self.user is not None:
            yield {"role": "user", "content": self.user}
        for each in self.rounds:
            yield from each.messages()


class History:
    """The exchanges of one call. Messages are made of at most `max_turns` of them, and of about
    `max_tokens`."""

    __slots__ = ("_exchanges", "_max_tokens", "_max_turns")

    def __init__(self, *, max_turns: int, max_tokens: int) -> None:
        self._exchanges: list[Exchange] = []
        self._max_turns = max_turns
        self._max_tokens = max_tokens

    def begin(self, user: str | None) -> Exchange:
        """Begins the exchange of an event; later rounds belong to it."""
        exchange = Exchange(user)
        self._exchanges.append(exchange)
        del self._exchanges[: -self._max_turns]
        return exchange

    @property
    def exchanges(self) -> Sequence[Exchange]:
        """The exchanges so far, the oldest first."""
        return self._exchanges

    def forget_told(self) -> None:
        """Notes that the model knows of nothing."""
        for exchange in self._exchanges:
            exchange.told = False
            for each in exchange.rounds:
                each.told = 0

    def undo(self) -> bool:
        """Removes the last exchange: its event was half of the caller's turn, and nobody heard its answer.
        True if one of its tools changed something: then the exchange is kept, without its words."""
        if not self._exchanges:
            return False
        last = self._exchanges[-1]
        if not last.acted:
            self._exchanges.pop()
            return False
        for each in last.rounds:
            each.segments.clear()
        return True

    def heard(self, text: str) -> int:
        """Cuts the last answer, which the caller interrupted, to the words of `text`. Returns how many words
        were not heard."""
        if not self._exchanges:
            return 0
        rounds = self._exchanges[-1].rounds
        said = [_words(segment.spoken) for each in rounds for segment in each.segments]
        total = sum(map(len, said))
        heard = left = _follow([word for words in said for word in words], _words(text))
        for each in rounds:
            each.segments, left = _cut(each.segments, left)
        return total - heard

    def messages(self) -> list[Message]:
        """Returns the messages for the next request, oldest first."""
        kept: list[list[Message]] = []
        budget = self._max_tokens
        for exchange in reversed(self._exchanges):
            messages = list(exchange.messages())
            if not kept:
                _shorten(messages, budget)
            budget -= sum(_tokens(message) for message in messages)
            if budget < 0 and kept:
                break
            kept.append(messages)
        return [message for messages in reversed(kept) for message in messages]


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def _follow(said: list[str], heard: list[str]) -> int:
    """Returns how many of the words `said` were heard. Words that the caller heard and the model did not
    write (a filler) are skipped."""
    place = 0
    for word in heard:
        ahead = said[place : place + 1 + _LOOK_AHEAD]
        if word in ahead:
            place += ahead.index(word) + 1
    return place


def _cut(segments: list[Said], words: int) -> tuple[list[Said], int]:
    """Returns the segments up to that word, and how many words are left for later ones."""
    kept: list[Said] = []
    for segment in segments:
        places = list(_WORD.finditer(segment.spoken))
        if words >= len(places):
            kept.append(segment)
            words -= len(places)
            continue
        if words:
            said = segment.spoken[: places[words - 1].end()]
            kept.append(Segment(said, said))
        return kept, 0
    return kept, words


def _shorten(messages: list[Message], budget: int) -> None:
    """Cuts the results of tools, the oldest first, until the messages are within the budget or nothing is
    left to cut: the exchange in progress is sent in any case."""
    over = sum(_tokens(message) for message in messages) - budget
    for place, message in enumerate(messages):
        if over > 0 and message["role"] == "tool":
            content = message["content"].encode()
            kept = max(SHORTEST_RESULT, len(content) - (over + 1) * BYTES_A_TOKEN)
            if kept < len(content):
                messages[place] = message | {"content": content[:kept].decode(errors="ignore") + CUT}
                over -= _tokens(message) - _tokens(messages[place])


def _tokens(message: Mapping[str, Any]) -> int:
    text = str(message.get("content") or "") + str(message.get("tool_calls") or "")
    return 4 + len(text.encode()) // BYTES_A_TOKEN


def _call_message(call: ToolCall) -> Message:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": _object(call.arguments)},
    }


def _object(arguments: str) -> str:
    """Returns arguments as the servers take them back: JSON, whatever the model wrote."""
    try:
        return arguments if isinstance(read_json(arguments), dict) else "{}"
    except NotJson:
        return "{}"
