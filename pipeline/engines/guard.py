"""Guards an engine with a circuit breaker and counts its requests and errors, for all calls of the
process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from pipeline.engines.breaker import Breaker, BreakerSettings, BreakerState
from pipeline.errors import (
    EngineBusy,
    EngineCircuitOpen,
    EngineEndless,
    EngineError,
    EngineRefused,
    EngineTimeout,
    boundary,
    contained,
)
from pipeline.latency import DecoderWaits
from pipeline.speech import (
    IncrementalVoice,
    SpeechChunk,
    SpeechToText,
    TextToSpeech,
    VoicePerCall,
    incremental,
    speaking,
)

log = logging.getLogger(__name__)

SPARE_S: Final = 10.0
LETTER_S: Final = 0.5
SIGN_S: Final = 1.5
"""Longest audio for each octet of a text in UTF-8, in seconds: `LETTER_S` for letters and spaces, `SIGN_S`
for all else, and `SPARE_S` once. The slowest voice (espeak-ng at 80 words a minute) takes 0.13 s for a letter
within words, 0.72 s for each "w" in a row, 1.15 s for a digit, 1.01 s for a sign that is read out by name."""


@runtime_checkable
class RemoteEngine(Protocol):
    """An engine behind a network, with a deadline for `Guard` and a check whether its server answers."""

    @property
    def deadline_s(self) -> float:
        """The longest wait of a caller for the engine, in seconds."""

    async def check(self) -> str:
        """Checks whether the engine can be reached: gives "" if so, else the reason."""


Check: TypeAlias = Callable[[], Coroutine[Any, Any, str]]


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """The figures of one engine: requests, errors, and the state of its circuit breaker."""

    kind: str
    name: str
    requests: int
    errors: int
    state: BreakerState


@runtime_checkable
class Guarded(Protocol):
    """An engine or agent that guards its own requests to other engines."""

    def engine_health(self) -> Sequence[EngineHealth]:
        """Gives the figures of each engine that is asked."""


@runtime_checkable
class Queued(Protocol):
    """An engine whose callers wait for each other."""

    def decoder_waits(self) -> DecoderWaits | None:
        """Gives the waits of callers since the start; None while the engine is not started."""


@runtime_checkable
class ForFiles(Protocol):
    """A recogniser that decodes for calls before files."""

    def for_files(self) -> SpeechToText:
        """Gives the same recogniser with the lower priority of files."""


class Guard:
    """The circuit breaker and the figures of one engine. `kind`, `name`: for logs and metrics.

    `deadline_s`: a caller that waited for so long and gave up counts as a failure of the engine; None for a
    local engine, which is late when the whole machine is. `check`: gives "" if the engine can be reached,
    else the reason; after a pause the breaker admits a request only once `check` succeeded, so that no
    caller has to try. `close` ends a check under way."""

    __slots__ = (
        "_breaker", "_check", "_checked", "_checking", "_errors", "_requests", "deadline_s", "kind", "name",
    )  # fmt: skip

    def __init__(
        self,
        kind: str,
        name: str,
        *,
        deadline_s: float | None = None,
        check: Check | None = None,
        settings: BreakerSettings | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.deadline_s = deadline_s
        self._check = check
        self._checked = False
        self._checking: asyncio.Task[None] | None = None
        self._breaker = Breaker(settings)
        self._requests = 0
        self._errors = 0

    @property
    def health(self) -> EngineHealth:
        """The figures of the engine since the start."""
        return EngineHealth(self.kind, self.name, self._requests, self._errors, self._breaker.state)

    def is_open(self) -> bool:
        """Whether the engine's circuit breaker refuses requests at the moment."""
        return self._breaker.is_open(_now())

    def admits(self, *, always: bool = False) -> bool:
        """Says whether a request may be sent, and counts a request that may. `always`: admits the request,
        since there is no other engine."""
        admitted = always or (self._may_try() and self._breaker.admits(_now()))
        self._requests += admitted
        return admitted

    async def close(self) -> None:
        """Ends a check under way."""
        checking, self._checking = self._checking, None
        if checking is not None:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)

    def _may_try(self) -> bool:
        """Whether the check, if there is one, succeeded since the last failure; starts a check when due."""
        if self._check is None or self._checked or self._breaker.state is BreakerState.CLOSED:
            return True
        if self._checking is None and not self._breaker.is_open(_now()):
            self._checking = asyncio.create_task(self._look(self._check), name="engine check")
        return False

    async def _look(self, check: Check) -> None:
        reason = ""
        with boundary(log, "engine check broke", kind=self.kind, engine=self.name) as failure:
            reason = await check()
        reason = reason or failure.kind
        self._checking = None
        if not reason:
            self._checked = True
        elif self._breaker.admits(_now()):
            self._breaker.failed(_now(), slow=True)

    def succeeded(self) -> None:
        """Notes a request that was answered."""
        if self._breaker.state is not BreakerState.CLOSED:
            log.info("engine works again", extra={"kind": self.kind, "engine": self.name})
        self._breaker.succeeded()

    def failed(self, error: EngineError) -> None:
        """Notes a failed request; `EngineRefused` counts as an answer."""
        if isinstance(error, EngineRefused):
            self._breaker.succeeded()
            return
        self._errors += 1
        self._checked = False
        before = self._breaker.state
        rest_s = error.retry_after_s if isinstance(error, EngineBusy) else 0.0
        self._breaker.failed(_now(), slow=isinstance(error, EngineTimeout), rest_s=rest_s)
        if self._breaker.state is BreakerState.OPEN and before is not BreakerState.OPEN:
            extra = {"kind": self.kind, "engine": self.name, "reason": str(error)}
            log.warning("engine is left alone for a while", extra=extra)

    def given_up(self, waited_s: float) -> None:
        """Notes a request whose caller gave up after `waited_s` seconds: a failure from `deadline_s` on."""
        if self.deadline_s is not None and waited_s >= self.deadline_s:
            self.failed(EngineTimeout(f"{self.name} was given up after {waited_s:.1f} s"))
        else:
            self._breaker.abandoned()


