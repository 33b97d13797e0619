"""Asks the models of an agent: streamed answers for the caller, whole ones after the call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pipeline.agents.llm.attempt import PATH, Attempt, ChatModel
from pipeline.agents.llm.history import Message, ToolCall
from pipeline.agents.llm.race import OnFault, Race
from pipeline.engines.aio import closing
from pipeline.engines.guard import EngineHealth
from pipeline.errors import EngineError, EngineTimeout, contained
from pipeline.net.untrusted import clean_text

Part: TypeAlias = str | ToolCall
"""Words of an answer, or a tool call after them."""


class BrokenOff(EngineError):
    """The answer stopped in the middle, after words or a part of a tool call."""


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


class Chat:
    """The models of an agent, shared by its calls: the first one answers, each other one when those before it
    fail or are late. A lone model that is late is asked a second time beside the first."""

    def __init__(self, models: Sequence[ChatModel], settings: ChatSettings) -> None:
        self.settings = settings
        self._models = tuple(models)

    def health(self) -> list[EngineHealth]:
        """Gives the figures of each model."""
        return [model.guard.health for model in self._models]

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Message] = (),
        may_call: bool = True,
        may_be_empty: bool = False,
        on_fault: OnFault,
    ) -> AsyncGenerator[Part, None]:
        """Yields the words of the answer that can be said, without markup and thoughts, then its tool calls.
        `on_fault` is called with each failure that was got over. Raises `EngineError`, `SaidNothing` among
        them, at once where the answer `may_be_empty`, and `BrokenOff` for an answer that had begun."""
        more: dict[str, Any] = {"stream": True} | ({"tools": list(tools)} if tools else {})
        if tools and not may_call:
            more["tool_choice"] = "none"
        attempt = await self._race(messages, more, may_be_empty).winner(on_fault)
        try:
            async with closing(attempt.words()) as words:
                async for text in words:
                    yield text
        except EngineError as error:
            raise BrokenOff(str(error), retryable=error.retryable) from error
        finally:
            await attempt.close()
        for call in attempt.completion.calls() if may_call else ():
            yield call

    def _race(self, messages: Sequence[Message], more: Mapping[str, Any], may_be_empty: bool) -> Race:
        settings = self.settings

        def request(model: ChatModel, until: float) -> Attempt:
            body = {**settings.body(model.name, messages), **more}
            return Attempt(model, body, until=until, stall_s=settings.stall_s)

        shares = max(2, len(self._models))
        return Race(
            self._models,
            request,
            timeout_s=settings.timeout_s,
            hedge_s=settings.timeout_s / shares,
            may_be_empty=may_be_empty,
        )

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
