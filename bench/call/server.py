"""The server under test: `mediaserver serve` as it is, with engines that take no time.

`python -m bench.call.server serve --config FILE` registers engines called "bench", and an agent in the place
of `script`, then runs the command line. Recogniser and agent answer at once; the voice gives a whole
sentence, a tone, as its first chunk: what is left of a turn's latency is the server's own. Agents of
`bench call --engines local` have real engines, and repeat what they hear.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import numpy as np

from bench.call import owners
from bench.support.stub import Stub
from mediaserver.__main__ import main
from pipeline import registry
from pipeline.agent import AgentAct, AgentContext, AgentEvent, AgentReport, CallOpened, Say, UserSaid
from pipeline.audio import Pcm
from pipeline.speech import Expected, Hypothesis, SpeechChunk

VOICE_HZ: Final = 24_000
"""A rate of neural voices: what is said has to be resampled, as in life."""

SENTENCE_S: Final = 1.5
MONOLOGUE_S: Final = 20.0
"""No longer than a voice may take for the words: one that goes on is taken to have no end, and espeak-ng
speaks in its place, at a cost that is not the server's."""

MONOLOGUES: Final = 30
_MONOLOGUE: Final = "monologue"

SENTENCE: Final = "This is the answer of the agent."
NOT_UNDERSTOOD: Final = "Sorry, I did not get that."
LONG_SENTENCE: Final = f"This is the {_MONOLOGUE} of the agent."


class Listened:
    """The recognition of an utterance, which gives the same words for any audio, at once."""

    def push(self, samples: Pcm) -> None:
        """Drops the samples."""

    def partial(self) -> str:
        """Returns "": this recogniser gives no interim words."""
        return ""

    async def result(self) -> Hypothesis:
        """Returns the words without delay."""
        return Hypothesis("good morning everybody", 0.9)

    def close(self) -> None:
        """Does nothing: the engine holds no resources."""


class Recognizer(Stub):
    """The recogniser: recognises every utterance as the same words."""

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Listened:
        """See `pipeline.speech.SpeechToText`."""
        return Listened()


class Voice(Stub):
    """The text-to-speech engine: gives one chunk for each text, a tone of 400 Hz at -12 dBov."""

    rate_hz = VOICE_HZ

    def __init__(self) -> None:
        self._sentence = tone(SENTENCE_S)
        self._monologue = tone(MONOLOGUE_S)

    async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        """See `pipeline.speech.TextToSpeech`."""
        yield SpeechChunk(self._monologue if _MONOLOGUE in text else self._sentence)


class Talker:
    """A conversation that answers every event with one sentence, or the opening of the call with a monologue
    that cannot be interrupted."""

    def __init__(self, *, monologue: bool) -> None:
        self._monologue = monologue

    async def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        """See `pipeline.agent.Conversation`."""
        if not self._monologue:
            yield Say(SENTENCE)
        elif isinstance(event, CallOpened):
            for _ in range(MONOLOGUES):
                yield Say(LONG_SENTENCE, interruptible=False)

    def report(self) -> AgentReport:
        """Returns an empty report."""
        return AgentReport()


class Repeater(Talker):
    """A conversation that repeats the recognised words, which no voice has in its cache."""

    def __init__(self) -> None:
        super().__init__(monologue=False)

    async def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        """See `pipeline.agent.Conversation`."""
        if isinstance(event, UserSaid):
            yield Say(f"You said: {event.text}." if event.text else NOT_UNDERSTOOD)
        else:
            yield Say("Hello, I am listening." if isinstance(event, CallOpened) else "Are you still there?")


class TalkingAgent(Stub):
    """The agent. With `monologue = true` in its table the agent talks without a pause, with `repeats = true`
    the agent repeats the recognised words."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._monologue = bool(settings.get("monologue", False))
        self._repeats = bool(settings.get("repeats", False))

    def join(self, context: AgentContext) -> Talker:
        """See `pipeline.agent.Agent`."""
        return Repeater() if self._repeats else Talker(monologue=self._monologue)


def tone(seconds: float) -> Pcm:
    """Returns a tone of `seconds`, int16 at `VOICE_HZ`."""
    phase = np.arange(int(seconds * VOICE_HZ)) * (2 * np.pi * 400 / VOICE_HZ)
    samples: Pcm = (8192 * np.sin(phase)).astype(np.int16)
    return samples


def register() -> None:
    """Registers the stub engines under the name "bench", and the agent under the name "script"."""
    registry.register("stt", "bench", lambda settings: Recognizer())
    registry.register("tts", "bench", lambda settings: Voice())
    registry.register("agent", "script", TalkingAgent)


if __name__ == "__main__":
    owners.trace()
    register()
    main(prog_name="mediaserver")
