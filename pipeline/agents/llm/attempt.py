"""One request to a chat model: its words as they come, its tool calls, and how long each is waited for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pipeline.agents.llm.completion import Completion
from pipeline.agents.llm.markup import MarkupGate
from pipeline.engines.aio import closing
from pipeline.engines.guard import Guard
from pipeline.errors import EngineError, EngineTimeout, contained

log = logging.getLogger(__name__)

PATH: Final = "chat/completions"
THOUGHTLESS: Final = 8
"""Answers in a row without thoughts, after which thoughts are no longer waited for: waiting for thoughts that
do not come means waiting for the end of the answer."""

DRAIN_S: Final = 0.2
"""Seconds from the end of the answer to the end of the stream, after which the connection can be used
again."""


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


@dataclass(slots=True, eq=False)
class ChatModel:
    """A model, the connection to its server, and the guard of the two. `since_thought`: answers since the
    last one that held the end of thoughts without their beginning."""

    name: str
    endpoint: ChatEndpoint
    guard: Guard
    since_thought: int = THOUGHTLESS

    def note_thought(self, thought: bool) -> None:
        """Notes whether an answer had the end of thoughts without their beginning: the model's template holds
        the beginning, and its server does not separate thoughts from words. The first such answer is heard
        with its thoughts; later ones are held back until their thoughts end, until `THOUGHTLESS` answers in a
        row have had none."""
        if thought and self.since_thought >= THOUGHTLESS:
            log.warning("model thinks aloud, its server should part thoughts from words")
        self.since_thought = 0 if thought else min(THOUGHTLESS, self.since_thought + 1)


class Attempt:
    """One request. `begin` waits for its first word; `words` yields all of them; `completion` has the tool
    calls. `until`: loop time at which the first word is given up; `stall_s`: longest wait for each further
    one. Pings, empty chunks, thoughts and marks without a letter or figure are no words: many servers send
    them while the model behind them hangs, a model whose weights are damaged sends "!!!!" without an end, and
    the caller hears none of them."""

    __slots__ = ("_asked", "_gate", "_held", "_stall_s", "_stream", "_until", "completion", "model")

    def __init__(self, model: ChatModel, body: Mapping[str, Any], *, until: float, stall_s: float) -> None:
        self.model = model
        self.completion = Completion()
        self._until = until
        self._stall_s = stall_s
        self._asked = _now()
        self._gate = MarkupGate(thinks=model.since_thought < THOUGHTLESS)
        self._held = ""
        self._stream = self._guarded(body)

    @property
    def thinks(self) -> bool:
        """Whether the model is seen to think."""
        return self.completion.thinks or self._gate.is_hiding

    @property
    def age_s(self) -> float:
        """Seconds since the request began."""
        return _now() - self._asked

    async def begin(self) -> None:
        """Waits for the first word, or the first part of a tool call. Raises `EngineError`, `SaidNothing`
        among them."""
        async for text in self._stream:
            self._held += text
            if _letters(text) or self.completion.has_calls:
                return

    async def words(self) -> AsyncGenerator[str, None]:
        """Yields the words that can be said, without markup and thoughts. Raises `EngineError`."""
        yield self._held
        async for text in self._stream:
            yield text

    async def close(self) -> None:
        """Ends the request where it is not complete."""
        await self._stream.aclose()

    async def _guarded(self, body: Mapping[str, Any]) -> AsyncGenerator[str, None]:
        """Yields the words, and tells the model's guard how the request ended."""
        guard = self.model.guard
        begun = False
        try:
            with contained(guard.name):
                async with closing(self._words(body)) as words:
                    async for text in words:
                        begun = begun or _letters(text) > 0 or self.completion.has_calls
                        yield text
                if not begun:
                    raise SaidNothing
        except EngineError as error:
            guard.failed(error)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            guard.given_up(0.0 if begun else self.age_s)
            raise
        guard.succeeded()

    async def _words(self, body: Mapping[str, Any]) -> AsyncGenerator[str, None]:
        """Yields words as they come, and "" where a tool call goes on."""
        completion, gate = self.completion, self._gate
        said = heard = 0  # letters of words, and characters of words and calls
        since = self._asked  # loop time of the last of them
        left_s = self._until - self._asked
        events = self.model.endpoint.stream_sse(
            PATH, body, first_s=left_s, stall_s=max(left_s, self._stall_s)
        )
        async with closing(events):
            while not completion.finish_reason:
                data = await self._next(events, since if heard else None)
                text = gate.feed(completion.feed(data))
                said += _letters(text)
                if said + completion.asked != heard:
                    heard, since = said + completion.asked, _now()
                if text or completion.has_calls:
                    yield text
            await _drain(events)
        rest = gate.finish()
        self.model.note_thought(gate.has_thought)
        if rest:
            yield rest

    async def _next(self, events: AsyncIterator[str], since: float | None) -> str:
        """The next event; `since`: loop time of the last word, None before the first. Raises TimeoutError
        where that takes too long, `EngineError` for none."""
        try:
            async with asyncio.timeout_at(self._until if since is None else since + self._stall_s):
                data = await anext(events, None)
        except TimeoutError:
            if self.thinks and since is None:
                raise EngineTimeout(f"{self.model.guard.name} thinks without an end") from None
            raise
        if data is None:
            raise EngineError("the model's answer broke off", retryable=True)
        return data


def _letters(text: str) -> int:
    return sum(map(str.isalnum, text))


async def _drain(events: AsyncIterator[str]) -> None:
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in events:
                pass
    except (TimeoutError, EngineError):
        return


def _now() -> float:
    return asyncio.get_running_loop().time()
