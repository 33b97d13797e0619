"""The server that the scripted callers call: `mediaserver serve` as shipped, with stub models.

`python -m bench.conversation.server serve --config FILE`. The stub recogniser of a call reads the caller's
words from a file that the caller's process writes; the agent of a call writes the events that it receives to
another file."""

from __future__ import annotations

import pickle
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, cast

from bench.conversation.processes import READING, Job
from bench.conversation.sounds import RATE_HZ, adopt
from bench.conversation.stubs import Agent, Fault, Listening, Part, Recogniser, Voice
from bench.support.stub import Stub
from mediaserver.__main__ import main
from pipeline import registry
from pipeline.agent import AgentAct, AgentContext, AgentEvent, UserKeyed, UserSaid
from pipeline.speech import Expected, SpeechChunk

_NO_CALL: Final = Job(Part(), Fault.NONE)


class WrittenTruth:
    """The words of a caller, from a file: a line for each word, with start, end and confidence."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def between(self, since: float, until: float) -> list[tuple[str, float]]:
        """See `bench.conversation.stubs.Said`."""
        found: list[tuple[str, float]] = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            start, end, sure, text = line.split("\t")
            if float(start) >= since and float(end) <= until:
                found.append((text, float(sure)))
        return found


class WritingAgent(Agent):
    """An agent that appends each event to a file, a user's words once they are settled."""

    def __init__(self, job: Job, path: Path) -> None:
        super().__init__(job.part, job.fault)
        self._path = path

    async def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        """See `pipeline.agent.Conversation`."""
        async for act in super().respond(event):
            yield act
        text = ""
        if isinstance(event, UserSaid):
            if event.settled is not None:
                await event.settled()
            text = event.text
        elif isinstance(event, UserKeyed):
            text = event.digits
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{type(event).__name__}\t{text}\n")


class Engine(Stub):
    """The base of the stub engines of one line; `line` in an engine's table is the path of the line's files
    without suffix."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._line = Path(settings["line"]) if "line" in settings else None

    @property
    def job(self) -> Job:
        """The job of the line's call; a job without faults before the call, and for the engine without a
        line."""
        path = self._line and self._line.with_suffix(".job")
        return cast(Job, pickle.loads(path.read_bytes())) if path and path.exists() else _NO_CALL

    def path(self, suffix: str) -> Path:
        """Returns the path of the line's file with `suffix`."""
        assert self._line is not None
        return self._line.with_suffix(suffix)


class Playing(Engine):
    """The agent: plays the part of the call's job."""

    def join(self, context: AgentContext) -> WritingAgent:
        """See `pipeline.agent.Agent`."""
        return WritingAgent(self.job, self.path(".events"))


class Recognizer(Engine):
    """The recogniser: recognises the words that the caller's process wrote."""

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Listening:
        """See `pipeline.speech.SpeechToText`."""
        recogniser = Recogniser(WrittenTruth(self.path(".words")), self.job.fault)
        return recogniser.listen(rate_hz=rate_hz, language=language, expected=expected)


class Speaking(Engine):
    """The text-to-speech engine: gives the samples of the stub voice."""

    rate_hz = RATE_HZ

    async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        """See `pipeline.speech.TextToSpeech`."""
        async with aclosing(cast(Any, Voice(self.job.fault).speak(text, language=language))) as chunks:
            async for chunk in chunks:
                yield chunk


if __name__ == "__main__":
    adopt(pickle.loads(Path(sys.argv[-1]).with_name(READING).read_bytes()))
    registry.register("stt", "bench", Recognizer)
    registry.register("tts", "bench", Speaking)
    registry.register("agent", "script", Playing)
    main(prog_name="mediaserver")
