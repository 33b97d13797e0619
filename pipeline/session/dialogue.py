"""Passes the events of a conversation to the turn machine and carries out the machine's actions.

Only `sounded` runs per frame: `heard` is called when a frame changed the caller's voice, the playout calls
when an utterance begins or ends, and decoding and answering are tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from pipeline.agent import UserSaid
from pipeline.audio import FRAME_MS
from pipeline.errors import LocalError
from pipeline.media.playout import Heard, Playout
from pipeline.media.utterance import Utterance
from pipeline.plane.outgoing import Left
from pipeline.result import EndReason
from pipeline.session.agent_turns import AgentTurns
from pipeline.session.audio_input import QUIET_LINE_S, AudioInput, Sound
from pipeline.session.dead_air import DeadAirWatch, cause_in
from pipeline.session.parts import SessionParts
from pipeline.session.prompts import LAST_WORDS
from pipeline.session.recognition import Recognition
from pipeline.session.turn_log import TurnLog
from pipeline.session.type_ahead import MAX_TEXT_CHARS, TypeAhead
from pipeline.session.voice_gate import BOTH_SPEAK, PAUSED, VoiceGate
from pipeline.settings import SessionSettings
from pipeline.speech import Expected
from pipeline.text.prompts import Phrase
from pipeline.turns.events import (
    AcceptSpeech,
    AskAgain,
    BargedIn,
    CheckVoice,
    ConfirmTurn,
    Decode,
    Discard,
    EndCall,
    Event,
    FinalTranscript,
    Interrupt,
    KeyPressed,
    PartialTranscript,
    PlayFiller,
    PollPartial,
    RejectAsNoise,
    ReplyHeard,
    RequestPartial,
    SayLastWords,
    SpeechContinued,
    SpeechRanOut,
    SpeechReady,
    SpeechStarted,
    SpeechStopped,
    StartReply,
    State,
    TextWritten,
)
from pipeline.turns.machine import Turns

log = logging.getLogger(__name__)

_ONSET_FRAMES: Final = 3  # frames that the voice detector needs to decide on a beginning

_DEAF: Final = frozenset((State.OPENING, State.CLOSING, State.ENDED))
"""States in which the caller's speech is not recognised."""

_LOWERED: Final = frozenset((State.DUCKED, State.JUDGING))
_SILENCED: Final = frozenset((State.HALTED, State.DOUBTING, State.PRESUMING))
_PLAIN: Final = frozenset(State) - _LOWERED - _SILENCED - {State.REPLYING}
"""States in which the playout is neither held nor lowered; REPLYING holds an answer that the caller is about
to speak over."""

_SAYING: Final = frozenset((State.SPEAKING, State.OVERLAPPED))


