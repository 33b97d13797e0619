"""Stubs of the models, with the latencies of fast ones: the recogniser's final words after 250 ms, the
agent's first words after 150 ms, the voice's first sound after 100 ms.

The recogniser knows the ground truth: exactly the words spoken in the audio that it was given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

import numpy as np

from bench.conversation.sounds import RATE_HZ, agent_words
from bench.support.stub import Stub
from pipeline.agent import AgentAct, AgentEvent, AgentReport, CallOpened, Expect, Say
from pipeline.audio import Pcm
from pipeline.errors import EngineError
from pipeline.speech import Expected, HeardWord, Hypothesis, SpeechChunk, SpokenWord

STT_S: Final = 0.25
LLM_S: Final = 0.15
TTS_S: Final = 0.10
PARTIAL_LAG_S: Final = 0.15
_PREROLL_S: Final = 0.35
_CHUNK: Final = RATE_HZ // 5


class Said(Protocol):
    """The ground truth, from memory or a file."""

    def between(self, since: float, until: float) -> list[tuple[str, float]]:
        """Returns the words between two times, each with its confidence."""


class Fault(Enum):
    """The fault of the models in a call."""

    NONE = auto()
    STT_LATE = auto()
    STT_EMPTY = auto()
    STT_DEAD = auto()
    TTS_STALLS = auto()
    LLM_STALLS = auto()


@dataclass(slots=True)
class Listening:
    """One utterance: the words from its opening (less the pre-roll) to the last audio."""

    said: Said
    fault: Fault
    clock: Callable[[], float]
    since: float
    until: float

    def push(self, samples: Pcm) -> None:
        """Notes the time of the last audio."""
        self.until = self.clock()

    def partial(self) -> str:
        """Returns the words that ended `PARTIAL_LAG_S` ago."""
        if self.fault in (Fault.STT_DEAD, Fault.STT_EMPTY):
            return ""
        return " ".join(text for text, _ in self.said.between(self.since, self.until - PARTIAL_LAG_S))

    async def result(self) -> Hypothesis:
        """Returns the words that have ended, after `STT_S`. Raises `EngineError` with the fault STT_DEAD."""
        until = self.until + 0.02
        await asyncio.sleep(STT_S + (1.0 if self.fault is Fault.STT_LATE else 0.0))
        if self.fault is Fault.STT_DEAD:
            raise EngineError("the recogniser is gone", retryable=True)
        words = [] if self.fault is Fault.STT_EMPTY else self.said.between(self.since, until)
        confidence = min((sure for _, sure in words), default=0.0)
        return Hypothesis(
            " ".join(text for text, _ in words), confidence, tuple(HeardWord(text) for text, _ in words)
        )

    def close(self) -> None:
        """Does nothing; there is nothing to free."""


class Recogniser(Stub):
    """A recogniser that knows the ground truth."""

    def __init__(self, said: Said, fault: Fault = Fault.NONE) -> None:
        self._said = said
        self._fault = fault

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Listening:
        """Begins an utterance (`pipeline.speech.SpeechToText`)."""
        clock = asyncio.get_running_loop().time
        return Listening(self._said, self._fault, clock, clock() - _PREROLL_S, clock())


class Voice(Stub):
    """A voice that speaks the agent's reading, in chunks of 0.2 s."""

    rate_hz = RATE_HZ

    def __init__(self, fault: Fault = Fault.NONE) -> None:
        self._fault = fault

    async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        """Speaks `text` after `TTS_S` (`pipeline.speech.TextToSpeech`)."""
        await asyncio.sleep(TTS_S)
        sound = agent_words(text)
        words = [
            SpokenWord(word.text, round(word.start_s * RATE_HZ), round(word.end_s * RATE_HZ))
            for word in sound.words
        ]
        for first in range(0, sound.samples.size, _CHUNK):
            if self._fault is Fault.TTS_STALLS and first:
                await asyncio.sleep(3600)
            inside = tuple(word for word in words if first <= word.start < first + _CHUNK)
            yield SpeechChunk(np.array(sound.samples[first : first + _CHUNK]), inside)


@dataclass(frozen=True, slots=True)
class Part:
    """The agent's words: a greeting, then an answer to anything. `expected`: the grammar of the caller's
    answer."""

    greeting: str = "Good morning, how may I help you?"
    answer: str = "Thank you, I have written that down for you."
    expected: Expected | None = None


class Agent:
    """One conversation; `events` are those that the agent received, in order."""

    def __init__(self, part: Part, fault: Fault = Fault.NONE) -> None:
        self.events: list[AgentEvent] = []
        self._part = part
        self._fault = fault

    async def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        """Records the event and answers it (`pipeline.agent.Conversation`)."""
        self.events.append(event)
        if isinstance(event, CallOpened):
            yield Say(self._part.greeting)
        else:
            await asyncio.sleep(3600.0 if self._fault is Fault.LLM_STALLS else LLM_S)
            yield Say(self._part.answer)
        if self._part.expected is not None:
            yield Expect(self._part.expected)

    def report(self) -> AgentReport:
        """Returns an empty report."""
        return AgentReport()
