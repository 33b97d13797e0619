"""The conversation beside the audio path: what turn-taking asks for is done here, what happens is told to it.

Nothing here runs per frame: `heard` is called when a frame changed something, the playout calls when an
utterance begins or ends, and decoding and answering are tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from pipeline.agent import CallOpened, Conversation, UserSaid
from pipeline.ears import Ears, Sound
from pipeline.errors import EngineError, LocalError
from pipeline.hearing import Hearing
from pipeline.latency import TurnClock
from pipeline.leg import Leg
from pipeline.minutes import Minutes
from pipeline.outcome import EndReason, SessionObserver
from pipeline.phrases import Phrase, Phrases
from pipeline.playout import Heard, Playout
from pipeline.reply import Reply
from pipeline.settings import SessionSettings
from pipeline.speech import Expected, TextToSpeech
from pipeline.turn_events import (
    BargedIn,
    CallConcluded,
    CheckVoice,
    Decode,
    Discard,
    EndCall,
    Event,
    Interrupt,
    KeyPressed,
    PlayFiller,
    ReplyFailed,
    ReplyHeard,
    SayLastWords,
    SpeechRanOut,
    SpeechReady,
    SpeechStarted,
    SpeechStopped,
    StartReply,
    State,
    TextWritten,
)
from pipeline.turns import Turns
from pipeline.utterance import Utterance
from pipeline.voice import Voice

log = logging.getLogger(__name__)

MAX_TEXT_CHARS: Final = 4000  # what somebody writes at once; it goes into a prompt
MAX_HELD_KEYS: Final = 32  # type-ahead over words that nothing interrupts; longer than a card number

QUIET_LINE_S: Final = 0.2  # no frame for so long is silence: the sender suppresses it, or is gone

_DEAF: Final = frozenset((State.OPENING, State.KEYING, State.CLOSING, State.ENDED))
"""States in which what the caller says is not listened to."""

_LAST_WORDS: Final[Mapping[EndReason, Phrase]] = MappingProxyType(
    {
        EndReason.ENGINE_ERROR: Phrase.APOLOGY,
        EndReason.SILENCE: Phrase.GOODBYE,
        EndReason.MAX_DURATION: Phrase.GOODBYE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Who takes part. `voices`: the first speaks, the others when it cannot."""

    leg: Leg
    agent: Conversation
    voices: tuple[TextToSpeech, ...]
    phrases: Phrases
    observer: SessionObserver | None


