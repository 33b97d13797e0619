"""Runs the agent's replies in a conversation, one at a time, and records how much of each was heard."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

from pipeline.agent import CallOpened, HangUp, Transfer, UserKeyed, UserSaid, UserSilent
from pipeline.errors import EngineError, contained
from pipeline.latency import TurnClock
from pipeline.media.playout import Playout
from pipeline.media.utterance import Utterance
from pipeline.net.untrusted import clean_text
from pipeline.result import EndReason
from pipeline.session.dead_air import SILENT_AGENT
from pipeline.session.parts import SessionParts
from pipeline.session.recognition import NO_WORDS, Recognition
from pipeline.session.reply import Reply, until_certain
from pipeline.session.synthesis import Synthesis
from pipeline.session.turn_log import TurnLog
from pipeline.settings import SessionSettings
from pipeline.speech import Expected, Hypothesis
from pipeline.text.prompts import Phrase
from pipeline.turns.events import CallConcluded, Event, ReplyFailed, StartReply, WaitBegan

log = logging.getLogger(__name__)

_LATE: Final = MappingProxyType({"tts_late": "tts", "keying": "leg"})
"""The role that a fault is recorded under, by the cause of the wait; the agent for other causes."""


class TurnOwner(Protocol):
    """The receiver of events and settings that come from the agent's replies; implemented by `Dialogue`."""

    def receive(self, event: Event, now: float) -> None:
        """Passes `event` to the turn machine at loop time `now`."""

    def reply_heard(self, now: float) -> None:
        """Notes that the reply is complete and the caller heard it to its end."""

    def expect(self, expected: Expected | None, *, masked: bool) -> None:
        """Sets the answers expected of the caller; `masked`: nobody but the agent may see the answer."""

    def switch_language(self, language: str) -> None:
        """Changes the recogniser and the voice to `language` from now on."""

    def waits_for(self, cause: str) -> None:
        """Sets the cause that a silence from now on is recorded under."""


