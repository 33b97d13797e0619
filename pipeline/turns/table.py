"""Turn-taking as a table: who has the floor, and what each thing that happens does about it.

Why a table. The question "the caller starts to speak" has eleven different answers, depending on what was
going on. Written as conditions on flags (is_speaking, is_playing, is_interrupted...) nobody can say which
of the 2^n combinations were thought of. Here each (state, event) has a cell; IGNORE says "thought of,
nothing to do"; no cell says "cannot happen", and if it does that is a bug and raises `LocalError`.
Judgements that need a number (was it a noise? is patience at an end?) only choose which inner event
happened, be they asked by a timer (`pipeline.turns.judgements`) or by an effect, which returns that event;
the table alone moves the state.

Why turn numbers. Decoding, thinking and speaking go on elsewhere and report later; meanwhile the caller may
have spoken again. `turn` counts up whenever what was under way became irrelevant, actions carry it out,
events carry it back, and an event of an older turn is dropped. Cancelling the task is a courtesy; the
number is what makes it right.

Why the states are these:

- OPENING is not REPLYING: most people say "hello?" as they pick up, and an agent that took this for a turn
  would cancel its greeting. Until its first sound is ready nothing the caller says matters.
- HEARING and ENDPOINTING go back and forth within one utterance. In ENDPOINTING three things run in a row
  under one timer: wait a little (`speculate_ms`), ask the recogniser, wait until the words' own delay
  (`Endpointing.delay_ms`) has passed since the last voiced sample. So decoding costs no time when it is
  faster than the silence, and the words decide how long the silence must be.
- PRESUMING: the words are there (or a partial result that does not change any more), and the turn is
  probably over. The agent is asked already, so that what is left of the silence is spent on the answer;
  nothing of it is heard or done before the end-point, and if the voice goes on, or the words turn out to be
  others, it is as if it had not been.
- WAITING: the agent said that it would be silent. Nobody reprompts, nothing fills; the caller's voice ends
  it.
- REPLYING begins when the turn is taken and holds whenever the agent owes words and the line is silent;
  that is what the dead-air watch watches: a filler after `dead_air_ms` from the caller's last word,
  `max_fillers` of them, each after so much silence, then an apology and the end. A voice here is a cough,
  or means that the end-point came too early: HALTED keeps the reply from being heard until the words tell
  which. If they are more than what is being answered the reply is thrown away, and since the utterance was
  never closed, what is decoded is the whole.
- SPEAKING begins when sound is queued, not when it is sent: on a held line nothing is sent, and that is no
  dead air of ours.
- OVERLAPPING to DOUBTING: voice over the agent is a cough, a "mm-hm", a barge-in or an early answer, and
  only time and words tell which. OVERLAPPING: too short for anything. DUCKED: the agent lowers its voice and
  the recogniser is asked again and again. HALTED: the voice goes on without a word understood, or a partial
  result has words for the agent: it falls silent, its reply is kept. OVERLAPPED, JUDGING and DOUBTING are
  the same three after the caller's voice has ended. Words meant for the agent lead to HEARING (or, where the
  voice has ended, to ENDPOINTING); anything else back to SPEAKING over OVERLAPPED, from DOUBTING by going on
  at the first word that was not heard. What ended less than `overlap_ms` before the agent did is an answer
  and goes to ENDPOINTING. If the agent finishes first, the floor is the caller's.
- KEYING: while digits come in, what the microphone hears is tones, keys clicking and people who read aloud
  what they key. But some would rather say the rest: a voice leads to HEARING, the keys so far are kept, and
  what was said decides: words of content are the answer together with those keys, anything else leads back.
- What the caller writes (chat) is a whole turn at once: it goes straight to REPLYING, and the voice that
  was being listened to is forgotten.
- A farewell is no state: who says goodbye speaks, and words for the agent stop it as they stop any other
  (what is said at parting is none). What it is changes two columns: heard to its end (`FAREWELL_HEARD`)
  it leads to LEAVING, in which the line stays up for `linger_ms`, since the far end's jitter buffer still
  holds the last words, and what is said then counts too; and a deadline takes the place of the maximum
  duration.
- CLOSING: last words that nothing stops: an apology, the end of the time, a farewell after the caller
  has stopped enough of them. They linger too. A deadline of its own ends it: no way leads back.

The maximum duration is a timer beside the state's own; it may strike in any state but under a farewell.
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


S, E, I = State, Effect, Inner  # noqa: E741 (a table is read by its columns)

_ANYWHERE: Final[_Row] = {
    LegEnded: (S.ENDED, E.BREAK_OFF),
    I.DURATION_REACHED: (S.CLOSING, E.TIME_OUT),
}


def _under_way(state: State) -> _Row:
    """The reply under way may fail, or decide that the call is over, in any state in which there is one."""
    return {
        ReplyFailed: (S.CLOSING, E.APOLOGISE),
        CallConcluded: (S.CLOSING, E.CONCLUDE),
        I.FAREWELL_BEGAN: (state, E.BEGIN_FAREWELL),
        I.FAREWELL_HEARD: (S.LEAVING, E.LINGER),
        I.FAREWELL_OVERDUE: (S.ENDED, E.END),
    }


# Keys and chat are meant for the agent, whatever it is saying.
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
            SpeechContinued: (S.HEARING, E.HEAR),  # the voice began while nobody could listen to it
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
            ReplyFailed: (S.HEARING, E.INTERRUPT),  # it had nothing more to say anyway
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
                I.FAREWELL_BEGAN,
            ),
            ReplyHeard: (S.CLOSING, E.LINGER),
            I.CLOSING_ENDED: (S.ENDED, E.END),
        },
        S.ENDED: _nothing(
            S.ENDED, SpeechStarted, SpeechStopped, SpeechContinued, BargedIn, KeyPressed, TextWritten,
            FinalTranscript, PartialTranscript, WaitBegan, SpeechReady, SpeechRanOut, ReplyHeard, ReplyFailed,
            CallConcluded, LegEnded, I.FAREWELL_BEGAN,
        ),
    }
)  # fmt: skip
