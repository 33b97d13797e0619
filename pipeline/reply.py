"""One answer of the agent being given: its acts carried out in order, as they come."""

from __future__ import annotations

import asyncio
from typing import Protocol

from pipeline.agent import AgentAct, AgentEvent, Conversation, Expect, HangUp, Say, SendDigits, Transfer
from pipeline.outcome import EndReason
from pipeline.speech import Expected
from pipeline.voice import Voice, closing


class Stage(Protocol):
    """What an answer acts upon; the session is it."""

    def expect(self, expected: Expected | None, *, masked: bool = False) -> None:
        """What the caller's next words may be; `masked`: nobody but the agent may see them."""

    async def send_digits(self, digits: str) -> None:
        """Keys digits towards the far end when the words so far have been heard."""

    def conclude(self, turn: int, reason: EndReason, *, disposition: str = "", target: str = "") -> None:
        """The call ends, or is handed to `target`, when the words so far have been heard."""


class Reply:
    """The answer to one event. `run` returns when every act has been carried out and every word is in the
    playout, which is not yet heard. Cancelling it closes the agent's iterator and stops the voice."""

    __slots__ = ("_expected", "_stage", "_started", "_voice", "agent_s", "event", "task", "turn", "under_way")

    def __init__(self, turn: int, event: AgentEvent, stage: Stage, voice: Voice) -> None:
        self.turn = turn
        self.event = event
        self.under_way = True
        self.agent_s = 0.0
        """How long the agent took to its first words."""
        self.task: asyncio.Task[None] | None = None
        self._stage = stage
        self._voice = voice
        self._expected = False
        self._started = 0.0

    @property
    def tts_s(self) -> float:
        """How long the voice took to the first sound of them."""
        return self._voice.first_chunk_s

    async def run(self, conversation: Conversation) -> None:
        """Carries the answer out. Raises `EngineError`, and whatever else the agent raises."""
        loop = asyncio.get_running_loop()
        self._started = loop.time()
        async with closing(conversation.respond(self.event)) as acts:
            async for act in acts:
                if not await self._perform(act, loop.time()):
                    break
        if not self._expected:
            self._stage.expect(None)

    def cancel(self) -> None:
        """Stops it; nothing more comes of it."""
        self.under_way = False
        if self.task is not None:
            self.task.cancel()

    async def _perform(self, act: AgentAct, now: float) -> bool:
        """False: nothing can follow this act."""
        match act:
            case Say():
                if not self.agent_s:
                    self.agent_s = now - self._started
                await self._voice.say(act.text, interruptible=act.interruptible)
            case Expect():
                self._expected = True
                self._stage.expect(act.expected, masked=act.masked)
            case SendDigits():
                await self._stage.send_digits(act.digits)
            case HangUp():
                self._stage.conclude(self.turn, EndReason.AGENT, disposition=act.disposition)
                return False
            case Transfer():
                self._stage.conclude(self.turn, EndReason.TRANSFER, target=act.target)
                return False
        return True
