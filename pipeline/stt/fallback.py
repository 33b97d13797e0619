"""Recognisers in order: the next one hears again what the last one failed on.

The audio of an utterance is kept while it is listened to. An engine that fails or takes too long loses the
utterance to the next, which gets all of it from its first sample: not a word is missed. Engines that failed a
moment ago are not asked (`pipeline.engines.breaker`), except the last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from pipeline.audio import Pcm, frame_samples
from pipeline.engines.guard import Guard
from pipeline.errors import EngineCircuitOpen, EngineError, EngineTimeout, catching, contained, passes
from pipeline.speech import LONGEST_TEXT, Expected, Hypothesis, Listening, SpeechToText

log = logging.getLogger(__name__)

WINDOW_S: Final = 60  # of a longer utterance the end is heard again
_FRAMES_AT_ONCE: Final = 25  # replayed before others get the loop: at most 3 ms of pocketsphinx

OnFault = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class GuardedRecognizer:
    """A recogniser with the guard that counts its failures."""

    engine: SpeechToText
    guard: Guard


class FallbackRecognizer:
    """Recognisers in order, for all calls; see `pipeline.speech.SpeechToText`. At least one. `on_fault` gets
    every failure that the next recogniser makes good; `fields` are those of the log lines."""

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
        """Starts listening to one utterance with the first engine that is not left alone. Raises
        `EngineError` when none can be opened."""
        return FallbackListening(self, rate_hz=rate_hz, language=language, expected=expected)


def of_call(engine: SpeechToText, on_fault: OnFault, *, call_id: str) -> SpeechToText:
    """`engine` for one call: it tells `on_fault` of every failure that it gets over, each once, and logs the
    call's id."""
    if not isinstance(engine, FallbackRecognizer):
        return engine
    said: set[str] = set()

    def once(reason: str) -> None:
        if reason not in said:
            said.add(reason)
            on_fault(reason)

    return FallbackRecognizer(engine.recognizers, on_fault=once, fields={"call_id": call_id})


class FallbackListening:
    """One utterance. The engine that listens to it changes in one direction only: to the next."""

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
        self._cut = 0  # bytes dropped at the start of what is kept
        self._closed = False
        self._place = 0
        while not self._is_last and self._guard.rests():
            fallback.on_fault(f"{self._name}: left alone after it failed")
            self._place += 1
        self._listening: Listening | None = None
        self._broken: EngineError | None = None
        try:
            self._listening = self._opened()
        except EngineError as error:
            self._broken = error

    def push(self, samples: Pcm) -> None:
        """Passes it on, and keeps a copy where an engine may need it yet."""
        if self._listening is None or not self._is_last:
            self._kept += samples.tobytes()
            second = 2 * self._rate_hz
            if len(self._kept) > (WINDOW_S + 1) * second:
                del self._kept[:second]
                self._cut += second
        listening = self._listening
        if listening is not None:
            catching(lambda: listening.push(samples), self._give_up)

    def partial(self) -> str:
        """What the engine at work says."""
        listening = self._listening
        if listening is None:
            return ""
        return catching(lambda: listening.partial()[:LONGEST_TEXT], self._give_up) or ""

    async def result(self) -> Hypothesis:
        """The text of what was pushed so far, from the first engine that gives one; the last is asked once
        more if its failure may pass and cost no wait. Raises `EngineError` when none does."""
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
        """Closes what the engine at work holds."""
        old, self._listening = self._listening, None
        if old is not None:
            self._free(old)

    def _bounded(self, heard: Hypothesis) -> Hypothesis:
        """Without what nobody can have said in the time: it would go into the transcript and every prompt."""
        if len(heard.text) <= LONGEST_TEXT:
            return heard
        extra = {"engine": self._name, "characters": len(heard.text)}
        log.warning("recogniser said too much, cut", extra=extra)
        text = heard.text[:LONGEST_TEXT].rpartition(" ")[0] or heard.text[:LONGEST_TEXT]
        return replace(heard, text=text, words=heard.words[: len(text.split())])

    def _give_up(self, error: Exception) -> None:
        """The engine at work broke while it listened: `result` tells, and asks elsewhere."""
        try:
            with self._contained():
                raise error
        except EngineError as broken:
            self._broken = broken
        self._drop()

    def _contained(self) -> AbstractContextManager[None]:
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
        """The engine whose turn it is, having heard all of it; also what is pushed meanwhile. Raises
        `EngineError`."""
        if self._closed:
            raise EngineError("this utterance was closed", retryable=False)
        listening = self._opened()
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

    def _opened(self) -> Listening:
        engine = self._fallback.recognizers[self._place].engine
        with self._contained():
            return engine.listen(rate_hz=self._rate_hz, language=self._language, expected=self._expected)

    def _free(self, listening: Listening) -> None:
        try:
            with self._contained():
                listening.close()
        except EngineError:
            return  # nothing is wanted of it any more, and the log has it
