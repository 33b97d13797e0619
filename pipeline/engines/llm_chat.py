"""Asking a chat model behind an OpenAI-compatible API, with its words as they come.

An answer that fails before its first word is asked for once more; after that the caller has heard something,
and whoever asked must say what becomes of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pipeline.boundary import contained
from pipeline.engines.llm_completion import Completion
from pipeline.engines.llm_history import Message
from pipeline.errors import EngineError
from pipeline.voice import closing

log = logging.getLogger(__name__)

PATH: Final = "chat/completions"
RETRY_PAUSE_S: Final = 0.2
DRAIN_S: Final = 0.2
"""From the end of the answer to that of the stream, after which the connection can be used again."""


class BrokenOff(EngineError):
    """The answer stopped in the middle: something of it has been said, or a tool was being asked for."""


class ChatEndpoint(Protocol):
    """Where the model is: what `pipeline.engines.openai_http.ModelEndpoint` offers."""

    def stream_sse(
        self, path: str, body: Mapping[str, Any], *, first_s: float, stall_s: float
    ) -> AsyncIterator[str]:
        """Posts `body`; the data of each event. Raises `EngineError`."""

    async def post_json(self, path: str, body: Mapping[str, Any], *, timeout_s: float | None = None) -> Any:
        """Posts `body`; the JSON that comes back. Raises `EngineError`."""

    async def close(self) -> None:
        """Closes its connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """The model and its manners. `timeout_s` is for the first word, both attempts together; `stall_s` between
    two."""

    model: str
    temperature: float | None = None
    max_tokens: int | None = None
    timeout_s: float = 6.0
    stall_s: float = 4.0

    def body(self, messages: Sequence[Message]) -> dict[str, Any]:
        """A request, without what is particular to it."""
        body: dict[str, Any] = {"model": self.model, "messages": list(messages)}
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        return body


class Chat:
    """One model, shared by the calls of its agents."""

    def __init__(self, endpoint: ChatEndpoint, settings: ChatSettings) -> None:
        self.settings = settings
        self._endpoint = endpoint

    async def stream(
        self,
        messages: Sequence[Message],
        completion: Completion,
        *,
        tools: Sequence[Message] = (),
        may_call: bool = True,
        on_fault: Callable[[str], Awaitable[None]],
    ) -> AsyncGenerator[str, None]:
        """The words of the answer; its calls are in `completion` at the end. `on_fault` hears of a failure
        that was got over. Raises `EngineError`, and `BrokenOff` for an answer that had begun."""
        body = self.settings.body(messages) | {"stream": True}
        if tools:
            body["tools"] = list(tools)
            if not may_call:
                body["tool_choice"] = "none"
        for last in (False, True):
            begun = False
            try:
                with contained("the model"):
                    async with closing(self._words(body, completion)) as words:
                        async for text in words:
                            begun = True
                            yield text
                return
            except EngineError as error:
                if begun or completion.has_calls:
                    raise BrokenOff(str(error), retryable=error.retryable) from error
                if last or not error.retryable:
                    raise
                await on_fault(str(error))
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _words(self, body: Mapping[str, Any], completion: Completion) -> AsyncGenerator[str, None]:
        settings = self.settings
        events = self._endpoint.stream_sse(
            PATH, body, first_s=settings.timeout_s / 2, stall_s=settings.stall_s
        )
        async with closing(events):
            async for data in events:
                text = completion.feed(data)
                if text:
                    yield text
                if completion.finish_reason:
                    break
            else:
                raise EngineError("the model's answer broke off", retryable=True)
            await _drain(events)

    async def ask(self, messages: Sequence[Message], *, timeout_s: float, **extra: Any) -> str:
        """The whole answer at once. Raises `EngineError`."""
        body = self.settings.body(messages) | extra
        with contained("the model"):
            answer = await self._endpoint.post_json(PATH, body, timeout_s=timeout_s)
        try:
            content = answer["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError):
            raise EngineError("the model's answer has no content", retryable=True) from None
        if not isinstance(content, str):
            raise EngineError("the model's answer is no text", retryable=True)
        return content

    async def close(self) -> None:
        """Closes its connections."""
        await self._endpoint.close()


async def _drain(events: AsyncIterator[str]) -> None:
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in events:
                pass
    except (TimeoutError, EngineError):
        return
