"""Recognises with several engines in order: when one fails, the next gets the whole utterance.

The audio of an utterance is kept while it is open. When an engine fails or is late, the next engine gets the
utterance from its first sample, so that no word is lost. Engines whose circuit breaker is open
(`pipeline.engines.breaker`) are not asked, except the last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final, ParamSpec, TypeVar

import numpy as np

from pipeline.audio import Pcm, frame_samples
from pipeline.engines.guard import Guard
from pipeline.errors import EngineCircuitOpen, EngineError, EngineTimeout, contained, passes
from pipeline.speech import LONGEST_TEXT, Expected, Hypothesis, Listening, PerCall, SpeechToText

log = logging.getLogger(__name__)

WINDOW_S: Final = 60  # the next engine gets this much of the end of a longer utterance
_FRAMES_AT_ONCE: Final = 25  # replayed before others get the loop: at most 3 ms of pocketsphinx

OnFault = Callable[[str], None]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GuardedRecognizer:
    """A recogniser with the guard that counts its failures."""

    engine: SpeechToText
    guard: Guard


class FallbackRecognizer:
    """Recognisers in order, at least one, as a single one for all calls (`pipeline.speech.SpeechToText`).
    `on_fault`: called with every failure after which another engine, or the last one again, is asked, and
    with the name of each engine that is left alone; `fields`: of log messages."""

    def __init__(
        self,
        recognizers: Sequence[GuardedRecognizer],
        *,
        on_fault: OnFault = lambda reason: None,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        self.recognizers = tuple(recognizers)
        self.on_fault = on_fault
        self.fields = fields or {}

    async def start(self) -> None:
        """Starts every engine of the list at the same time."""
        await asyncio.gather(*(each.engine.start() for each in self.recognizers))

    async def close(self) -> None:
        """Closes every engine of the list and frees what it holds."""
        await asyncio.gather(*(each.engine.close() for each in self.recognizers))

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> FallbackListening:
        """Begins an utterance with the first engine whose circuit breaker is closed, or the last. `result`
        replaces an engine that fails here."""
        return FallbackListening(self, rate_hz=rate_hz, language=language, expected=expected)


def of_call(
    engine: SpeechToText, on_fault: OnFault, *, call_id: str, language: str
) -> tuple[SpeechToText, Sequence[SpeechToText]]:
    """Gives `engine` for one call, and what is to be closed at its end. `on_fault` is called once for each
    reason of a failure after which another engine is asked, and log messages have the call's id."""
    own: list[SpeechToText] = []

    def for_call(each: SpeechToText, *, first: bool = True) -> SpeechToText:
        if not isinstance(each, PerCall):
            return each
        own.append(each.for_call(call_id, language=language if first else ""))
        return own[-1]

    if not isinstance(engine, FallbackRecognizer):
        return for_call(engine), own
    said: set[str] = set()

    def once(reason: str) -> None:
        if reason not in said:
            said.add(reason)
            on_fault(reason)

    recognizers = [
        GuardedRecognizer(for_call(each.engine, first=place == 0), each.guard)
        for place, each in enumerate(engine.recognizers)
    ]
    return FallbackRecognizer(recognizers, on_fault=once, fields={"call_id": call_id}), own


