"""The server that the scripted callers ring: `mediaserver serve` as it is, with the stand-ins for the models.

`python -m bench.conversation_server serve --config FILE`. What the callers say is read from a file of each
line (the truth has to cross from their process to this one); what the agent was told is written to one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from bench.conversation_models import Agent, Fault, Part, Recogniser, Voice
from bench.conversation_scenarios import ASKING, HELPING, SPEECH
from bench.conversation_sounds import reading
from mediaserver.__main__ import main
from pipeline import registry
from pipeline.agent import AgentAct, AgentContext, AgentEvent, UserKeyed, UserSaid

PARTS: Final[Mapping[str, Part]] = {"helping": HELPING, "asking": ASKING, "speech": SPEECH}


class WrittenTruth:
    """What a caller says, as their process wrote it down: a line a word, with times and confidence."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def between(self, since: float, until: float) -> list[tuple[str, float]]:
        """See `bench.conversation_models.Said`."""
        found: list[tuple[str, float]] = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            start, end, sure, text = line.split("\t")
            if float(start) >= since and float(end) <= until:
                found.append((text, float(sure)))
        return found


class WritingAgent(Agent):
    """Writes down what it was told, once that is settled."""

    def __init__(self, part: Part, path: Path) -> None:
        super().__init__(part)
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


class Playing:
    """The agent of one line; `part` and `events` in its table."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._part = PARTS[settings["part"]]
        self._events = Path(settings["events"])

    async def start(self) -> None:
        """Ready."""

    async def close(self) -> None:
        """Nothing is held."""

    def join(self, context: AgentContext) -> WritingAgent:
        """See `pipeline.agent.Agent`."""
        return WritingAgent(self._part, self._events)


def _recogniser(settings: Mapping[str, Any]) -> Recogniser:
    return Recogniser(WrittenTruth(Path(settings["words"])), Fault.NONE)


if __name__ == "__main__":
    reading()
    registry.register("stt", "bench", _recogniser)
    registry.register("tts", "bench", lambda settings: Voice())
    registry.register("agent", "script", Playing)
    main(prog_name="mediaserver")
