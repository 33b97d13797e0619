"""Carries out the agent's acts in reply to one event, in order."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, Protocol, TypeAlias

from pipeline.agent import (
    AgentAct,
    AgentEvent,
    Conversation,
    DoNotCall,
    Expect,
    HangUp,
    Play,
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

LONGEST_WAIT_S: Final = 60.0  # of `Wait`

Certain: TypeAlias = "asyncio.Future[None] | None"


class Stage(Protocol):
    """The receiver of a reply's acts; implemented by `AgentTurns`."""

    def expect(self, expected: Expected | None, *, masked: bool = False) -> None:
        """Sets the answers expected of the caller; `masked`: nobody but the agent may see the answer."""

    async def send_digits(self, digits: str) -> None:
        """Sends DTMF when the words so far have been heard."""

    async def wait(self, turn: int, seconds: float) -> None:
        """Waits until the words so far have been heard, then stays silent for `seconds`."""

    def switch_language(self, language: str) -> None:
        """Changes the recogniser and the voice to `language` from the next words on."""

    def do_not_call(self, reason: str) -> None:
        """Notes the caller's request not to be called again, with its reason."""

    def fault(self, message: str) -> None:
        """Records a fault that the agent recovered from."""

    def doing(self, what: str) -> None:
        """Sets the cause that a silence from now on is recorded under: "agent_late", "tts_late", "keying"."""

    def conclude(self, turn: int, ending: HangUp | Transfer) -> None:
        """Ends or transfers the call when the words so far have been heard."""


async def until_certain(certain: asyncio.Future[None]) -> None:
    """Waits until a turn is over for certain. An event has this in place of a method of its `Reply`, which
    has the event."""
    await asyncio.shield(certain)


class Reply:
    """The reply to one event. `run` returns when every act has been carried out and every word is in the
    playout, before the caller has heard them. Cancelling `run` closes the agent's iterator and stops the
    voice.

    `certain`: a future for a turn that is only presumed to be over. Until `confirm_turn` sets that future,
    the reply synthesises words and carries out no other act. None: the turn is over.
    """

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
        self._agent_s: float | None = None  # seconds from the event to the agent's first words
        self._asked: Expect | None = None  # passed to the stage once the turn is certain
        self._expected = False
        self._acted = False
        self.started = 0.0
        """Loop time at which the agent was asked."""

    @property
    def came_to_nothing(self) -> bool:
        """Whether the reply so far has neither audible words nor an act that the caller notices."""
        return not self._acted and self._voice.first_chunk_s is None

    def waited(self, now: float) -> tuple[float, float]:
        """Gives the seconds from the event to the agent's first words, and from those to their first sound. A
        part that has not come by `now`, when the caller hears a filler, is counted up to `now`."""
        if self._agent_s is None:
            return now - self.started, 0.0
        tts_s = self._voice.first_chunk_s
        return self._agent_s, now - self.started - self._agent_s if tts_s is None else tts_s

    async def settled(self) -> None:
        """Waits until the turn that is answered is over for certain."""
        if self._certain is not None:
            await until_certain(self._certain)

    def confirm_turn(self) -> None:
        """Marks the presumed turn as over: `settled` returns, and acts other than words are carried out."""
        if self._certain is not None and not self._certain.done():
            self._certain.set_result(None)
            if self._asked is not None:
                self._stage.expect(self._asked.expected, masked=self._asked.masked)

    async def run(self, conversation: Conversation) -> None:
        """Asks the agent and carries out its acts. Raises `EngineError`, and any exception of the agent."""
        loop = asyncio.get_running_loop()
        self.started = loop.time()
        self._voice.first_chunk_s = None
        self._stage.doing("agent_late")
        self._voice.on_caught_up = caught_up = partial(self._stage.doing, "agent_late")
        try:
            async with closing(conversation.respond(self.event)) as acts:
                async for act in acts:
                    if not await self._perform(act, loop.time()):
                        break
            await self._voice.finish()
        except asyncio.CancelledError:
            if self.under_way:  # otherwise `cancel` did, and the voice may have the next reply
                self._voice.abandon()
            raise
        finally:
            if self._voice.on_caught_up is caught_up:  # otherwise the next reply has begun
                self._voice.on_caught_up = None
        await self.settled()
        if not self._expected:
            self._stage.expect(None)

    def stood_in_for(self) -> None:
        """Notes that the caller hears the server's words in place of this reply."""
        self._acted = True

    def cancel(self) -> None:
        """Cancels the reply: no more words and no more acts."""
        self.under_way = False
        if self.task is not None:
            self.task.cancel()
            self._voice.abandon()

    async def _perform(self, act: AgentAct, now: float) -> bool:
        """Carries out one act. False: no act can follow."""
        match act:
            case Say():
                if self._agent_s is None:
                    self._agent_s = now - self.started
                self._stage.doing("tts_late")
                await self._voice.say(clean_text(act.text), interruptible=act.interruptible)
                if not self._voice.is_behind:
                    self._stage.doing("agent_late")
                return True
            case Play():
                if self._agent_s is None:
                    self._agent_s = now - self.started
                await self._voice.play(act.speech)
                return True
            case Trouble():
                self._stage.fault(clean_text(act.message))
                return True
        await self._voice.finish()
        if isinstance(act, Expect):
            self._expect(act)
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
        """Carries out an act that cannot be undone. False: no act can follow."""
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
