"""Engines of one's own, as their authors write them: good ones and bad ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np
from pydantic import Field

from pipeline.agent import (
    AgentAct,
    AgentContext,
    AgentEvent,
    AgentReport,
    CallOpened,
    Expect,
    HangUp,
    Say,
    UserSaid,
)
from pipeline.audio import Pcm
from pipeline.endpointing.policy import TurnEvidence
from pipeline.engines.options import Options, read_options
from pipeline.speech import Expected, Hypothesis, SpeechChunk


class EarOptions(Options):
    """`answer`: what is understood of any sound."""

    answer: str = Field(default="yes please", min_length=1)


class Ears:
    """Understands one answer in everything that is loud."""

    def __init__(self, options: EarOptions) -> None:
        self.options = options

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Ears:
        return cls(read_options("ears", EarOptions, settings))

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Heard:
        return Heard(self.options.answer)


class Heard:
    """One utterance."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.loudest = 0

    def push(self, samples: Pcm) -> None:
        self.loudest = max(self.loudest, int(np.abs(samples.astype(np.int32)).max()))

    def partial(self) -> str:
        return ""

    async def result(self) -> Hypothesis:
        return Hypothesis(self.answer, 0.9) if self.loudest > 500 else Hypothesis("")

    def close(self) -> None: ...


class Careless(Ears):
    """Hears voices in silence, and writes them as it likes."""

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Heard:
        heard = Heard("Yes, please!")
        heard.loudest = 1000
        return heard


class Hum:
    """A voice that hums."""

    rate_hz = 16000

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Hum:
        read_options("hum", Options, settings)
        return cls()

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        for _ in text.split():
            yield SpeechChunk((6000 * np.sin(np.arange(3200) / 10)).astype(np.int16))


class OrderOptions(Options):
    """`drinks`: what there is."""

    drinks: tuple[str, ...] = Field(default=("coffee", "tea"), min_length=1)


class Barista:
    """Takes one order."""

    def __init__(self, options: OrderOptions) -> None:
        self.drinks = options.drinks

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Barista:
        return cls(read_options("barista", OrderOptions, settings))

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def join(self, context: AgentContext) -> Order:
        return Order(self.drinks)


class Order:
    """One call."""

    def __init__(self, drinks: tuple[str, ...]) -> None:
        self.drinks = drinks
        self.ordered = ""

    async def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        said = event.text if isinstance(event, UserSaid) else ""
        self.ordered = next((drink for drink in self.drinks if drink in said), "")
        if self.ordered:
            yield Say(f"One {self.ordered}, coming up. Goodbye!")
            yield HangUp()
        else:
            yield Expect(Expected(phrases=self.drinks))
            yield Say(f"{' or '.join(self.drinks)}?")

    def report(self) -> AgentReport:
        return AgentReport(answers={"drink": self.ordered} if self.ordered else {})


class Muddled(Barista):
    """Remembers the call before, and goes on after its goodbye."""

    calls = 0

    def join(self, context: AgentContext) -> Order:
        return Mixed(self)


class Mixed(Order):
    """One call of many."""

    def __init__(self, agent: Muddled) -> None:
        super().__init__(agent.drinks)
        self.agent = agent

    async def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        if isinstance(event, CallOpened):
            self.agent.calls += 1
            for _ in range(self.agent.calls):
                yield Say("Hello.")
            return
        yield HangUp()
        yield Say("Oh, and one more thing.")


class Patient:
    """Gives a caller half a second, whatever was said."""

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Patient:
        read_options("patient", Options, settings)
        return cls()

    def p_eot(self, evidence: TurnEvidence) -> float:
        return min(1.0, evidence.silence_ms / 500)


class Rash(Patient):
    """Is sure of it, most of all where there is no voice; and cleans the audio up in place."""

    def p_eot(self, evidence: TurnEvidence) -> float:
        loudness = float(np.sqrt(np.mean(np.square(evidence.audio, dtype=np.float64))))
        evidence.audio[:] = 0
        return 1 / loudness
