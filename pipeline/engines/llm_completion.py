"""One streamed answer of a chat model, put together from its chunks: sans I/O, bounded, trusting nothing.

The shape is OpenAI's `chat.completion.chunk`; the deviations of servers that imitate it are borne: calls
without an index, calls that come whole, a `message` in the place of a `delta`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pipeline.engines.llm_history import ToolCall
from pipeline.errors import EngineError
from pipeline.foreign_json import NotJson, read_json

MAX_TEXT: Final = 16_000  # characters of one answer: about fifteen minutes of speech
MAX_CALLS: Final = 16  # of one answer; further ones are not heard
MAX_ARGUMENTS: Final = 8_000  # characters of one call's


class Completion:
    """Feed it the `data:` of every event, then ask for `calls`."""

    __slots__ = ("_arguments", "_ids", "_length", "_names", "finish_reason")

    def __init__(self) -> None:
        self.finish_reason = ""
        self._length = 0
        self._ids: list[str] = []
        self._names: list[str] = []
        self._arguments: list[str] = []

    def feed(self, data: str) -> str:
        """One event; the text that it adds. Raises `EngineError` for what is no answer of a chat model."""
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
        return self._take_text(delta.get("content"))

    @property
    def has_calls(self) -> bool:
        """Whether the model has asked for any tool, as far as it has got."""
        return bool(self._ids)

    def calls(self) -> list[ToolCall]:
        """The calls of the whole answer, in order, each with an id of its own."""
        return [
            ToolCall(f"call_{place}_{identity}" if identity in self._ids[:place] else identity, name, text)
            for place, (identity, name, text) in enumerate(
                zip(self._ids, self._names, self._arguments, strict=True)
            )
        ]

    def _take_text(self, content: object) -> str:
        if not isinstance(content, str):
            return ""
        self._length += len(content)
        if self._length > MAX_TEXT:
            raise EngineError("the model does not stop talking", retryable=False)
        return content

    def _take_call(self, call: object) -> None:
        if not isinstance(call, Mapping) or not isinstance(call.get("function") or {}, Mapping):
            raise EngineError("the model's call of a tool is not one", retryable=True)
        function: Mapping[str, Any] = call.get("function") or {}
        place = self._place(call)
        if place >= MAX_CALLS:
            return
        self._names[place] += _text(function.get("name"))
        self._arguments[place] += _text(function.get("arguments"))
        if len(self._arguments[place]) > MAX_ARGUMENTS or len(self._names[place]) > 200:
            raise EngineError("the model's call of a tool is too long", retryable=False)

    def _place(self, call: Mapping[str, Any]) -> int:
        identity = _text(call.get("id"))[:200]
        index = call.get("index")
        if not isinstance(index, int) or isinstance(index, bool):
            index = len(self._ids) if identity or not self._ids else len(self._ids) - 1
        if not 0 <= index < MAX_CALLS:
            return MAX_CALLS
        while len(self._ids) <= index:
            self._ids.append(f"call_{len(self._ids)}")
            self._names.append("")
            self._arguments.append("")
        if identity:
            self._ids[index] = identity
        return index


def _choice(data: str) -> Mapping[str, Any] | None:
    """The first choice of a chunk, None for one that has none (usage, a keep-alive)."""
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


def _text(value: object) -> str:
    return value if isinstance(value, str) else ("" if value is None else json.dumps(value))