class FallbackListening:
    """One utterance, recognised by one engine after another; an engine that failed is not asked again."""

    __slots__ = (
        "_broken", "_closed", "_cut", "_expected", "_fallback", "_kept", "_language", "_listening", "_place",
        "_rate_hz",
    )  # fmt: skip

    def __init__(
        self, fallback: FallbackRecognizer, *, rate_hz: int, language: str, expected: Expected | None
    ) -> None:
        self._fallback = fallback
        self._rate_hz = rate_hz
        self._language = language
        self._expected = expected
        self._kept = bytearray()
        self._cut = 0  # bytes dropped before `_kept`
        self._closed = False
        self._place = 0
        while not self._is_last and self._guard.is_open():
            fallback.on_fault(f"{self._name}: left alone after it failed")
            self._place += 1
        self._listening: Listening | None = None
        self._broken: EngineError | None = None
        self._listening = self._attempt(self._open)

    def push(self, samples: Pcm) -> None:
        """Passes the samples to the engine, and keeps a copy for the engines after it."""
        if self._listening is None or not self._is_last:
            self._kept += samples.tobytes()
            second = 2 * self._rate_hz
            if len(self._kept) > (WINDOW_S + 1) * second:
                del self._kept[:second]
                self._cut += second
        if self._listening is not None:
            self._attempt(self._listening.push, samples)

    def partial(self) -> str:
        """The interim text of the current engine, at most `LONGEST_TEXT` characters."""
        if self._listening is None:
            return ""
        return (self._attempt(self._listening.partial) or "")[:LONGEST_TEXT]

    async def result(self) -> Hypothesis:
        """Recognises all audio so far with the first engine that succeeds; the last engine is asked once more
        after a retryable failure that was no timeout. Raises `EngineError` when all fail."""
        again = True
        while True:
            guard = self._guard
            try:
                return await self._ask(guard)
            except EngineError as error:
                if self._closed or (self._is_last and not (again and passes(error))):
                    raise
                again = not self._is_last
                self._fallback.on_fault(f"{guard.name}: {error}")
                if again:
                    self._go_on()

    def close(self) -> None:
        """Closes the engine's utterance and frees the audio."""
        self._closed = True
        self._kept = bytearray()
        self._drop()

    @property
    def _is_last(self) -> bool:
        return self._place + 1 == len(self._fallback.recognizers)

    def _go_on(self) -> None:
        self._drop()
        self._place += 1

    def _drop(self) -> None:
        """Closes the current engine's utterance."""
        old, self._listening = self._listening, None
        if old is not None:
            self._free(old)

    def _bounded(self, heard: Hypothesis) -> Hypothesis:
        """Cuts a text at `LONGEST_TEXT`, since it goes into the transcript and every prompt."""
        if len(heard.text) <= LONGEST_TEXT:
            return heard
        extra = {"engine": self._name, "characters": len(heard.text), **self._fallback.fields}
        log.warning("recogniser said too much, cut", extra=extra)
        text = heard.text[:LONGEST_TEXT].rpartition(" ")[0] or heard.text[:LONGEST_TEXT]
        return replace(heard, text=text, words=heard.words[: len(text.split())])

    def _attempt(self, act: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T | None:
        """Calls the current engine; drops the engine after an exception, which `result` handles."""
        try:
            return act(*args, **keywords)
        except Exception as error:  # for every frame: `contained` costs 1 µs
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        try:
            with self._contained():
                raise error
        except EngineError as broken:
            self._broken = broken
        self._drop()

    def _contained(self) -> contained:
        return contained(self._name, **self._fallback.fields)

    @property
    def _guard(self) -> Guard:
        return self._fallback.recognizers[self._place].guard

    @property
    def _name(self) -> str:
        return self._guard.name

    async def _ask(self, guard: Guard) -> Hypothesis:
        if not guard.admits(always=self._is_last):
            raise EngineCircuitOpen("left alone after it failed")
        loop = asyncio.get_running_loop()
        since, deadline_s = loop.time(), None if self._is_last else guard.deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                broken, self._broken = self._broken, None
                if broken is not None:
                    raise broken
                listening = self._listening or await self._replayed()
                with self._contained():
                    heard = self._bounded(await listening.result())
        except TimeoutError:
            late = EngineTimeout(f"no answer within {deadline_s:g} s")
            guard.failed(late)
            raise late from None
        except EngineError as error:
            if not self._closed:
                guard.failed(error)
            raise
        except asyncio.CancelledError:
            guard.given_up(loop.time() - since)
            raise
        guard.succeeded()
        return heard

    async def _replayed(self) -> Listening:
        """Opens the current engine and pushes all kept audio, and that which arrives meanwhile. Raises
        `EngineError`."""
        if self._closed:
            raise EngineError("this utterance was closed", retryable=False)
        with self._contained():
            listening = self._open()
        step, place, frames = 2 * frame_samples(self._rate_hz), self._cut, 0
        with ExitStack() as unfinished:
            unfinished.callback(self._free, listening)
            while place < self._cut + len(self._kept):
                at = max(0, place - self._cut)
                piece = bytes(self._kept[at : at + step])
                with self._contained():
                    listening.push(np.frombuffer(piece, np.int16))
                place, frames = self._cut + at + len(piece), frames + 1
                if frames % _FRAMES_AT_ONCE == 0:
                    await asyncio.sleep(0)
            if self._closed:
                raise EngineError("this utterance was closed", retryable=False)
            unfinished.pop_all()
        self._listening = listening
        if self._is_last:
            self._kept = bytearray()
        return listening

    def _open(self) -> Listening:
        engine = self._fallback.recognizers[self._place].engine
        return engine.listen(rate_hz=self._rate_hz, language=self._language, expected=self._expected)

    def _free(self, listening: Listening) -> None:
        try:
            with self._contained():
                listening.close()
        except EngineError:
            return  # the engine is no longer needed, and `contained` has logged the error