class GuardedVoice:
    """A voice behind its guard (`pipeline.speech.TextToSpeech`). `last`: there is no other voice, so that the
    breaker admits every request. `ahead_s`: added to that of `speak_ahead`."""

    def __init__(self, engine: TextToSpeech, guard: Guard, *, last: bool, ahead_s: float = 0.0) -> None:
        self.engine = engine
        self._guard = guard
        self._last = last
        self._ahead_s = ahead_s

    @property
    def name(self) -> str:
        """The voice's name for people, in logs and metrics."""
        return self._guard.name

    @property
    def rate_hz(self) -> int:
        """The sample rate of the engine's chunks, in Hz."""
        return self.engine.rate_hz

    async def start(self) -> None:
        """Starts the engine. Raises `EngineMissing`."""
        await self.engine.start()

    async def close(self) -> None:
        """Closes the engine behind the guard."""
        await self.engine.close()

    def for_call(self, call_id: str, *, language: str) -> TextToSpeech:
        """Gives the voice for one call behind the same guard, or itself."""
        if not isinstance(self.engine, VoicePerCall):
            return self
        own = self.engine.for_call(call_id, language=language)
        return GuardedVoice(own, self._guard, last=self._last, ahead_s=self._ahead_s)

    def incremental(self) -> IncrementalVoice | None:
        """Gives itself where the engine takes an answer's text while it is being written, and may be
        asked; None otherwise."""
        return self if incremental(self.engine) is not None else None

    def speak(self, text: str, *, language: str) -> AsyncGenerator[SpeechChunk, None]:
        """Synthesises like the engine, with at most `longest_s` of audio. Raises `EngineError`:
        `EngineCircuitOpen` at once while the breaker is open, `EngineEndless` for too much audio."""
        return self.speak_ahead(text, language=language, ahead_s=0.0)

    def speak_ahead(self, text: str, *, language: str, ahead_s: float) -> AsyncGenerator[SpeechChunk, None]:
        """Synthesises like `speak`, with the `ahead_s` of `pipeline.speech.SharedVoice`."""
        return self._counted(self.unguarded(text, language=language, ahead_s=ahead_s), _Waits())

    def speak_pieces(self, pieces: AsyncIterator[str], *, language: str) -> AsyncGenerator[SpeechChunk, None]:
        """Synthesises an answer like `pipeline.speech.IncrementalVoice`, guarded like `speak`. The caller's
        wait counts from a piece to the sound after it."""
        given = _Given(pieces)
        return self._counted(self._bounded(given, language), given)

    async def _bounded(self, given: _Given, language: str) -> AsyncGenerator[SpeechChunk, None]:
        """The chunks of an answer, of which there are no more than its text so far can take."""
        voice, made = incremental(self.engine), 0
        assert voice is not None
        async with aclosing(_closable(voice.speak_pieces(given.pieces(), language=language))) as chunks:
            async for chunk in chunks:
                made += chunk.samples.shape[0]
                if made > self.rate_hz * longest_s(given.text):
                    raise EngineEndless(f"{self.name} does not stop")
                yield chunk

    async def _counted(
        self, stream: AsyncGenerator[SpeechChunk, None], waits: _Waits
    ) -> AsyncGenerator[SpeechChunk, None]:
        """The chunks of a request that the breaker admits, whose result it gets."""
        guard = self._guard
        if not guard.admits(always=self._last):
            raise EngineCircuitOpen(f"{guard.name} is left alone after it failed")
        waits.goes_on()
        begun = False
        try:
            with contained(guard.name):
                async with aclosing(stream) as chunks:
                    async for chunk in chunks:
                        waits.since, begun = None, True
                        yield chunk
                        waits.goes_on()
        except EngineError as error:
            guard.failed(error)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            guard.given_up(0.0 if waits.since is None else _now() - waits.since)
            raise
        if begun:
            guard.succeeded()
        else:
            guard.failed(EngineError(f"{guard.name} said nothing", retryable=True))

    async def unguarded(
        self, text: str, *, language: str, ahead_s: float = 0.0
    ) -> AsyncGenerator[SpeechChunk, None]:
        """Synthesises like `speak_ahead` without breaker and figures, for text whose audio may be silent
        without a fault of the voice."""
        left = round(self.rate_hz * longest_s(text))
        stream = speaking(self.engine, text, language=language, ahead_s=ahead_s + self._ahead_s)
        async with aclosing(_closable(stream)) as chunks:
            async for chunk in chunks:
                left -= chunk.samples.shape[0]
                if left < 0:
                    raise EngineEndless(f"{self.name} does not stop")
                yield chunk


