"""An engine with its breaker and its figures, shared by all calls of the process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

from pipeline.engines.breaker import Breaker, BreakerSettings, BreakerState
from pipeline.errors import EngineBusy, EngineError, EngineRefused, EngineResting, EngineTimeout
from pipeline.speech import SpeechChunk, TextToSpeech

log = logging.getLogger(__name__)


@runtime_checkable
class RemoteEngine(Protocol):
    """What an engine behind a network has beside what it is: `deadline_s` as `Guard` takes it, and a way to
    see whether the other end is there."""

    @property
    def deadline_s(self) -> float:
        """How long a caller can wait for it."""

    async def check(self) -> str:
        """ "" if it can be reached, or why not."""


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """How one engine does."""

    kind: str
    name: str
    requests: int
    errors: int
    state: BreakerState


class Guard:
    """The breaker and the figures of one engine. `name` is for people. `deadline_s`: whoever was kept waiting
    for so long and gave up had a reason that counts against the engine; None for an engine in this machine,
    which is late when the machine is: all others would be too."""

    __slots__ = ("_breaker", "_errors", "_requests", "deadline_s", "kind", "name")

    def __init__(
        self,
        kind: str,
        name: str,
        *,
        deadline_s: float | None = None,
        settings: BreakerSettings | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.deadline_s = deadline_s
        self._breaker = Breaker(settings)
        self._requests = 0
        self._errors = 0

    @property
    def health(self) -> EngineHealth:
        """The figures so far."""
        return EngineHealth(self.kind, self.name, self._requests, self._errors, self._breaker.state)

    def rests(self) -> bool:
        """Whether the engine is left alone at the moment."""
        return self._breaker.rests(_now())

    def admits(self, *, always: bool = False) -> bool:
        """Whether a request may be sent; it is then counted. `always`: there is no other engine to ask."""
        admitted = self._breaker.admits(_now()) or always
        self._requests += admitted
        return admitted

    def succeeded(self) -> None:
        """The engine answered."""
        if self._breaker.state is not BreakerState.CLOSED:
            log.info("engine works again", extra={"kind": self.kind, "engine": self.name})
        self._breaker.succeeded()

    def failed(self, error: EngineError) -> None:
        """The engine failed; a request that it cannot serve is no failure."""
        if isinstance(error, EngineRefused):
            self._breaker.succeeded()
            return
        self._errors += 1
        before = self._breaker.state
        rest_s = error.retry_after_s if isinstance(error, EngineBusy) else 0.0
        self._breaker.failed(_now(), slow=isinstance(error, EngineTimeout), rest_s=rest_s)
        if self._breaker.state is BreakerState.OPEN and before is not BreakerState.OPEN:
            extra = {"kind": self.kind, "engine": self.name, "reason": str(error)}
            log.warning("engine is left alone for a while", extra=extra)

    def given_up(self, waited_s: float) -> None:
        """Whoever asked did not wait for the answer."""
        if self.deadline_s is not None and waited_s >= self.deadline_s:
            self.failed(EngineTimeout(f"{self.name} was given up after {waited_s:.1f} s"))
        else:
            self._breaker.abandoned()


class GuardedVoice:
    """A voice behind its guard; see `pipeline.speech.TextToSpeech`. `last`: nobody speaks in its place, so it
    is asked whatever its breaker says."""

    def __init__(self, engine: TextToSpeech, guard: Guard, *, last: bool) -> None:
        self.engine = engine
        self._guard = guard
        self._last = last

    @property
    def rate_hz(self) -> int:
        """The engine's."""
        return self.engine.rate_hz

    async def start(self) -> None:
        """Starts the engine."""
        await self.engine.start()

    async def close(self) -> None:
        """Closes the engine."""
        await self.engine.close()

    async def speak(self, text: str, *, language: str) -> AsyncGenerator[SpeechChunk, None]:
        """As the engine's own. Raises `EngineResting` at once while the engine is left alone."""
        guard = self._guard
        if not guard.admits(always=self._last):
            raise EngineResting(f"{guard.name} is left alone after it failed")
        waiting_since: float | None = _now()
        begun = False
        try:
            async with aclosing(_closable(self.engine.speak(text, language=language))) as chunks:
                async for chunk in chunks:
                    waiting_since, begun = None, True
                    yield chunk
                    waiting_since = _now()
        except EngineError as error:
            guard.failed(error)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            guard.given_up(0.0 if waiting_since is None else _now() - waiting_since)
            raise
        if begun:
            guard.succeeded()
        else:
            guard.failed(EngineError(f"{guard.name} said nothing", retryable=True))


def _closable(stream: AsyncIterator[SpeechChunk]) -> AsyncGenerator[SpeechChunk, None]:
    """Engines of others may give an iterator that cannot be closed."""
    if hasattr(stream, "aclose"):
        return cast(AsyncGenerator[SpeechChunk, None], stream)
    return _wrapped(stream)


async def _wrapped(stream: AsyncIterator[SpeechChunk]) -> AsyncGenerator[SpeechChunk, None]:
    async for chunk in stream:
        yield chunk


def _now() -> float:
    return asyncio.get_running_loop().time()