class Dialogue:
    """The asyncio side of `Turns`: its timer, its tasks and its actions. Implements `PlayoutListener` for the
    playout and `TurnOwner` for `AgentTurns`.

    `playout`: the `AudioSource` of the leg. `over`: a future that gets the reason of the conversation's end.
    `begun`: `begin` has been called; before it nothing but `end` may be.
    """

    def __init__(
        self, parts: SessionParts, audio_input: AudioInput, log: TurnLog, settings: SessionSettings
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[EndReason] = self._loop.create_future()
        self.playout = Playout(parts.leg.rate_hz, self)
        self._observer = parts.observer
        self._settings = settings
        self._audio_input = audio_input
        self._turn_log = log
        self._recognition = Recognition(audio_input, log, self._on_text, parts.detector, words=settings.words)
        self.agent_turns = AgentTurns(
            parts, self._recognition, log, playout=self.playout, settings=settings, owner=self
        )
        self._turns, self._watch = self._fresh(self._loop.time())
        self._voice = VoiceGate(audio_input, settings)
        self._waits_for, self.begun = "agent_late", False
        self._tasks: asyncio.TaskGroup
        self._timer: asyncio.TimerHandle | None = None
        self._type_ahead = TypeAhead()

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Starts the conversation with the agent's first words. Decoding and answering run in `tasks`."""
        self._tasks, self.begun = tasks, True
        now = self._loop.time()
        self._turns, self._watch = self._fresh(now)  # time before, in answer detection, does not count
        self._carry_out(now)
        self._set_timer(self._turns.timer_at())

    def _fresh(self, now: float) -> tuple[Turns, DeadAirWatch]:
        return Turns(self._settings, now, self._turn_log.opening), DeadAirWatch(self._turn_log.silence, now)

    def end(self, reason: EndReason) -> None:
        """Ends the conversation at once for `reason`; the first reason stands."""
        if not self.over.done():
            self.over.set_result(reason)

    def wind_up(self, now: float) -> None:
        """Stops timer, recognition and reply after `over`; adds the words heard to the transcript."""
        if self._timer is not None:
            self._timer.cancel()
        self._recognition.cancel()
        self._watch.sound(now)
        self.agent_turns.silence(now)
        self._turn_log.leave(now, keeps_words=self._recognition.is_pending)  # `hear_out` adds the words

    async def hear_out(self) -> None:
        """Recognises the caller's last words after `wind_up`."""
        await self._recognition.hear_out(self._settings.stt_deadline_ms / 1000)

    # Events of the caller -------------------------------------------------------------------------------

    def heard(self, sound: Sound, now: float) -> None:
        """Takes a change in the caller's voice, or background speech, where `VoiceGate` lets it count."""
        state = self._turns.state
        if sound is Sound.MURMURED and state is State.LISTENING:
            self._recognition.poll_background(self._turns.turn, self.agent_turns.expected, self._tasks)
        taken_for: Sound | None = None if sound is Sound.MURMURED else sound
        if state in PAUSED and sound is not Sound.STOPPED:
            taken_for = self._voice.in_pause(sound, self._turns, now)
        if taken_for is Sound.STOPPED:
            self._fell_silent(state, now)
        elif taken_for is not None:
            self._spoke(taken_for, state, now)

    def _spoke(self, sound: Sound, state: State, now: float) -> None:
        self._watch.voice(now)
        if sound is Sound.STARTED:
            if state not in _DEAF:
                self._recognition.open(self._turns.gather.awaited)
            self.receive(SpeechStarted(), now)
        elif state is not State.HEARING and state not in _DEAF and not self.agent_turns.is_protected:
            self._recognition.open(self._turns.gather.awaited)
            self.receive(BargedIn() if self._voice.is_long(state) else SpeechContinued(), now)

    def _fell_silent(self, state: State, now: float) -> None:
        spoken_until = self._audio_input.silent_since()
        if state is State.HEARING:
            self._watch.phase("endpointing", spoken_until)
        self.receive(SpeechStopped(spoken_until, self._audio_input.voiced_ms), now)

    def keyed(self, digit: str, now: float) -> None:
        """Takes a DTMF digit of the caller's; a digit during protected words is kept until their end."""
        self._audio_input.mask()
        behind = self._turns.gather.is_trailing_key(digit, now)
        if not behind and (self._turns.state is State.OPENING or self.agent_turns.is_protected):
            self._type_ahead.key(digit)
        elif not behind:
            self.receive(KeyPressed(digit), now)

    def written(self, text: str, now: float) -> None:
        """Takes a text message of the caller's; a message during protected words is kept until their end."""
        if self._turns.state is State.OPENING or self.agent_turns.is_protected:
            self._type_ahead.write(text)
        else:
            self.receive(TextWritten(text[:MAX_TEXT_CHARS]), now)

    def _on_text(self, words: FinalTranscript | PartialTranscript, now: float) -> None:
        """Passes the caller's words to the turn machine, unless the caller spoke over protected words."""
        if self._turns.state not in BOTH_SPEAK or not self.agent_turns.is_protected:
            self.receive(words, now)

    def _release_held(self, now: float) -> None:
        if self.agent_turns.is_protected:
            return
        keys, text = self._type_ahead.take()
        for key in (each for each in keys if not self._turns.gather.is_trailing_key(each, now)):
            self.receive(KeyPressed(key), now)
        if text:
            self.receive(TextWritten(text), now)

    # From the playout (`PlayoutListener`) ---------------------------------------------------------------

    def playout_filled(self) -> None:
        """Notes that the playout has sound to be heard."""
        self._begin(_ONSET_FRAMES)

    def _begin(self, frames: int) -> None:
        """Begins the answer, or holds it for up to `frames` frames while the caller may be about to speak."""
        if self._turns.state is State.REPLYING and frames and self._audio_input.may_have_begun:
            self.playout.hold()
            self._loop.call_later(FRAME_MS / 1000, self._begin_late, frames - 1)
        else:
            self.receive(SpeechReady(self.agent_turns.floor_turn), self._loop.time())

    def _begin_late(self, frames: int) -> None:
        if self._turns.state is State.REPLYING and self.playout.is_filled:
            self._begin(frames)

    def utterance_started(self, utterance: Utterance, now: float) -> None:
        """Notes that the caller begins to hear an utterance."""
        self.agent_turns.sounds(utterance, now)

    def utterance_finished(self, utterance: Utterance, now: float) -> None:
        """Writes an utterance that was heard to its end to the transcript."""
        self._turn_log.agent_said(Heard(utterance, utterance.samples), now=now, interrupted=False)
        self._release_held(now)

    def playout_ran_out(self, now: float) -> None:
        """Notes that the playout is empty: the reply has been heard, or is late."""
        self.agent_turns.ran_out()
        if self.agent_turns.under_way:
            self.receive(SpeechRanOut(self.agent_turns.floor_turn), now)
        else:
            self.reply_heard(now)

    # From the agent's side (`TurnOwner`) ----------------------------------------------------------------

    def reply_heard(self, now: float) -> None:
        """Notes that the reply is complete and the caller heard it to its end."""
        self.agent_turns.heard_out(now, wordless=self._turns.state is State.REPLYING)
        self.receive(ReplyHeard(self.agent_turns.floor_turn), now)
        self._release_held(now)

    def expect(self, expected: Expected | None, *, masked: bool) -> None:
        """Sets the answers expected of the caller; `masked`: nobody but the agent may see the answer."""
        self._turns.expect(expected, masked=masked)

    def switch_language(self, language: str) -> None:
        """Changes the recogniser and the voice to `language` from now on."""
        self._audio_input.language = language
        self._turns.speak(language)

    def waits_for(self, cause: str) -> None:
        """Sets the cause that a silence from now on is recorded under while the agent works."""
        self._waits_for = cause
        self.playout.catch_up()
        self._note_phase(self._loop.time())

    def sounded(self, told: Sequence[Left]) -> None:
        """Notes that frames of the agent left."""
        self._watch.frames(told)

    def receive(self, event: Event, now: float) -> None:
        """Passes `event` to the turn machine at loop time `now` and carries out the actions that follow."""
        self._step(lambda: self._turns.receive(event, now), now)

    def _timer_due(self, at: float) -> None:
        self._timer = None
        now = max(at, self._loop.time())
        self._step(lambda: self._turns.handle_timer(now), now)

    def _step(self, step: Callable[[], None], now: float) -> None:
        if self.playout.frames.waiting:
            self.playout.catch_up()
        before = self._turns.state
        try:
            step()
        except LocalError:  # a bug in the turn machine must not leave the caller on a silent line
            log.exception("turn-taking broke", extra={"call_id": self._turn_log.call_id})
            self.end(EndReason.ENGINE_ERROR)
            return
        if self._observer is not None and self._turns.state is not before:
            self._observer.state_changed(self._turns.state.name.lower(), now)
        if self._turns.actions:
            self._carry_out(now)
        self._set_timer(self._turns.timer_at())
        if self._turns.state is not before:
            self._set_playout(before, now)
        self._note_phase(now)

    def _note_phase(self, now: float) -> None:
        """Sets the cause of a silence from now on, by the state of the turn machine."""
        state = self._turns.state
        late = state is State.ENDPOINTING and self._recognition.is_asking
        self._watch.phase("stt_late" if late else cause_in(state, agent=self._waits_for), now)

    def _set_playout(self, before: State, now: float) -> None:
        """Holds, ducks, restores or releases the playout on entering the turn machine's state."""
        state, ear = self._turns.state, self._audio_input
        ear.over_agent = state is State.SPEAKING or state in BOTH_SPEAK
        ear.alert = state is not State.HEARING
        if ear.alert:
            ear.attend()
        if state in _PLAIN and before in _PLAIN:
            return
        if state in _SILENCED:
            self.playout.hold()
            return
        (self.playout.volume.duck if state in _LOWERED else self.playout.volume.restore)()
        if state is State.REPLYING and self.playout.is_filled:
            self.playout_filled()
            return
        if self.playout.release(now) and self._turns.state is state in _SAYING and not self.playout.is_filled:
            self.playout_ran_out(now)  # the last frame may have left while the playout was held

    def _carry_out(self, now: float) -> None:
        actions = self._turns.actions
        while actions:  # an action may be an event that adds more
            action = actions.popleft()
            _ACTIONS[type(action)](self, action, now)

    def _set_timer(self, at: float | None) -> None:
        if self._timer is not None:
            if at == self._timer.when():
                return
            self._timer.cancel()
            self._timer = None
        if at is not None and not self.over.done():
            self._timer = self._loop.call_at(at, self._timer_due, at)

    # Actions of the turn machine ------------------------------------------------------------------------

    def _decode(self, action: Decode, now: float) -> None:
        noisy = self._turns.noise.is_noisy(now)
        self._recognition.decode(action.turn, self._tasks, judged=True, noisy=noisy)

    def _request_partial(self, action: RequestPartial, now: float) -> None:
        self._check_voice(action, now)
        self._recognition.request_partial(action.turn, self._tasks)

    def _poll_partial(self, action: PollPartial, now: float) -> None:
        self._recognition.poll_partial(action.turn, self._tasks)

    def _accept_speech(self, action: AcceptSpeech, now: float) -> None:
        self._audio_input.accept_speech()

    def _reject_as_noise(self, action: RejectAsNoise, now: float) -> None:
        self._audio_input.reject_as_noise(action.seconds)
        self._watch.phase("noise", now - action.seconds)
        if self._turns.state is State.HEARING:
            self.receive(SpeechStopped(self._audio_input.silent_since(), self._audio_input.voiced_ms), now)

    def _start_reply(self, action: StartReply, now: float) -> None:
        if isinstance(action.event, UserSaid) and action.silent_since is not None:
            self._watch.caller(action.silent_since)
            self._audio_input.believe(action.event.text)
        self.agent_turns.start(action, now, self._tasks)

    def _discard(self, action: Discard, now: float) -> None:
        if self._turns.state is State.LISTENING:
            self._watch.nobody(now)
        self.agent_turns.forget(now)

    def _play_filler(self, action: PlayFiller, now: float) -> None:
        self._turn_log.filler()
        self.agent_turns.interject(Phrase.FILLER)

    def _say_last_words(self, action: SayLastWords, now: float) -> None:
        at_once = action.reason is EndReason.MAX_DURATION
        phrase = LAST_WORDS[action.reason]
        self.agent_turns.last_words(action.turn, phrase, now, at_once=at_once, final=action.final)

    def _check_voice(self, action: CheckVoice | RequestPartial, now: float) -> None:
        quiet_s = now - self._audio_input.last_frame_at
        if quiet_s > QUIET_LINE_S and self._audio_input.fall_silent() is not None:
            self.heard(Sound.STOPPED, now)

    def _end_call(self, action: EndCall, now: float) -> None:
        rescue = self._settings.rescue
        if action.reason is EndReason.ENGINE_ERROR and rescue:
            self.agent_turns.target = rescue
            self.end(EndReason.TRANSFER)
        else:
            self.end(action.reason)


_ACTIONS: Final[Mapping[type, Callable[[Dialogue, Any, float], None]]] = MappingProxyType(
    {
        Decode: Dialogue._decode,
        Discard: Dialogue._discard,
        RejectAsNoise: Dialogue._reject_as_noise,
        PollPartial: Dialogue._poll_partial,
        AcceptSpeech: Dialogue._accept_speech,
        RequestPartial: Dialogue._request_partial,
        StartReply: Dialogue._start_reply,
        ConfirmTurn: lambda dialogue, action, now: dialogue.agent_turns.confirm_turn(
            action.endpoint_due, now
        ),
        Interrupt: lambda dialogue, action, now: dialogue.agent_turns.interrupt(now),
        PlayFiller: Dialogue._play_filler,
        AskAgain: lambda dialogue, action, now: dialogue.agent_turns.ask_again(action.turn, now),
        SayLastWords: Dialogue._say_last_words,
        CheckVoice: Dialogue._check_voice,
        EndCall: Dialogue._end_call,
    }
)