class AgentTurns:
    """Carries out the turn machine's actions on the agent and reports their results to `TurnOwner`; the
    `Stage` of the replies.

    `floor_turn`: the number of the turn whose words are in the playout. `expected`: the answers expected of
    the caller next. `disposition`, `target`, `do_not_call_reason`: what the agent asked for at the end of the
    call."""

    def __init__(
        self,
        parts: SessionParts,
        recognition: Recognition,
        turn_log: TurnLog,
        *,
        playout: Playout,
        settings: SessionSettings,
        owner: TurnOwner,
    ) -> None:
        self.floor_turn = 0
        self.expected: Expected | None = None
        self.disposition = self.target = ""
        self.do_not_call_reason: str | None = None
        self.language = settings.language
        self.reply: Reply | None = None
        self._parts = parts
        self._recognition = recognition
        self._turn_log = turn_log
        self._playout = playout
        self._owner = owner
        self._opening_ms = settings.opening_ms
        self._loop = asyncio.get_running_loop()
        self._voice = Synthesis(playout, parts.voices, settings, turn_log.fault_now)
        self._unanswered = False  # a reply to speech was discarded before the caller heard any of the reply
        self._written = ""  # the text message being answered
        self._presumed = NO_WORDS  # the words being answered until the recogniser confirms the turn's words
        self._carried = ""  # text messages whose reply was interrupted unheard; the next message is added
        self._quiet: asyncio.Future[None] | None = None
        self._doing = ""

    @property
    def under_way(self) -> bool:
        """Whether a reply of the agent is incomplete."""
        return self.reply is not None and self.reply.under_way

    @property
    def is_protected(self) -> bool:
        """Whether the words being heard may not be interrupted (yet)."""
        utterance, reply = self._playout.current, self.reply
        if utterance is None or reply is None:
            return False
        heard = self._playout.heard()
        if not utterance.interruptible or heard is None:
            return not utterance.interruptible
        opening = self._opening_ms * utterance.rate_hz // 1000
        return isinstance(reply.event, CallOpened) and heard.samples < opening

    def start(self, action: StartReply, now: float, tasks: asyncio.TaskGroup) -> None:
        """Starts the reply to the action's event, after closing the exchange before it."""
        event, clock, caller = action.event, None, None
        turn_log = self._turn_log
        continues = isinstance(event, UserSaid) and (self._unanswered or bool(self._carried))
        if not continues:  # an exchange still open here had its answer discarded before any sound of it
            turn_log.end(now, interrupted=True)
            self._carried = ""
        if isinstance(event, UserSaid):
            written = action.silent_since is None
            if written:
                turn_log.caller_wrote(event.text, now)
            elif action.presumed:
                self._presumed = Hypothesis(event.text, event.confidence)
            else:
                caller = self._recognition.take(now)
            text = f"{self._carried} {event.text}".strip()
            event = replace(event, text=text, continues=continues, keyed=self._keyed(event, continues))
            self._written, self._carried = event.text if written else "", ""
        if isinstance(event, UserSaid | UserKeyed | UserSilent):
            event = replace(event, heard=turn_log.heard, interrupted=turn_log.cut_short)
        if action.silent_since is not None and action.endpoint_due is not None:
            known = self._recognition.words_known
            clock = TurnClock(action.silent_since, action.endpoint_due, known, agent_asked=now)
        turn_log.begin(event, now, clock=clock, caller=caller)
        self.floor_turn = action.turn
        certain = self._loop.create_future() if action.presumed else None
        self.reply = reply = Reply(action.turn, event, self, self._voice, certain=certain)
        if isinstance(event, UserSaid) and certain is not None:
            reply.event = replace(event, settled=partial(until_certain, certain))
        reply.task = tasks.create_task(self._answer(reply))

    def _keyed(self, event: UserSaid, continues: bool) -> str:
        before = self.reply.event if self.reply is not None and continues else None
        return (before.keyed if isinstance(before, UserSaid) else "") + event.keyed

    def confirm_turn(self, endpoint_due: float, now: float) -> None:
        """Takes the presumed turn's words as final and lets its reply be heard. `endpoint_due`: loop time of
        the end-point."""
        caller = self._recognition.take(now, self._presumed)
        self._turn_log.confirm(caller, endpoint_due=endpoint_due, words_known=self._recognition.words_known)
        if self.reply is not None:
            self.reply.confirm_turn()

    async def _answer(self, reply: Reply) -> None:
        try:
            with contained("the agent", call_id=self._turn_log.call_id):
                await reply.run(self._parts.agent)
        except EngineError as error:
            await self._failed(reply, str(error))
        else:
            reply.under_way = False
            if self._playout.current is None:
                self._owner.reply_heard(self._loop.time())

    async def _failed(self, reply: Reply, reason: str) -> None:
        with suppress(EngineError):  # `reason` is told
            await self._voice.finish()
        await reply.settled()
        reply.under_way = False
        self._turn_log.fault_now("agent", reason)
        self._owner.receive(ReplyFailed(reply.turn), self._loop.time())

    def leave(self) -> None:
        """Drops the reply and the owner when the conversation is over."""
        self.reply = None
        self._playout.close()
        del self._owner

    # Playout and interruption -------------------------------------------------------------------------------

    def sounds(self, utterance: Utterance, now: float) -> None:
        """Notes that the caller begins to hear an utterance. The first utterance of a reply makes the
        caller's words final and ends their recognition."""
        reply = self.reply
        if reply is None or self._turn_log.was_heard:
            return
        self._recognition.close()
        self._unanswered, self._written = False, ""
        agent_s, tts_s = reply.waited(now)
        self._turn_log.sounded(now, agent_s=agent_s, tts_s=tts_s)

    def ran_out(self) -> None:
        """Notes that the playout is empty; wakes `heard_so_far`."""
        if self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)

    def heard_out(self, now: float, *, wordless: bool) -> None:
        """Notes that the reply is complete and heard to its end; `wordless`: it had no sound."""
        reply, self._written = self.reply, ""
        if reply is not None and isinstance(reply.event, UserSaid | UserKeyed) and reply.came_to_nothing:
            self._owner.waits_for(SILENT_AGENT)
        if wordless:  # `sounds`, which closes the caller's utterance, was never called
            self._recognition.close()
            self._unanswered = False
        elif not self._turn_log.was_heard:  # the caller speaks on: the next turn continues this one
            self._unanswered = self._recognition.is_open and self._turn_log.answers_words
        self._turn_log.end(now)

    # Discarding and last words ------------------------------------------------------------------------------

    def silence(self, now: float) -> None:
        """Clears the playout, adds the words that were heard to the transcript and cancels the reply."""
        heard = self._playout.clear()
        if heard is not None:
            self._turn_log.agent_said(heard, now=now, interrupted=True)
            heard.utterance.cut(heard.samples)
        if self.reply is not None:
            self.reply.cancel()

    def interrupt(self, now: float) -> None:
        """Stops the agent because the caller barged in, and drops a pending hang-up or transfer."""
        self.disposition = self.target = ""
        self.silence(now)
        if self._turn_log.was_heard:
            self._turn_log.end(now, interrupted=True)
        else:
            self._unanswered = self._recognition.is_open and self._turn_log.answers_words
            self._carried = self._written
            if self._unanswered:
                self._recognition.give_back()

    def forget(self, now: float) -> None:
        """Drops the caller's utterance, which turned out to be no turn. An utterance whose reply is under
        way and not yet audible is kept."""
        if not self._turn_log.was_heard and (self.under_way or self._playout.current is not None):
            return
        said = self._recognition.said if self._unanswered else None
        self._recognition.close()
        if self._unanswered:
            self._unanswered = False
            self._turn_log.end(now, interrupted=True, said=said)

    def interject(self, phrase: Phrase, *, interruptible: bool = False) -> None:
        """Plays one of the server's prepared phrases, in the conversation's current language."""
        spoken = self._parts.phrases.at(phrase, self._playout.rate_hz, self.language)
        self._playout.interject(spoken.text, spoken.samples, interruptible=interruptible)

    def ask_again(self, turn: int, now: float) -> None:
        """Drops a reply that failed or is too late, and asks the caller to say it again."""
        self._note_late(now)
        if self.under_way:
            self.silence(now)
        if self.reply is not None:
            self.reply.stood_in_for()
        self._recognition.close()
        self._unanswered = False
        self.floor_turn = turn
        self.interject(Phrase.RETRY, interruptible=True)

    def _note_late(self, now: float) -> None:
        if self.under_way:  # late rather than failed: no fault is recorded yet
            self._turn_log.fault(_LATE.get(self._doing, "agent"), "nothing was heard of it for too long", now)

    def last_words(self, turn: int, phrase: Phrase, now: float, *, at_once: bool, final: bool) -> None:
        """Plays `phrase` as the last words of the call; unless `final`, the caller may still go on after
        it."""
        if phrase is Phrase.APOLOGY:
            self._note_late(now)
        if at_once or self.under_way:
            self.silence(now)
        self._recognition.close()
        if not final:
            self.reply = None
        self.floor_turn = turn
        self.interject(phrase, interruptible=not final)

    # From the reply (`Stage`) -------------------------------------------------------------------------------

    def expect(self, expected: Expected | None, *, masked: bool = False) -> None:
        """Sets the answers expected of the caller; `masked`: nobody but the agent may see the answer."""
        self.expected = expected
        self._turn_log.redaction.ask(masked, self._loop.time())
        if self._recognition.is_open:
            self._turn_log.redaction.heard()
        self._owner.expect(expected, masked=masked)

    async def heard_so_far(self) -> None:
        """Returns when the words so far have been heard."""
        while self._playout.current is not None:
            self._quiet = self._loop.create_future()
            await self._quiet

    async def send_digits(self, digits: str) -> None:
        """Sends DTMF when the words so far have been heard."""
        await self.heard_so_far()
        await self._parts.leg.send_dtmf(digits)

    async def wait(self, turn: int, seconds: float) -> None:
        """Waits until the words so far have been heard, then stays silent for `seconds`."""
        await self.heard_so_far()
        self._owner.receive(WaitBegan(turn, seconds), self._loop.time())
        await asyncio.sleep(seconds)

    def switch_language(self, language: str) -> None:
        """Changes the recogniser and the voice to `language` from the next words on."""
        self.language = self._voice.language = language
        self._owner.switch_language(language)

    def do_not_call(self, reason: str) -> None:
        """Notes the caller's request not to be called again, with its reason."""
        self.do_not_call_reason = reason
        if self._parts.observer is not None:
            self._parts.observer.do_not_call(reason, self._loop.time())

    def fault(self, message: str) -> None:
        """Records a fault that the agent recovered from."""
        self._turn_log.fault_now("agent", message)

    def doing(self, what: str) -> None:
        """Sets the cause that a silence from now on is recorded under ("agent_late", "tts_late",
        "keying")."""
        self._doing = what
        self._owner.waits_for(what)

    def conclude(self, turn: int, ending: HangUp | Transfer) -> None:
        """Ends the call with a hang-up or transfer once the words so far are heard. After a request not to be
        called the end is final: the caller's answer does not keep the call."""
        final = self.do_not_call_reason is not None
        if isinstance(ending, HangUp):
            self.disposition, self.target = clean_text(ending.disposition), ""
            concluded = CallConcluded(turn, EndReason.AGENT, final=ending.final or final)
        else:
            self.disposition, self.target = "", ending.target
            concluded = CallConcluded(turn, EndReason.TRANSFER, final=final)
        self._owner.receive(concluded, self._loop.time())