class Dialogue:
    """The asyncio side of `Turns`; also the `PlayoutListener` and the `Stage` of the agent's replies.

    `playout` is to be given to the leg. `over` gets the reason when the conversation has ended.
    """

    def __init__(self, cast: Cast, ears: Ears, minutes: Minutes, *, settings: SessionSettings) -> None:
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[EndReason] = self._loop.create_future()
        self.playout = Playout(cast.leg.rate_hz, self)
        self.disposition = self.target = ""
        self._cast = cast
        self._settings = settings
        self._ears = ears
        self._minutes = minutes
        self._hearing = Hearing(ears, minutes, self.receive)
        self._voice = Voice(self.playout, cast.voices, settings, minutes.fault_now)
        self._turns = Turns(settings, self._loop.time())
        self._tasks: asyncio.TaskGroup | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reply: Reply | None = None
        self._floor_turn = 0  # whose words are in the playout
        self._expected: Expected | None = None
        self._unanswered = False  # a reply was thrown away before any of it was heard
        self._held_keys = ""
        self._held_text = ""
        self._written = ""  # what is being answered, where it was written
        self._carried = ""  # what was written, and went on before any of the answer was heard
        self._quiet: asyncio.Future[None] | None = None

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """The line is open: the agent has the first word. Decoding and answering run in `tasks`."""
        self._tasks = tasks
        self._drain(self._loop.time())

    def end(self, reason: EndReason) -> None:
        """Ends it at once."""
        if not self.over.done():
            self.over.set_result(reason)

    def wind_up(self, now: float) -> None:
        """After `over`: stops what is under way, and writes down what was heard of it."""
        if self._timer is not None:
            self._timer.cancel()
        self._hearing.cancel()
        self._silence_agent(now)
        self._minutes.end(now)

    async def hear_out(self) -> None:
        """After `wind_up`: what the caller said last."""
        await self._hearing.hear_out(self._settings.stt_deadline_ms / 1000)

    # The caller -----------------------------------------------------------------------------------------

    def heard(self, sound: Sound, now: float) -> None:
        """The caller's voice began, ended, or lasts."""
        state = self._turns.state
        if sound is Sound.SUSTAINED:
            if state is State.HEARING or state in _DEAF or self._protected():
                return
            self._hearing.open(self._expected)
            self.receive(BargedIn(), now)
        elif sound is Sound.STARTED:
            if state not in _DEAF:
                self._hearing.open(self._expected)
            self.receive(SpeechStarted(), now)
        else:
            self.receive(SpeechStopped(self._ears.silent_since(), self._ears.voiced_ms), now)

    def keyed(self, digit: str, now: float) -> None:
        """A key of the caller's; over words that nothing interrupts it is kept until they are over."""
        self._ears.mask()
        if self._turns.state is State.OPENING or self._protected():
            self._held_keys = (self._held_keys + digit)[:MAX_HELD_KEYS]
        else:
            self.receive(KeyPressed(digit), now)

    def written(self, text: str, now: float) -> None:
        """Something the caller wrote; over words that nothing interrupts it is kept until they are over."""
        if self._turns.state is State.OPENING or self._protected():
            self._held_text = f"{self._held_text} {text}".strip()[:MAX_TEXT_CHARS]
        else:
            self.receive(TextWritten(text[:MAX_TEXT_CHARS]), now)

    def _protected(self) -> bool:
        """The words being heard may not be interrupted (yet)."""
        utterance = self.playout.current
        if utterance is None or self._reply is None:
            return False
        heard = self.playout.heard()
        if not utterance.interruptible or heard is None:
            return not utterance.interruptible
        opening = self._settings.opening_ms * utterance.rate_hz // 1000
        return isinstance(self._reply.event, CallOpened) and heard.samples < opening

    def _release_held(self, now: float) -> None:
        if self._protected():
            return
        keys, self._held_keys = self._held_keys, ""
        for key in keys:
            self.receive(KeyPressed(key), now)
        text, self._held_text = self._held_text, ""
        if text:
            self.receive(TextWritten(text), now)

    # From the playout (`PlayoutListener`) ---------------------------------------------------------------

    def playout_filled(self) -> None:
        """Sound waits to be heard."""
        self.receive(SpeechReady(self._floor_turn), self._loop.time())

    def utterance_started(self, utterance: Utterance, now: float) -> None:
        """The caller hears the agent: what they said before stands, and is not listened to any more."""
        self._minutes.agent_speaks(utterance.text, now)
        reply = self._reply
        if reply is None or self._minutes.was_heard:
            return
        self._hearing.close()
        self._unanswered = False
        self._minutes.sounded(now, agent_s=reply.agent_s, tts_s=reply.tts_s)

    def utterance_finished(self, utterance: Utterance, now: float) -> None:
        """All of it was heard."""
        self._minutes.agent_said(Heard(utterance, utterance.samples), now=now, interrupted=False)
        self._release_held(now)

    def playout_ran_out(self, now: float) -> None:
        """Nothing is left to be heard."""
        if self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)
        if self._reply is not None and self._reply.under_way:
            self.receive(SpeechRanOut(self._floor_turn), now)
        else:
            self._reply_heard(now)

    def _reply_heard(self, now: float) -> None:
        if self._turns.state is State.REPLYING:  # an answer without words: no sound has closed the utterance
            self._hearing.close()
            self._unanswered = False
        self._minutes.end(now)
        self.receive(ReplyHeard(self._floor_turn), now)
        self._release_held(now)

    # Turn-taking ----------------------------------------------------------------------------------------

    def receive(self, event: Event, now: float) -> None:
        """Something happened."""
        self._step(lambda: self._turns.receive(event, now), now)

    def _timer_due(self, at: float) -> None:
        self._timer = None
        now = max(at, self._loop.time())
        self._step(lambda: self._turns.handle_timer(now), now)

    def _step(self, step: Callable[[], None], now: float) -> None:
        before = self._turns.state
        try:
            step()
        except LocalError:
            # A bug of ours must not leave a caller on a silent line.
            log.exception("turn-taking broke", extra={"call_id": self._minutes.call_id})
            self.end(EndReason.ENGINE_ERROR)
            return
        observer = self._cast.observer
        if observer is not None and self._turns.state is not before:
            observer.state_changed(self._turns.state.name.lower(), now)
        self._drain(now)

    def _drain(self, now: float) -> None:
        while (action := self._turns.next_action()) is not None:
            _ACTIONS[type(action)](self, action, now)
        at = self._turns.timer_at()
        if self._timer is not None:
            if at == self._timer.when():
                return
            self._timer.cancel()
            self._timer = None
        if at is not None and not self.over.done():
            self._timer = self._loop.call_at(at, self._timer_due, at)

    # Actions --------------------------------------------------------------------------------------------

    def _decode(self, action: Decode, now: float) -> None:
        if self._tasks is not None:
            self._hearing.decode(action.turn, self._tasks)

    def _start_reply(self, action: StartReply, now: float) -> None:
        event, clock, caller = action.event, None, None
        if isinstance(event, UserSaid):
            minutes = self._minutes
            written = action.silent_since is None
            if written:
                minutes.caller_wrote(event.text, now)
            else:
                caller = self._hearing.take(now)
            event = replace(
                event,
                text=f"{self._carried} {event.text}".strip(),
                heard=minutes.heard,
                interrupted=minutes.cut_short,
                continues=self._unanswered or bool(self._carried),
            )
            self._written, self._carried = event.text if written else "", ""
        if action.silent_since is not None and action.endpoint_due is not None:
            clock = TurnClock(action.silent_since, action.endpoint_due, self._hearing.words_known)
        self._minutes.begin(event, now, clock=clock, caller=caller)
        self._floor_turn = action.turn
        self._reply = reply = Reply(action.turn, event, self, self._voice)
        if self._tasks is not None:
            reply.task = self._tasks.create_task(self._answer(reply))

    async def _answer(self, reply: Reply) -> None:
        try:
            await reply.run(self._cast.agent)
        except EngineError as error:
            self._answer_failed(reply, str(error))
        except Exception as error:  # a task's boundary, around somebody else's code
            log.exception("agent broke", extra={"call_id": self._minutes.call_id})
            self._answer_failed(reply, repr(error))
        else:
            reply.under_way = False
            if self.playout.current is None:
                self._reply_heard(self._loop.time())

    def _answer_failed(self, reply: Reply, reason: str) -> None:
        reply.under_way = False
        self._minutes.fault_now("agent", reason)
        self.receive(ReplyFailed(reply.turn), self._loop.time())

    def _silence_agent(self, now: float) -> None:
        """Sound, transcript, thinking: in this order, in one step."""
        heard = self.playout.clear()
        if heard is not None:
            self._minutes.agent_said(heard, now=now, interrupted=True)
        if self._reply is not None:
            self._reply.cancel()

    def _interrupt(self, action: Interrupt, now: float) -> None:
        self._silence_agent(now)
        if self._minutes.was_heard:
            self._minutes.end(now, interrupted=True)
        else:
            self._unanswered = self._ears.is_open and self._minutes.answers_words
            self._carried = self._written

    def _discard(self, action: Discard, now: float) -> None:
        self._hearing.close()
        if self._unanswered:
            self._unanswered = False
            self._minutes.end(now, interrupted=True)

    def _play_filler(self, action: PlayFiller, now: float) -> None:
        self._minutes.filler()
        spoken = self._cast.phrases.at(Phrase.FILLER, self.playout.rate_hz)
        self.playout.interject(spoken.text, spoken.samples)

    def _say_last_words(self, action: SayLastWords, now: float) -> None:
        reply = self._reply
        if action.reason is EndReason.MAX_DURATION or (reply is not None and reply.under_way):
            self._silence_agent(now)
        self._hearing.close()
        self._floor_turn = action.turn
        spoken = self._cast.phrases.at(_LAST_WORDS[action.reason], self.playout.rate_hz)
        self.playout.interject(spoken.text, spoken.samples)

    def _check_voice(self, action: CheckVoice, now: float) -> None:
        if now - self._ears.last_frame_at > QUIET_LINE_S and self._ears.fall_silent() is not None:
            self.heard(Sound.STOPPED, now)

    def _end_call(self, action: EndCall, now: float) -> None:
        self.end(action.reason)

    # From the answer (`Stage`) --------------------------------------------------------------------------

    def expect(self, expected: Expected | None) -> None:
        """What the caller's next words may be."""
        self._expected = expected
        self._turns.expect(expected)

    async def send_digits(self, digits: str) -> None:
        """Keys digits when the words so far have been heard."""
        while self.playout.current is not None:
            self._quiet = self._loop.create_future()
            await self._quiet
        await self._cast.leg.send_dtmf(digits)

    def conclude(self, turn: int, reason: EndReason, *, disposition: str = "", target: str = "") -> None:
        """The agent has said its last words."""
        self.disposition, self.target = disposition, target
        self.receive(CallConcluded(turn, reason), self._loop.time())


_ACTIONS: Final[Mapping[type, Callable[[Dialogue, Any, float], None]]] = MappingProxyType(
    {
        Decode: Dialogue._decode,
        Discard: Dialogue._discard,
        StartReply: Dialogue._start_reply,
        Interrupt: Dialogue._interrupt,
        PlayFiller: Dialogue._play_filler,
        SayLastWords: Dialogue._say_last_words,
        CheckVoice: Dialogue._check_voice,
        EndCall: Dialogue._end_call,
    }
)
