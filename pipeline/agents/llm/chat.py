"""Streams answers from a chat model behind an OpenAI-compatible API.

An answer that fails before its first word is requested once more, from the next model where there is one;
after the first word the caller has heard a part, and the failure is raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from pipeline.agents.llm.completion import Completion
from pipeline.agents.llm.history import Message
from pipeline.agents.llm.markup import MarkupGate
from pipeline.engines.aio import closing
from pipeline.engines.guard import EngineHealth, Guard
from pipeline.errors import EngineError, EngineTimeout, contained
from pipeline.net.untrusted import clean_text

log = logging.getLogger(__name__)

PATH: Final = "chat/completions"
RETRY_PAUSE_S: Final = 0.2
THOUGHTLESS: Final = 8
"""Answers in a row without thoughts, after which thoughts are no longer waited for: waiting for thoughts that
do not come means waiting for the end of the answer."""

DRAIN_S: Final = 0.2
"""Seconds from the end of the answer to the end of the stream, after which the connection can be used
again."""


class BrokenOff(EngineError):
    """The answer stopped in the middle, after words or a part of a tool call."""


class SaidNothing(EngineError):
    """The answer is complete, and holds neither a word nor a call of a tool."""

    def __init__(self) -> None:
        super().__init__("the model said nothing", retryable=True)


class ChatEndpoint(Protocol):
    """The connection to a model's server, as `pipeline.net.model_endpoint.ModelEndpoint` implements it."""

    def stream_sse(
        self, path: str, body: Mapping[str, Any], *, first_s: float, stall_s: float
    ) -> AsyncIterator[str]:
        """Posts `body`; yields the data of each server-sent event. Raises `EngineError`."""

    async def post_json(self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None) -> Any:
        """Posts `body`; returns the JSON of the answer. Raises `EngineError`."""

    async def close(self) -> None:
        """Closes the connections to the model's server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """Settings of a model's requests. `timeout_s`: until the first word, all attempts together; `stall_s`:
    between two words."""

    temperature: float | None = None
    max_tokens: int | None = None
    timeout_s: float = 6.0
    stall_s: float = 4.0

    def body(self, model: str, messages: Sequence[Message]) -> dict[str, Any]:
        """Returns the body of a request, without `stream` and tools."""
        body: dict[str, Any] = {"model": model, "messages": list(messages)}
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        return body


@dataclass(frozen=True, slots=True, eq=False)
class ChatModel:
    """A model, the connection to its server, and the guard of the two."""

    name: str
    endpoint: ChatEndpoint
    guard: Guard


class _Patience:
    """How long the words of one answer are waited for: `first_s` for the first, `thinking_s` where the model
    is seen to think. Pings, empty chunks and thoughts are no words: many servers send them while the model
    behind them hangs, and the caller hears none of them."""

    __slots__ = ("_asked", "_heard", "_name", "_since", "_stall_s", "_thinking_s", "first_s")

    def __init__(self, name: str, first_s: float, *, thinking_s: float, stall_s: float) -> None:
        self.first_s = first_s
        self._name = name
        self._thinking_s = thinking_s
        self._stall_s = stall_s
        self._asked = self._since = asyncio.get_running_loop().time()
        self._heard = 0  # characters of the answer so far

    async def next(self, events: AsyncIterator[str], *, heard: int, thinks: bool) -> str:
        """The next event. Raises TimeoutError where that takes too long, `EngineError` for none."""
        if heard != self._heard:
            self._heard, self._since = heard, asyncio.get_running_loop().time()
        wait_s = self._thinking_s if thinks else self.first_s
        try:
            async with asyncio.timeout_at(self._since + self._stall_s if heard else self._asked + wait_s):
                data = await anext(events, None)
        except TimeoutError:
            if thinks and not heard:
                raise EngineTimeout(f"{self._name} thinks without an end") from None
            raise
        if data is None:
            raise EngineError("the model's answer broke off", retryable=True)
        return data


class Chat:
    """The models of an agent, shared by its calls: the first one answers, each other one when those before it
    fail. A single model is asked twice."""

    def __init__(self, models: Sequence[ChatModel], settings: ChatSettings) -> None:
        self.settings = settings
        self._models = tuple(models)
        self._since_thought = dict.fromkeys(self._models, THOUGHTLESS)  # answers
        self._attempts = self._models if len(self._models) > 1 else self._models * 2
        self._first_s = settings.timeout_s / len(self._attempts)
        self._pause_s = RETRY_PAUSE_S if len(self._models) == 1 else 0.0  # before another attempt

    def health(self) -> list[EngineHealth]:
        """Gives the figures of each model."""
        return [model.guard.health for model in self._models]

    async def stream(
        self,
        messages: Sequence[Message],
        completion: Completion,
        *,
        tools: Sequence[Message] = (),
        may_call: bool = True,
        on_fault: Callable[[str], Awaitable[None]],
    ) -> AsyncGenerator[str, None]:
        """Yields the words of the answer that can be said, without markup and thoughts; tool calls are in
        `completion` at the end. `on_fault` is called with each failure after which another request follows.
        Raises `EngineError`, `SaidNothing` among them, and `BrokenOff` for an answer that had begun."""
        more: dict[str, Any] = {"stream": True} | ({"tools": list(tools)} if tools else {})
        if tools and not may_call:
            more["tool_choice"] = "none"
        failed: EngineError | None = None
        until = asyncio.get_running_loop().time() + self.settings.timeout_s
        for model in _admitted(self._attempts):
            if failed is not None:
                if not self._gets_over(failed, until):
                    model.guard.given_up(0.0)
                    break
                await on_fault(str(failed))
                await asyncio.sleep(self._pause_s)
            begun = False
            try:
                body = self.settings.body(model.name, messages) | more
                stream = self._guarded(model, body, completion, self._patience(model, until))
                async with closing(stream) as words:
                    async for text in words:
                        begun = begun or bool(text.strip())
                        yield text
                return
            except EngineError as error:
                if begun or completion.has_calls:
                    raise BrokenOff(str(error), retryable=error.retryable) from error
                failed = error
        assert failed is not None  # the last attempt is always made
        raise failed

    def _gets_over(self, failed: EngineError, until: float) -> bool:
        """Whether another attempt makes sense, and can still bring the words by `until`."""
        if len(self._models) == 1 and not failed.retryable:
            return False
        return asyncio.get_running_loop().time() + self._pause_s < until

    def _patience(self, model: ChatModel, until: float) -> _Patience:
        """Returns the time for one attempt. The last model may think for all the time that is left, since
        another attempt would begin the thought anew; one before it has its share, since the next may have the
        words at once."""
        left_s = until - asyncio.get_running_loop().time()
        first_s = min(self._first_s, left_s)
        thinking_s = left_s if model is self._models[-1] else first_s
        return _Patience(model.guard.name, first_s, thinking_s=thinking_s, stall_s=self.settings.stall_s)

    async def _guarded(
        self, model: ChatModel, body: Mapping[str, Any], completion: Completion, patience: _Patience
    ) -> AsyncGenerator[str, None]:
        """Yields the words, and tells the guard how the request ended."""
        asked = asyncio.get_running_loop().time()
        begun = False
        try:
            with contained(model.guard.name):
                async with closing(self._words(model, body, completion, patience)) as words:
                    async for text in words:
                        begun = begun or bool(text.strip())
                        yield text
                if not begun and not completion.has_calls:
                    raise SaidNothing
        except EngineError as error:
            model.guard.failed(error)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            model.guard.given_up(0.0 if begun else asyncio.get_running_loop().time() - asked)
            raise
        model.guard.succeeded()

    async def _words(
        self, model: ChatModel, body: Mapping[str, Any], completion: Completion, patience: _Patience
    ) -> AsyncGenerator[str, None]:
        completion.begin()
        gate = MarkupGate(thinks=self._since_thought[model] < THOUGHTLESS)
        said = 0
        events = model.endpoint.stream_sse(
            PATH, body, first_s=patience.first_s, stall_s=max(patience.first_s, self.settings.stall_s)
        )
        async with closing(events):
            while not completion.finish_reason:
                thinks = completion.thinks or gate.is_hiding
                data = await patience.next(events, heard=said + completion.asked, thinks=thinks)
                text = gate.feed(completion.feed(data))
                said += len(text.strip())
                if text:
                    yield text
            await _drain(events)
        rest = gate.finish()
        self._note_thought(model, gate.has_thought)
        if rest:
            yield rest

    def _note_thought(self, model: ChatModel, thought: bool) -> None:
        """Notes whether an answer had the end of thoughts without their beginning: the model's template holds
        the beginning, and its server does not separate thoughts from words. The first such answer is heard
        with its thoughts; later ones are held back until their thoughts end, until `THOUGHTLESS` answers in a
        row have had none."""
        since = self._since_thought[model]
        if thought and since >= THOUGHTLESS:
            log.warning("model thinks aloud, its server should part thoughts from words")
        self._since_thought[model] = 0 if thought else min(THOUGHTLESS, since + 1)

    async def ask(self, messages: Sequence[Message], *, timeout_s: float, **extra: Any) -> str:
        """Returns the whole answer at once, of the first model that gives one within the shared deadline.
        Raises `EngineError`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        failed: EngineError | None = None
        for model in _admitted(self._models):
            left_s = until - loop.time()
            if failed is not None and left_s <= 0:
                model.guard.given_up(0.0)
                break
            try:
                with contained(model.guard.name):
                    body = replace(self.settings, max_tokens=None).body(model.name, messages) | extra
                    content = _content(await model.endpoint.post_json(PATH, body, timeout_s=left_s))
            except EngineTimeout as error:
                model.guard.given_up(0.0)  # a long text that no caller waits for
                failed = error
            except EngineError as error:
                model.guard.failed(error)
                failed = error
            else:
                model.guard.succeeded()
                return content
        assert failed is not None
        raise failed

    async def close(self) -> None:
        """Closes the connections of every model."""
        for model in self._models:
            await model.endpoint.close()


def _admitted(models: Sequence[ChatModel]) -> Iterator[ChatModel]:
    """Yields the models whose breakers admit a request; the last one in any case, because no other can answer
    in its place."""
    for place, model in enumerate(models, 1):
        if model.guard.admits(always=place == len(models)):
            yield model


def _content(answer: Any) -> str:
    try:
        content = answer["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise EngineError("the model's answer has no content", retryable=True) from None
    if not isinstance(content, str):
        raise EngineError("the model's answer is no text", retryable=True)
    return clean_text(content)


async def _drain(events: AsyncIterator[str]) -> None:
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in events:
                pass
    except (TimeoutError, EngineError):
        return
