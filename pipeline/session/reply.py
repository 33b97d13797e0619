"""One answer of the agent being given: its acts carried out in order, as they come."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, TypeAlias

from pipeline.agent import (
    AgentAct,
    AgentEvent,
    Conversation,
    DoNotCall,
    Expect,
    HangUp,
    Say,
    SendDigits,
    SwitchLanguage,
    Transfer,
    Trouble,
    Wait,
)
from pipeline.engines.aio import closing
from pipeline.net.untrusted import clean_text
from pipeline.session.synthesis import Synthesis
from pipeline.speech import Expected

LONGEST_WAIT_S: Final = 60.0

Certain: TypeAlias = "asyncio.Future[None] | None"


class Stage(Protocol):
    """What an answer acts upon; the session is it."""

    def expect(self, expected: Expected | None, *, masked: bool = False) -> None:
        """What the caller's next words may be; `masked`: nobody but the agent may see them."""

    async def send_digits(self, digits: str) -> None:
        """Keys digits towards the far end when the words so far have been heard."""

    async def wait(self, turn: int, seconds: float) -> None:
        """Is silent for so long when the words so far have been heard."""

    def switch_language(self, language: str) -> None:
        """Both sides speak `language` from the next words on."""

    def do_not_call(self, reason: str) -> None:
        """The caller does not want to be called again."""

    def fault(self, message: str) -> None:
        """The agent got over something that belongs on the record."""

    def doing(self, what: str) -> None:
        """What the caller waits for from now on, should they hear nothing: "agent_late", "tts_late",
        "keying"."""

    def conclude(self, turn: int, ending: HangUp | Transfer) -> None:
        """The call ends, or is handed on, when the words so far have been heard."""


class Reply:
    """The answer to one event. `run` returns when every act has been carried out and every word is in the
    playout, which is not yet heard. Cancelling it closes the agent's iterator and stops the voice.

    A reply to a turn that is only presumed (`certain`: a future) makes words, and does nothing else until
    `settle` is called."""

    __slots__ = (
        "_acted", "_agent_s", "_asked", "_certain", "_expected", "_stage", "_voice", "event", "started",
        "task", "turn", "under_way",
    )  # fmt: skip

    def __init__(
        self, turn: int, event: AgentEvent, stage: Stage, voice: Synthesis, *, certain: Certain = None
    ) -> None:
        self.turn = turn
        self.event = event
        self.under_way = True
        self.task: asyncio.Task[None] | None = None
        self._stage = stage
        self._voice = voice
        self._certain = certain
        self._agent_s: float | None = None  # to its first words
        self._asked: Expect | None = None  # to be expected when the turn is certain
        self._expected = False
        self._acted = False
        self.started = 0.0
        """When the agent was asked (loop time)."""

    @property
    def came_to_nothing(self) -> bool:
        """The agent has said nothing that could be heard, and done nothing."""
        return not self._acted and self._voice.first_chunk_s is None

    def waited(self, now: float) -> tuple[float, float]:
        """How long the agent took to its first words, and the voice to their first sound. Who is still
        awaited `now`, when the caller hears a filler, took the time until now."""
        if self._agent_s is None:
            return now - self.started, 0.0
        tts_s = self._voice.first_chunk_s
        return self._agent_s, now - self.started - self._agent_s if tts_s is None else tts_s

    async def settled(self) -> None:
        """Returns when the turn that is answered is over for certain."""
        if self._certain is not None:
            await asyncio.shield(self._certain)

    def confirm_turn(self) -> None:
        """The turn that is answered is over."""
        if self._certain is not None and not self._certain.done():
            self._certain.set_result(None)
            if self._asked is not None:
                self._stage.expect(self._asked.expected, masked=self._asked.masked)

    async def run(self, conversation: Conversation) -> None:
        """Carries the answer out. Raises `EngineError`, and whatever else the agent raises."""
        loop = asyncio.get_running_loop()
        self.started = loop.time()
        self._voice.first_chunk_s = None
        self._stage.doing("agent_late")
        async with closing(conversation.respond(self.event)) as acts:
            async for act in acts:
                if not await self._perform(act, loop.time()):
                    break
        await self.settled()
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
                if self._agent_s is None:
                    self._agent_s = now - self.started
                self._stage.doing("tts_late")
                await self._voice.say(clean_text(act.text), interruptible=act.interruptible)
                self._stage.doing("agent_late")
                return True
            case Expect():
                self._expect(act)
                return True
            case Trouble():
                self._stage.fault(clean_text(act.message))
                return True
        await self.settled()
        return await self._do(act)

    def _expect(self, act: Expect) -> None:
        self._expected = True
        if self._certain is None or self._certain.done():
            self._stage.expect(act.expected, masked=act.masked)
        else:
            self._asked = act

    async def _do(self, act: AgentAct) -> bool:
        """What cannot be undone."""
        self._acted = self._acted or isinstance(act, SendDigits | Wait | HangUp | Transfer)
        match act:
            case SendDigits():
                self._stage.doing("keying")
                await self._stage.send_digits(act.digits)
                self._stage.doing("agent_late")
            case Wait():
                await self._stage.wait(self.turn, min(max(act.seconds, 0.0), LONGEST_WAIT_S))
            case SwitchLanguage():
                self._stage.switch_language(act.language)
            case DoNotCall():
                self._stage.do_not_call(clean_text(act.reason))
            case HangUp() | Transfer():
                self._stage.conclude(self.turn, act)
                return False
        return True
