"""The table of turn-taking: for each state and event, the next state and the effect.

Why a table. The event "the caller starts to speak" has eleven different answers, by the state. As conditions
on flags (is_speaking, is_playing, is_interrupted...), nobody could say which of the 2^n combinations were
considered. Here each considered pair of state and event has a cell: IGNORE means that nothing has to be done;
a missing cell means that the event cannot happen in the state, and raises `LocalError` if it does. A
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

from pipeline.turns.events import (
    BargedIn,
    CallConcluded,
    Effect,
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
    return {kind: (state, Effect.IGNORE) for kind in kinds}


S, E, I = State, Effect, Inner  # noqa: E741 (short names keep the columns aligned)

_ANYWHERE: Final[_Row] = {
    LegEnded: (S.ENDED, E.BREAK_OFF),
    I.DURATION_REACHED: (S.CLOSING, E.TIME_OUT),
}


def _under_way(state: State) -> _Row:
    """Cells of each state with a reply under way: the reply may fail or end the call."""
    silent = state in (S.OPENING, S.PRESUMING, S.WAITING, S.REPLYING)
    return {
        I.TURN_FAILED: (S.REPLYING if silent else S.SPEAKING, E.ASK_AGAIN),
        ReplyFailed: (S.CLOSING, E.APOLOGISE),
        CallConcluded: (S.CLOSING, E.CONCLUDE),
        I.FAREWELL_BEGAN: (state, E.BEGIN_FAREWELL),
        I.FAREWELL_HEARD: (S.LEAVING, E.LINGER),
        I.FAREWELL_OVERDUE: (S.ENDED, E.END),
    }


# Keys and chat messages interrupt the agent in any state.
_OVERRIDDEN: Final[_Row] = {
    KeyPressed: (S.KEYING, E.INTERRUPT_BY_KEY),
    TextWritten: (S.REPLYING, E.INTERRUPT_BY_TEXT),
}

TRANSITIONS: Final[Mapping[State, Mapping[Kind, tuple[State, Effect]]]] = MappingProxyType(
    {
        S.OPENING: {
            **_ANYWHERE,
            **_under_way(S.OPENING),
            **_nothing(
                S.OPENING, SpeechStarted, SpeechStopped, SpeechContinued, BargedIn, KeyPressed, TextWritten,
                FinalTranscript, PartialTranscript, SpeechRanOut,
            ),
            SpeechReady: (S.SPEAKING, E.SPEAK),
            ReplyHeard: (S.LISTENING, E.LISTEN),
            WaitBegan: (S.WAITING, E.WAIT),
            I.DEAD_AIR_NOTED: (S.OPENING, E.FILL),
            I.DEAD_AIR_REPEATED: (S.CLOSING, E.APOLOGISE),
        },
        S.LISTENING: {
            **_ANYWHERE,
            **_nothing(S.LISTENING, SpeechStopped),
            **dict.fromkeys((FinalTranscript, PartialTranscript), (S.LISTENING, E.ACCEPT_SPEECH)),
            SpeechStarted: (S.HEARING, E.HEAR),
            SpeechContinued: (S.HEARING, E.HEAR),  # the voice began in a state that ignores voices
            BargedIn: (S.HEARING, E.HEAR),
            KeyPressed: (S.KEYING, E.FIRST_KEY),
            TextWritten: (S.REPLYING, E.TAKE_TEXT),
            I.WORDS_HEARD: (S.HEARING, E.HEAR_WORDS),
            I.SILENCE_NOTED: (S.REPLYING, E.REPROMPT),
            I.PATIENCE_ENDED: (S.REPLYING, E.SAY_FAREWELL),
            I.PATIENCE_SPENT: (S.CLOSING, E.SAY_GOODBYE),
        },
        S.HEARING: {
            **_ANYWHERE,
            **_nothing(S.HEARING, SpeechStarted, SpeechContinued, BargedIn),
            FinalTranscript: (S.HEARING, E.FOLLOW_WORDS),
            PartialTranscript: (S.HEARING, E.FOLLOW_WORDS),
            SpeechStopped: (S.ENDPOINTING, E.PAUSE),
            KeyPressed: (S.KEYING, E.FIRST_KEY),
            TextWritten: (S.REPLYING, E.TAKE_TEXT),
            I.VOICE_CHECK_DUE: (S.HEARING, E.CHECK_VOICE),
            I.TALKED_TOO_LONG: (S.ENDPOINTING, E.CUT_OFF),
            I.KEYS_RESUMED: (S.KEYING, E.KEY_ON),
        },
        S.ENDPOINTING: {
            **_ANYWHERE,
            **_nothing(S.ENDPOINTING, SpeechStopped, SpeechContinued, BargedIn),
            SpeechStarted: (S.HEARING, E.HEAR_ON),
            KeyPressed: (S.KEYING, E.FIRST_KEY),
            TextWritten: (S.REPLYING, E.TAKE_TEXT),
            FinalTranscript: (S.ENDPOINTING, E.WEIGH_WORDS),
            I.DECODE_DUE: (S.ENDPOINTING, E.DECODE),
            I.WORDS_OVERDUE: (S.REPLYING, E.TAKE_TURN),
            PartialTranscript: (S.ENDPOINTING, E.GUESS),
            I.GUESS_DUE: (S.ENDPOINTING, E.LISTEN_ON),
            I.TURN_LIKELY: (S.PRESUMING, E.PRESUME),
            I.TURN_TAKEN: (S.REPLYING, E.TAKE_TURN),
            I.NOISE_HEARD: (S.LISTENING, E.DISMISS),
            I.KEYS_RESUMED: (S.KEYING, E.KEY_ON),
        },
        S.PRESUMING: {
            **_ANYWHERE,
            **_under_way(S.PRESUMING),
            **_OVERRIDDEN,
            **_nothing(
                S.PRESUMING, SpeechStopped, PartialTranscript, WaitBegan, SpeechReady, SpeechRanOut,
            ),
            FinalTranscript: (S.PRESUMING, E.CHECK_GUESS),
            I.TURN_CHANGED: (S.ENDPOINTING, E.REVISE),
            I.WORDS_OVERDUE: (S.REPLYING, E.CONFIRM_TURN),
            SpeechStarted: (S.HEARING, E.RETRACT),
            SpeechContinued: (S.HEARING, E.RETRACT),
            BargedIn: (S.HEARING, E.RETRACT),
            ReplyHeard: (S.LISTENING, E.LISTEN),
            I.TURN_TAKEN: (S.REPLYING, E.CONFIRM_TURN),
        },
        S.WAITING: {
            **_ANYWHERE,
            **_under_way(S.WAITING),
            **_OVERRIDDEN,
            **_nothing(
                S.WAITING, SpeechStarted, SpeechStopped, FinalTranscript, PartialTranscript, SpeechRanOut
            ),
            SpeechContinued: (S.HEARING, E.INTERRUPT),
            BargedIn: (S.HEARING, E.INTERRUPT),
            WaitBegan: (S.WAITING, E.WAIT),
            SpeechReady: (S.SPEAKING, E.SPEAK),
            ReplyHeard: (S.LISTENING, E.LISTEN),
            I.WAIT_OVER: (S.REPLYING, E.WATCH_ON),
        },
        S.REPLYING: {
            **_ANYWHERE,
            **_under_way(S.REPLYING),
            WaitBegan: (S.WAITING, E.WAIT),
            **_nothing(S.REPLYING, SpeechStopped, FinalTranscript, PartialTranscript, SpeechRanOut),
            SpeechStarted: (S.HALTED, E.HALT),
            SpeechContinued: (S.HALTED, E.HALT),
            BargedIn: (S.HALTED, E.HALT),
            **_OVERRIDDEN,
            SpeechReady: (S.SPEAKING, E.SPEAK),
            ReplyHeard: (S.LISTENING, E.LISTEN),
            I.DEAD_AIR_NOTED: (S.REPLYING, E.FILL),
            I.DEAD_AIR_REPEATED: (S.CLOSING, E.APOLOGISE),
        },
        S.SPEAKING: {
            **_ANYWHERE,
            **_under_way(S.SPEAKING),
            **_OVERRIDDEN,
            **_nothing(S.SPEAKING, SpeechStopped, FinalTranscript, PartialTranscript, SpeechReady, WaitBegan),
            SpeechStarted: (S.OVERLAPPING, E.IGNORE),
            SpeechContinued: (S.DUCKED, E.DUCK),
            BargedIn: (S.HALTED, E.HALT),
            SpeechRanOut: (S.REPLYING, E.WATCH_ON),
            ReplyHeard: (S.LISTENING, E.LISTEN),
        },
        S.OVERLAPPING: {
            **_ANYWHERE,
            **_under_way(S.OVERLAPPING),
            **_OVERRIDDEN,
            **_nothing(
                S.OVERLAPPING, SpeechStarted, FinalTranscript, PartialTranscript, SpeechReady, WaitBegan
            ),
            SpeechStopped: (S.OVERLAPPED, E.HOLD),
            SpeechContinued: (S.DUCKED, E.DUCK),
            BargedIn: (S.OVERLAPPING, E.JUDGE_BARGE_IN),
            I.ALARMED: (S.HALTED, E.HALT),
            I.SPARED: (S.DUCKED, E.DUCK),
            SpeechRanOut: (S.HALTED, E.HALT),  # the agent paused, the caller goes on
            ReplyHeard: (S.HEARING, E.HEAR),
            I.FAREWELL_HEARD: (S.HALTED, E.HALT),
        },
        S.OVERLAPPED: {
            **_ANYWHERE,
            **_under_way(S.OVERLAPPED),
            **_OVERRIDDEN,
            **_nothing(S.OVERLAPPED, SpeechStopped, PartialTranscript, SpeechReady, WaitBegan),
            SpeechStarted: (S.OVERLAPPING, E.IGNORE),
            SpeechContinued: (S.DUCKED, E.DUCK),
            BargedIn: (S.DUCKED, E.DUCK),
            FinalTranscript: (S.OVERLAPPED, E.JUDGE_ALL_WORDS),
            SpeechRanOut: (S.REPLYING, E.FORGET_AND_WATCH),
            ReplyHeard: (S.ENDPOINTING, E.SPECULATE),
            I.FAREWELL_HEARD: (S.LEAVING, E.AWAIT_WORDS),
            I.INTERRUPTED: (S.ENDPOINTING, E.INTERRUPT_WITH_WORDS),
            I.SPARED: (S.OVERLAPPED, E.IGNORE),
            I.OVERLAP_FORGOTTEN: (S.SPEAKING, E.FORGET),
        },
        S.DUCKED: {
            **_ANYWHERE,
            **_under_way(S.DUCKED),
            **_OVERRIDDEN,
            **_nothing(S.DUCKED, SpeechStarted, SpeechContinued, SpeechReady, WaitBegan),
            SpeechStopped: (S.JUDGING, E.JUDGE_PAUSE),
            PartialTranscript: (S.DUCKED, E.JUDGE_PARTIAL),
            FinalTranscript: (S.DUCKED, E.JUDGE_WORDS),
            BargedIn: (S.DUCKED, E.JUDGE_LASTING_VOICE),
            SpeechRanOut: (S.HALTED, E.REQUEST_PARTIAL),
            ReplyHeard: (S.HEARING, E.HEAR),
            I.FAREWELL_HEARD: (S.HALTED, E.REQUEST_PARTIAL),
            I.OVERLAP_CHECK_DUE: (S.DUCKED, E.REQUEST_PARTIAL),
            I.ALARMED: (S.HALTED, E.REQUEST_PARTIAL),
            I.INTERRUPTED: (S.HEARING, E.INTERRUPT),
            I.SPARED: (S.DUCKED, E.IGNORE),
            I.NOISE_HEARD: (S.SPEAKING, E.FORGET_NOISE),
        },
        S.JUDGING: {
            **_ANYWHERE,
            **_under_way(S.JUDGING),
            **_OVERRIDDEN,
            **_nothing(S.JUDGING, SpeechStopped, SpeechReady, WaitBegan),
            SpeechStarted: (S.DUCKED, E.REQUEST_PARTIAL),
            SpeechContinued: (S.DUCKED, E.REQUEST_PARTIAL),
            BargedIn: (S.DUCKED, E.REQUEST_PARTIAL),
            FinalTranscript: (S.JUDGING, E.JUDGE_ALL_WORDS),
            SpeechRanOut: (S.REPLYING, E.FORGET_AND_WATCH),
            ReplyHeard: (S.ENDPOINTING, E.SPECULATE),
            I.FAREWELL_HEARD: (S.DOUBTING, E.REQUEST_PARTIAL),
            PartialTranscript: (S.JUDGING, E.JUDGE_PARTIAL),
            I.OVERLAP_CHECK_DUE: (S.JUDGING, E.REQUEST_PARTIAL),
            I.ALARMED: (S.DOUBTING, E.REQUEST_PARTIAL),
            I.INTERRUPTED: (S.ENDPOINTING, E.INTERRUPT_WITH_WORDS),
            I.SPARED: (S.OVERLAPPED, E.AWAIT_OVERLAP_END),
            I.WORDS_OVERDUE: (S.OVERLAPPED, E.AWAIT_OVERLAP_END),
        },
        S.HALTED: {
            **_ANYWHERE,
            **_under_way(S.HALTED),
            **_OVERRIDDEN,
            **_nothing(
                S.HALTED, SpeechStarted, SpeechContinued, BargedIn, PartialTranscript, SpeechReady,
                SpeechRanOut,
                WaitBegan,
            ),
            SpeechStopped: (S.DOUBTING, E.JUDGE_PAUSE),
            FinalTranscript: (S.HALTED, E.JUDGE_WORDS_HALTED),
            **dict.fromkeys((ReplyFailed, I.TURN_FAILED), (S.HEARING, E.INTERRUPT)),  # the caller speaks
            ReplyHeard: (S.HEARING, E.HEAR),
            I.FAREWELL_HEARD: (S.HALTED, E.IGNORE),
            I.OVERLAP_CHECK_DUE: (S.HALTED, E.REQUEST_PARTIAL),
            I.INTERRUPTED: (S.HEARING, E.INTERRUPT),
            I.SPARED: (S.HALTED, E.IGNORE),
            I.NOISE_HEARD: (S.OVERLAPPED, E.RESUME_AFTER_NOISE),
        },
        S.DOUBTING: {
            **_ANYWHERE,
            **_under_way(S.DOUBTING),
            **_OVERRIDDEN,
            **_nothing(S.DOUBTING, SpeechStopped, SpeechReady, SpeechRanOut, WaitBegan),
            SpeechStarted: (S.HALTED, E.REQUEST_PARTIAL),
            SpeechContinued: (S.HALTED, E.REQUEST_PARTIAL),
            BargedIn: (S.HALTED, E.REQUEST_PARTIAL),
            FinalTranscript: (S.DOUBTING, E.JUDGE_ALL_WORDS_HALTED),
            PartialTranscript: (S.DOUBTING, E.JUDGE_PARTIAL_HALTED),
            ReplyHeard: (S.ENDPOINTING, E.SPECULATE),
            I.FAREWELL_HEARD: (S.DOUBTING, E.IGNORE),
            I.OVERLAP_CHECK_DUE: (S.DOUBTING, E.REQUEST_PARTIAL),
            I.INTERRUPTED: (S.ENDPOINTING, E.INTERRUPT_WITH_WORDS),
            I.SPARED: (S.OVERLAPPED, E.RESUME),
            I.WORDS_OVERDUE: (S.REPLYING, E.INTERRUPT_UNHEARD),
        },
        S.KEYING: {
            **_ANYWHERE,
            **_nothing(S.KEYING, SpeechStarted, SpeechStopped, FinalTranscript, PartialTranscript),
            **dict.fromkeys((SpeechContinued, BargedIn), (S.HEARING, E.HEAR)),
            KeyPressed: (S.KEYING, E.KEY),
            TextWritten: (S.REPLYING, E.TAKE_TEXT),
            I.KEYS_COMPLETED: (S.REPLYING, E.TAKE_KEYS),
        },
        S.LEAVING: {
            LegEnded: (S.ENDED, E.BREAK_OFF),
            TextWritten: (S.REPLYING, E.INTERRUPT_BY_TEXT),
            KeyPressed: (S.KEYING, E.INTERRUPT_BY_KEY),
            **_nothing(S.LEAVING, SpeechStopped, PartialTranscript, I.FAREWELL_HEARD),
            **dict.fromkeys((SpeechStarted, SpeechContinued, BargedIn), (S.HALTED, E.HALT)),
            FinalTranscript: (S.LEAVING, E.JUDGE_ALL_WORDS),
            I.INTERRUPTED: (S.ENDPOINTING, E.INTERRUPT_WITH_WORDS),
            I.SPARED: (S.LEAVING, E.AWAIT_WORDS),
            I.CLOSING_ENDED: (S.ENDED, E.END),
            I.FAREWELL_OVERDUE: (S.ENDED, E.END),
        },
        S.CLOSING: {
            LegEnded: (S.ENDED, E.BREAK_OFF),
            **_nothing(
                S.CLOSING, SpeechStarted, SpeechStopped, SpeechContinued, BargedIn, KeyPressed, TextWritten,
                FinalTranscript, PartialTranscript, WaitBegan, SpeechReady, SpeechRanOut, ReplyFailed,
                CallConcluded,
                I.FAREWELL_BEGAN, I.TURN_FAILED,
            ),
            ReplyHeard: (S.CLOSING, E.LINGER),
            I.CLOSING_ENDED: (S.ENDED, E.END),
        },
        S.ENDED: _nothing(
            S.ENDED, SpeechStarted, SpeechStopped, SpeechContinued, BargedIn, KeyPressed, TextWritten,
            FinalTranscript, PartialTranscript, WaitBegan, SpeechReady, SpeechRanOut, ReplyHeard, ReplyFailed,
            CallConcluded, LegEnded, I.FAREWELL_BEGAN, I.TURN_FAILED,
        ),
    }
)  # fmt: skip
