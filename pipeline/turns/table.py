"""The table of turn-taking: for each state and event, the next state and the effect.

Why a table. The event "the caller starts to speak" has eleven different answers, by the state. As conditions
on flags (is_speaking, is_playing, is_interrupted...), nobody could say which of the 2^n combinations were
considered. Here each considered pair of state and event has a cell: `ignore` means that nothing has to be
done; a missing cell means that the event cannot happen in the state, and raises `LocalError` if it does. A
judgement that needs a number (is the voice noise, is the silence too long) only chooses which inner event
happened, for a timer (`pipeline.turns.judgements`) or as the result of an effect; only the table changes the
state.

Why turn numbers. Decoding, the agent and synthesis run in tasks that report later, when the caller may have
spoken again. `turn` is counted up when work under way has become irrelevant; actions carry the number out,
events carry it back, and an event of an older turn is dropped. Cancelling a task saves work; the number alone
makes the result correct.

Why these states:

- OPENING is not REPLYING: most people say "hello?" as they pick up, and an agent that took "hello?" for a
  turn would cancel its greeting. The caller's voice is ignored until the greeting's first sound is ready.
- HEARING and ENDPOINTING alternate within one utterance. ENDPOINTING has three steps under one timer: wait
  for `speculate_ms`, ask the recogniser, wait until the delay that belongs to the words
  (`Endpointing.delay_ms`) has passed since the last voiced sample. Decoding that is faster than the silence
  costs no time, and the words decide how long the silence must be.
- PRESUMING: the words are known (or an interim transcript is stable), and the turn is probably over. The
  agent prepares its answer during the rest of the silence; the answer is not heard, and tools do not run,
  before the end-point. If the voice goes on, or the final words differ, the answer is dropped.
- WAITING: the agent announced a silence. There are no reprompts and no fillers; the caller's voice ends the
  wait.
- REPLYING lasts while the caller waits for the agent's words and the line is silent. A filler is due
  `dead_air_ms` after the caller's last word; each further filler after as much silence; after `max_fillers`
  the turn has failed. A voice in REPLYING is a cough, or the end-point came too early: HALTED holds the
  reply until the words tell which. If the words are more than those being answered, the reply is discarded;
  the utterance was never closed, so the recogniser decodes all of it.
- A turn fails when the agent or every voice does, or is too late. The caller is then asked to say it again,
  in words that stand for the reply; after `max_failures` of them in a row an apology ends the call.
- SPEAKING begins when audio is queued, not when it is sent: a leg on hold sends nothing, which is no dead air
  of the agent.
- OVERLAPPING to DOUBTING: a voice over the agent is a cough, a backchannel ("mm-hm"), a barge-in or an early
  answer, and only time and words tell which. OVERLAPPING: too short to judge. DUCKED: the agent's volume is
  lowered, and the recogniser is asked repeatedly. HALTED: the voice goes on without a word, or an interim
  transcript has words for the agent; the agent is silenced, and its reply is kept. OVERLAPPED, JUDGING and
  DOUBTING are the same three after the voice stopped. Words for the agent lead to HEARING (or, after the
  voice stopped, to ENDPOINTING); all else leads back to SPEAKING by way of OVERLAPPED, from DOUBTING with the
  first word that was not heard. Words that ended less than `overlap_ms` before the agent did are an answer
  and lead to ENDPOINTING. If the agent ends first, the caller has the floor.
- KEYING: while digits come in, the microphone picks up tones, clicks and callers who read aloud the digits.
  Some callers say the rest instead: a voice leads to HEARING, and the keys are kept. Words with content are
  the answer together with those keys; all else leads back to KEYING.
- A chat message is a whole turn: it leads to REPLYING at once, and the caller's voice before it is dropped.
- A farewell is no state: the agent is SPEAKING, and words for the agent interrupt a farewell like any other
  words (words of parting do not count). A farewell changes two columns. Heard to its end (`FAREWELL_HEARD`),
  it leads to LEAVING, in which the line stays up for `linger_ms`, since the far end's jitter buffer still
  holds the last words, and in which the caller's words count. And `FAREWELL_OVERDUE` replaces the maximum
  duration.
- CLOSING: last words that the caller cannot interrupt: an apology, the end of the maximum duration, a goodbye
  after `MAX_RETRACTED` interrupted farewells. The line stays up for `linger_ms` after them too. A timer ends
  CLOSING in any case: no cell leads back.

The maximum duration is a timer beside that of the state; it may fire in any state except under a farewell.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from pipeline.turns.context import Effect
from pipeline.turns.effects import closing, gather, noise, overlap, prompting, speculation, utterance
from pipeline.turns.events import (
    BargedIn,
    CallConcluded,
    FinalTranscript,
    Inner,
    KeyPressed,
    Kind,
    LegEnded,
    PartialTranscript,
    ReplyFailed,
    ReplyHeard,
    SpeechContinued,
    SpeechRanOut,
    SpeechReady,
    SpeechStarted,
    SpeechStopped,
    State,
    TextWritten,
    WaitBegan,
)

_Row: TypeAlias = dict[Kind, tuple[State, Effect]]


def _nothing(state: State, *kinds: Kind) -> _Row:
    return {kind: (state, prompting.ignore) for kind in kinds}


S, I = State, Inner  # noqa: E741 (short names keep the columns aligned)

_ANYWHERE: Final[_Row] = {
    LegEnded: (S.ENDED, closing.break_off),
    I.DURATION_REACHED: (S.CLOSING, closing.time_out),
}


def _under_way(state: State) -> _Row:
    """Cells of each state with a reply under way, which may fail or end the call."""
    silent = state in (S.OPENING, S.PRESUMING, S.WAITING, S.REPLYING)
    return {
        **_ANYWHERE,
        I.TURN_FAILED: (S.REPLYING if silent else S.SPEAKING, prompting.ask_again),
        ReplyFailed: (S.CLOSING, closing.apologise),
        CallConcluded: (S.CLOSING, closing.conclude),
        I.FAREWELL_BEGAN: (state, closing.begin_farewell),
        I.FAREWELL_HEARD: (S.LEAVING, closing.linger),
        I.FAREWELL_OVERDUE: (S.ENDED, closing.end),
    }


# Keys and chat messages interrupt the agent in any state.
_OVERRIDDEN: Final[_Row] = {
    KeyPressed: (S.KEYING, gather.interrupt_by_key),
    TextWritten: (S.REPLYING, utterance.interrupt_by_text),
}


def _interruptible(state: State) -> _Row:
    return {**_under_way(state), **_OVERRIDDEN}


_VOICES: Final = (SpeechStarted, SpeechContinued, BargedIn)

TRANSITIONS: Final[Mapping[State, Mapping[Kind, tuple[State, Effect]]]] = MappingProxyType(
    {
        S.OPENING: {
            **_under_way(S.OPENING),
            **_nothing(
                S.OPENING, SpeechStarted, SpeechStopped, SpeechContinued, BargedIn, KeyPressed, TextWritten,
                FinalTranscript, PartialTranscript, SpeechRanOut,
            ),
            SpeechReady: (S.SPEAKING, prompting.speak),
            ReplyHeard: (S.LISTENING, prompting.listen),
            WaitBegan: (S.WAITING, prompting.wait),
            I.DEAD_AIR_NOTED: (S.OPENING, prompting.fill),
            I.DEAD_AIR_REPEATED: (S.CLOSING, closing.apologise),
        },
        S.LISTENING: {
            **_ANYWHERE,
            **_nothing(S.LISTENING, SpeechStopped),
            **dict.fromkeys((FinalTranscript, PartialTranscript), (S.LISTENING, noise.accept_speech)),
            SpeechStarted: (S.HEARING, utterance.hear),
            SpeechContinued: (S.HEARING, utterance.hear),  # the voice began in a state that ignores voices
            BargedIn: (S.HEARING, utterance.hear),
            KeyPressed: (S.KEYING, gather.first_key),
            TextWritten: (S.REPLYING, utterance.take_text),
            I.WORDS_HEARD: (S.HEARING, noise.hear_words),
            I.SILENCE_NOTED: (S.REPLYING, prompting.reprompt),
            I.PATIENCE_ENDED: (S.REPLYING, closing.say_farewell),
            I.PATIENCE_SPENT: (S.CLOSING, closing.say_goodbye),
        },
        S.HEARING: {
            **_ANYWHERE,
            **_nothing(S.HEARING, SpeechStarted, SpeechContinued, BargedIn),
            **dict.fromkeys((FinalTranscript, PartialTranscript), (S.HEARING, noise.follow_words)),
            SpeechStopped: (S.ENDPOINTING, utterance.pause),
            KeyPressed: (S.KEYING, gather.first_key),
            TextWritten: (S.REPLYING, utterance.take_text),
            I.VOICE_CHECK_DUE: (S.HEARING, utterance.check_voice),
            I.TALKED_TOO_LONG: (S.ENDPOINTING, utterance.cut_off),
            I.KEYS_RESUMED: (S.KEYING, gather.key_on),
        },
        S.ENDPOINTING: {
            **_ANYWHERE,
            **_nothing(S.ENDPOINTING, SpeechStopped, SpeechContinued, BargedIn),
            SpeechStarted: (S.HEARING, utterance.hear_on),
            KeyPressed: (S.KEYING, gather.first_key),
            TextWritten: (S.REPLYING, utterance.take_text),
            FinalTranscript: (S.ENDPOINTING, speculation.weigh_words),
            I.DECODE_DUE: (S.ENDPOINTING, utterance.decode),
            I.WORDS_OVERDUE: (S.REPLYING, utterance.take_turn),
            PartialTranscript: (S.ENDPOINTING, speculation.guess),
            I.GUESS_DUE: (S.ENDPOINTING, utterance.listen_on),
            I.TURN_LIKELY: (S.PRESUMING, speculation.presume),
            I.TURN_TAKEN: (S.REPLYING, utterance.take_turn),
            I.NOISE_HEARD: (S.LISTENING, noise.dismiss),
            I.KEYS_RESUMED: (S.KEYING, gather.key_on),
        },
        S.PRESUMING: {
            **_interruptible(S.PRESUMING),
            **_nothing(
                S.PRESUMING, SpeechStopped, PartialTranscript, WaitBegan, SpeechReady, SpeechRanOut,
            ),
            FinalTranscript: (S.PRESUMING, speculation.check_guess),
            I.TURN_CHANGED: (S.ENDPOINTING, speculation.revise),
            I.WORDS_OVERDUE: (S.REPLYING, speculation.confirm_turn),
            **dict.fromkeys(_VOICES, (S.HEARING, utterance.retract)),
            ReplyHeard: (S.LISTENING, prompting.listen),
            I.TURN_TAKEN: (S.REPLYING, speculation.confirm_turn),
        },
        S.WAITING: {
            **_interruptible(S.WAITING),
            **_nothing(
                S.WAITING, SpeechStarted, SpeechStopped, FinalTranscript, PartialTranscript, SpeechRanOut
            ),
            **dict.fromkeys((SpeechContinued, BargedIn), (S.HEARING, utterance.interrupt)),
            WaitBegan: (S.WAITING, prompting.wait),
            SpeechReady: (S.SPEAKING, prompting.speak),
            ReplyHeard: (S.LISTENING, prompting.listen),
            I.WAIT_OVER: (S.REPLYING, prompting.watch_on),
        },
        S.REPLYING: {
            **_interruptible(S.REPLYING),
            WaitBegan: (S.WAITING, prompting.wait),
            **_nothing(S.REPLYING, SpeechStopped, FinalTranscript, PartialTranscript, SpeechRanOut),
            **dict.fromkeys(_VOICES, (S.HALTED, overlap.halt)),
            SpeechReady: (S.SPEAKING, prompting.speak),
            ReplyHeard: (S.LISTENING, prompting.listen),
            I.DEAD_AIR_NOTED: (S.REPLYING, prompting.fill),
            I.DEAD_AIR_REPEATED: (S.CLOSING, closing.apologise),
        },
        S.SPEAKING: {
            **_interruptible(S.SPEAKING),
            **_nothing(S.SPEAKING, SpeechStopped, FinalTranscript, PartialTranscript, SpeechReady, WaitBegan),
            SpeechStarted: (S.OVERLAPPING, prompting.ignore),
            SpeechContinued: (S.DUCKED, overlap.duck),
            BargedIn: (S.HALTED, overlap.halt),
            SpeechRanOut: (S.REPLYING, prompting.watch_on),
            ReplyHeard: (S.LISTENING, prompting.listen),
        },
        S.OVERLAPPING: {
            **_interruptible(S.OVERLAPPING),
            **_nothing(
                S.OVERLAPPING, SpeechStarted, FinalTranscript, PartialTranscript, SpeechReady, WaitBegan
            ),
            SpeechStopped: (S.OVERLAPPED, overlap.hold),
            SpeechContinued: (S.DUCKED, overlap.duck),
            BargedIn: (S.OVERLAPPING, overlap.judge_barge_in),
            I.ALARMED: (S.HALTED, overlap.halt),
            I.SPARED: (S.DUCKED, overlap.duck),
            SpeechRanOut: (S.HALTED, overlap.halt),  # the agent paused, the caller goes on
            ReplyHeard: (S.HEARING, utterance.hear),
            I.FAREWELL_HEARD: (S.HALTED, overlap.halt),
        },
        S.OVERLAPPED: {
            **_interruptible(S.OVERLAPPED),
            **_nothing(S.OVERLAPPED, SpeechStopped, PartialTranscript, SpeechReady, WaitBegan),
            SpeechStarted: (S.OVERLAPPING, prompting.ignore),
            **dict.fromkeys((SpeechContinued, BargedIn), (S.DUCKED, overlap.duck)),
            FinalTranscript: (S.OVERLAPPED, overlap.judge_all_words),
            SpeechRanOut: (S.REPLYING, prompting.forget_and_watch),
            ReplyHeard: (S.ENDPOINTING, utterance.speculate),
            I.FAREWELL_HEARD: (S.LEAVING, closing.await_words),
            I.INTERRUPTED: (S.ENDPOINTING, utterance.interrupt_with_words),
            I.SPARED: (S.OVERLAPPED, prompting.ignore),
            I.OVERLAP_FORGOTTEN: (S.SPEAKING, overlap.forget),
        },
        S.DUCKED: {
            **_interruptible(S.DUCKED),
            **_nothing(S.DUCKED, SpeechStarted, SpeechContinued, SpeechReady, WaitBegan),
            SpeechStopped: (S.JUDGING, overlap.judge_pause),
            PartialTranscript: (S.DUCKED, overlap.judge_partial),
            FinalTranscript: (S.DUCKED, overlap.judge_words),
            BargedIn: (S.DUCKED, overlap.judge_lasting_voice),
            SpeechRanOut: (S.HALTED, overlap.request_partial),
            ReplyHeard: (S.HEARING, utterance.hear),
            I.FAREWELL_HEARD: (S.HALTED, overlap.request_partial),
            I.OVERLAP_CHECK_DUE: (S.DUCKED, overlap.request_partial),
            I.ALARMED: (S.HALTED, overlap.request_partial),
            I.INTERRUPTED: (S.HEARING, utterance.interrupt),
            I.SPARED: (S.DUCKED, prompting.ignore),
            I.NOISE_HEARD: (S.SPEAKING, noise.forget_noise),
        },
        S.JUDGING: {
            **_interruptible(S.JUDGING),
            **_nothing(S.JUDGING, SpeechStopped, SpeechReady, WaitBegan),
            **dict.fromkeys(_VOICES, (S.DUCKED, overlap.request_partial)),
            FinalTranscript: (S.JUDGING, overlap.judge_all_words),
            SpeechRanOut: (S.REPLYING, prompting.forget_and_watch),
            ReplyHeard: (S.ENDPOINTING, utterance.speculate),
            I.FAREWELL_HEARD: (S.DOUBTING, overlap.request_partial),
            PartialTranscript: (S.JUDGING, overlap.judge_partial),
            I.OVERLAP_CHECK_DUE: (S.JUDGING, overlap.request_partial),
            I.ALARMED: (S.DOUBTING, overlap.request_partial),
            I.INTERRUPTED: (S.ENDPOINTING, utterance.interrupt_with_words),
            I.SPARED: (S.OVERLAPPED, overlap.await_overlap_end),
            I.WORDS_OVERDUE: (S.OVERLAPPED, overlap.await_overlap_end),
        },
        S.HALTED: {
            **_interruptible(S.HALTED),
            **_nothing(
                S.HALTED, SpeechStarted, SpeechContinued, BargedIn, PartialTranscript, SpeechReady,
                SpeechRanOut,
                WaitBegan,
            ),
            SpeechStopped: (S.DOUBTING, overlap.judge_pause),
            FinalTranscript: (S.HALTED, overlap.judge_words_halted),
            **dict.fromkeys((ReplyFailed, I.TURN_FAILED), (S.HEARING, utterance.interrupt)),
            ReplyHeard: (S.HEARING, utterance.hear),
            I.FAREWELL_HEARD: (S.HALTED, prompting.ignore),
            I.OVERLAP_CHECK_DUE: (S.HALTED, overlap.request_partial),
            I.INTERRUPTED: (S.HEARING, utterance.interrupt),
            I.SPARED: (S.HALTED, prompting.ignore),
            I.NOISE_HEARD: (S.OVERLAPPED, noise.resume_after_noise),
        },
        S.DOUBTING: {
            **_interruptible(S.DOUBTING),
            **_nothing(S.DOUBTING, SpeechStopped, SpeechReady, SpeechRanOut, WaitBegan),
            **dict.fromkeys(_VOICES, (S.HALTED, overlap.request_partial)),
            FinalTranscript: (S.DOUBTING, overlap.judge_all_words_halted),
            PartialTranscript: (S.DOUBTING, overlap.judge_partial_halted),
            ReplyHeard: (S.ENDPOINTING, utterance.speculate),
            I.FAREWELL_HEARD: (S.DOUBTING, prompting.ignore),
            I.OVERLAP_CHECK_DUE: (S.DOUBTING, overlap.request_partial),
            I.INTERRUPTED: (S.ENDPOINTING, utterance.interrupt_with_words),
            I.SPARED: (S.OVERLAPPED, overlap.resume),
            I.WORDS_OVERDUE: (S.REPLYING, utterance.interrupt_unheard),
        },
        S.KEYING: {
            **_ANYWHERE,
            **_nothing(S.KEYING, SpeechStarted, SpeechStopped, FinalTranscript, PartialTranscript),
            **dict.fromkeys((SpeechContinued, BargedIn), (S.HEARING, utterance.hear)),
            KeyPressed: (S.KEYING, gather.key),
            TextWritten: (S.REPLYING, utterance.take_text),
            I.KEYS_COMPLETED: (S.REPLYING, gather.take_keys),
        },
        S.LEAVING: {
            LegEnded: (S.ENDED, closing.break_off),
            TextWritten: (S.REPLYING, utterance.interrupt_by_text),
            KeyPressed: (S.KEYING, gather.interrupt_by_key),
            **_nothing(S.LEAVING, SpeechStopped, PartialTranscript, I.FAREWELL_HEARD),
            **dict.fromkeys(_VOICES, (S.HALTED, overlap.halt)),
            FinalTranscript: (S.LEAVING, overlap.judge_all_words),
            I.INTERRUPTED: (S.ENDPOINTING, utterance.interrupt_with_words),
            I.SPARED: (S.LEAVING, closing.await_words),
            I.CLOSING_ENDED: (S.ENDED, closing.end),
            I.FAREWELL_OVERDUE: (S.ENDED, closing.end),
        },
        S.CLOSING: {
            LegEnded: (S.ENDED, closing.break_off),
            **_nothing(
                S.CLOSING, SpeechStarted, SpeechStopped, SpeechContinued, BargedIn, KeyPressed, TextWritten,
                FinalTranscript, PartialTranscript, WaitBegan, SpeechReady, SpeechRanOut, ReplyFailed,
                CallConcluded,
                I.FAREWELL_BEGAN, I.TURN_FAILED,
            ),
            ReplyHeard: (S.CLOSING, closing.linger),
            I.CLOSING_ENDED: (S.ENDED, closing.end),
        },
        S.ENDED: _nothing(
            S.ENDED, SpeechStarted, SpeechStopped, SpeechContinued, BargedIn, KeyPressed, TextWritten,
            FinalTranscript, PartialTranscript, WaitBegan, SpeechReady, SpeechRanOut, ReplyHeard, ReplyFailed,
            CallConcluded, LegEnded, I.FAREWELL_BEGAN, I.TURN_FAILED,
        ),
    }
)  # fmt: skip