class _Waits:
    """How long a caller waits for sound. `since`: a loop time; None while the caller does not wait."""

    def __init__(self) -> None:
        self.since: float | None = None

    def goes_on(self) -> None:
        """Notes that the caller asks for the next chunk."""
        self.since = _now()


class _Given(_Waits):
    """The pieces of an answer that a voice was given, and how long the caller waits for their sound."""

    def __init__(self, pieces: AsyncIterator[str]) -> None:
        super().__init__()
        self.text = ""
        self._pieces = pieces

    async def pieces(self) -> AsyncIterator[str]:
        """The pieces, as they come."""
        async for piece in self._pieces:
            self.text += f"{piece} "
            self.since = self.since or _now()
            yield piece

    def goes_on(self) -> None:
        """Notes that the caller asks for the next chunk, which may be of text that is still to come."""


def longest_s(text: str) -> float:
    """Gives the longest audio, in seconds, that a voice may make of `text`; a voice that makes more may never
    stop."""
    words = sum(len(each.encode()) for each in text if each.isalpha() or each.isspace())
    return SPARE_S + LETTER_S * words + SIGN_S * (len(text.encode()) - words)


def _closable(stream: AsyncIterator[SpeechChunk]) -> AsyncGenerator[SpeechChunk, None]:
    """Wraps an iterator without `aclose`, which a third party's engine may give, in one that has it."""
    if hasattr(stream, "aclose"):
        return cast(AsyncGenerator[SpeechChunk, None], stream)
    return _wrapped(stream)


async def _wrapped(stream: AsyncIterator[SpeechChunk]) -> AsyncGenerator[SpeechChunk, None]:
    async for chunk in stream:
        yield chunk


def _now() -> float:
    return asyncio.get_running_loop().time()
