"""Assembles one streamed answer of a chat model from its chunks: sans I/O, bounded, trusting nothing.

The shape is OpenAI's `chat.completion.chunk`. Deviations of servers that imitate it are accepted: calls
without an index or all with the same one, indices that begin with 1, calls that come whole, names and ids in
every fragment, a `message` in place of a `delta`, content in parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.agents.llm.history import ToolCall
from pipeline.errors import EngineError
from pipeline.net.untrusted import NotJson, read_json

MAX_TEXT: Final = 16_000  # characters of one answer: about fifteen minutes of speech
MAX_CALLS: Final = 16  # calls of one answer; further ones are ignored
MAX_ARGUMENTS: Final = 8_000  # characters of one call's arguments


_THOUGHTS: Final = ("reasoning_content", "reasoning")


@dataclass(slots=True)
class _Call:
    identity: str = ""
    name: str = ""
    arguments: str = ""

    def is_followed_by(self, identity: str, name: str) -> bool:
        """Whether a fragment for this call's place begins another call. A server that gives ids gives every
        call one; without ids a second name after complete arguments shows it."""
        if identity or self.identity:
            return bool(self.identity and identity) and identity != self.identity
        return bool(name and self.name) and _is_whole(self.arguments)


class Completion:
    """One answer: call `feed` with the `data:` of every event, then read `calls`. `asked`: characters of tool
    calls so far; `thinks`: the server streams the model's thoughts apart from the answer."""

    __slots__ = ("_calls", "_places", "_text_length", "asked", "finish_reason", "thinks")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Resets for a new answer; an earlier one is dropped."""
        self.finish_reason = ""
        self.asked = 0
        self.thinks = False
        self._text_length = 0
        self._calls: list[_Call] = []
        self._places: dict[int, int] = {}  # of the last call with an index

    def feed(self, data: str) -> str:
        """Takes one event; returns the text that the event adds. Raises `EngineError` for data that is no
        chunk of a chat model."""
        if self.finish_reason or data.strip() == "[DONE]":
            self.finish_reason = self.finish_reason or "stop"
            return ""
        choice = _choice(data)
        if choice is None:
            return ""
        delta = choice.get("delta") or choice.get("message") or {}
        if not isinstance(delta, Mapping):
            raise EngineError("the model's answer has no delta", retryable=True)
        calls = delta.get("tool_calls") or ()
        if not isinstance(calls, list | tuple):
            raise EngineError("the model's calls of tools are no list", retryable=True)
        for call in calls:
            self._take_call(call)
        self.finish_reason = str(choice.get("finish_reason") or "")
        self.thinks = self.thinks or any(delta.get(name) for name in _THOUGHTS)
        return self._take_text(_plain(delta.get("content")))

    @property
    def has_calls(self) -> bool:
        """Whether a tool call has begun."""
        return bool(self._calls)

    def calls(self) -> list[ToolCall]:
        """Returns the calls of the whole answer, in order. Their ids are the server's, and may repeat."""
        return [ToolCall(call.identity, call.name, call.arguments) for call in self._calls]

    def _take_text(self, content: str) -> str:
        self._text_length += len(content)
        if self._text_length > MAX_TEXT:
            raise EngineError("the model does not stop talking", retryable=False)
        return content

    def _take_call(self, fragment: object) -> None:
        if not isinstance(fragment, Mapping) or not isinstance(fragment.get("function") or {}, Mapping):
            raise EngineError("the model's call of a tool is not one", retryable=True)
        function: Mapping[str, Any] = fragment.get("function") or {}
        name, arguments = _text(function.get("name")), _text(function.get("arguments"))
        call = self._call(fragment.get("index"), _text(fragment.get("id"))[:200], name)
        if call is None:
            return
        if name != call.name:
            call.name += name
        call.arguments += arguments
        self.asked += len(name) + len(arguments)
        if len(call.arguments) > MAX_ARGUMENTS or len(call.name) > 200:
            raise EngineError("the model's call of a tool is too long", retryable=False)

    def _call(self, index: object, identity: str, name: str) -> _Call | None:
        """Returns the call that a fragment belongs to; None beyond `MAX_CALLS`."""
        if isinstance(index, int) and not isinstance(index, bool):
            place = self._places.get(index)
        else:
            index, place = None, len(self._calls) - 1 if self._calls else None
        if place is None or self._calls[place].is_followed_by(identity, name):
            if len(self._calls) >= MAX_CALLS:
                return None
            place = len(self._calls)
            self._calls.append(_Call())
            if index is not None:
                self._places[index] = place
        call = self._calls[place]
        call.identity = call.identity or identity
        return call


def _choice(data: str) -> Mapping[str, Any] | None:
    """Returns the first choice of a chunk, None for a chunk without choices (usage, a keep-alive). Raises
    `EngineError`."""
    try:
        chunk = read_json(data)
    except NotJson:
        raise EngineError("the model's answer is not JSON", retryable=True) from None
    if not isinstance(chunk, Mapping):
        raise EngineError("the model's answer is not an object", retryable=True)
    if chunk.get("error"):
        raise EngineError("the model's server gave up in the middle", retryable=True)
    choices = chunk.get("choices")
    if not choices:
        return None
    if not isinstance(choices, list) or not isinstance(choices[0], Mapping):
        raise EngineError("the model's answer has no choices", retryable=True)
    return choices[0]


def _plain(content: object) -> str:
    """Returns the words of a content, which may be a list of parts: text, and thoughts that are not said."""
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
        return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    return content if isinstance(content, str) else ""


def _is_whole(arguments: str) -> bool:
    try:
        return isinstance(read_json(arguments), dict)
    except NotJson:
        return False


def _text(value: object) -> str:
    return value if isinstance(value, str) else ("" if value is None else json.dumps(value))
