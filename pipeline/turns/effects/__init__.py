"""The functions of the table's effects, each in the file named after the record that the effect changes.

An effect may return an inner event, which the machine then handles at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from pipeline.turns.context import TurnContext
from pipeline.turns.effects import closing, gather, noise, overlap, prompting, speculation, utterance
from pipeline.turns.events import Effect, Event, Inner

_Function: TypeAlias = Callable[[TurnContext, Event | None, float], Inner | None]

EFFECTS: Final[Mapping[Effect, _Function]] = MappingProxyType(
    {
        Effect.IGNORE: prompting.ignore,
        Effect.HEAR: utterance.hear,
        Effect.HEAR_WORDS: noise.hear_words,
        Effect.HEAR_ON: utterance.hear_on,
        Effect.INTERRUPT: utterance.interrupt,
        Effect.RETRACT: utterance.retract,
        Effect.CHECK_VOICE: utterance.check_voice,
        Effect.FOLLOW_WORDS: noise.follow_words,
        Effect.ACCEPT_SPEECH: noise.accept_speech,
        Effect.PAUSE: utterance.pause,
        Effect.HOLD: overlap.hold,
        Effect.DUCK: overlap.duck,
        Effect.REQUEST_PARTIAL: overlap.request_partial,
        Effect.JUDGE_PARTIAL: overlap.judge_partial,
        Effect.JUDGE_BARGE_IN: overlap.judge_barge_in,
        Effect.JUDGE_LASTING_VOICE: overlap.judge_lasting_voice,
        Effect.JUDGE_WORDS: overlap.judge_words,
        Effect.JUDGE_ALL_WORDS: overlap.judge_all_words,
        Effect.JUDGE_PAUSE: overlap.judge_pause,
        Effect.AWAIT_OVERLAP_END: overlap.await_overlap_end,
        Effect.HALT: overlap.halt,
        Effect.JUDGE_WORDS_HALTED: overlap.judge_words_halted,
        Effect.JUDGE_ALL_WORDS_HALTED: overlap.judge_all_words_halted,
        Effect.JUDGE_PARTIAL_HALTED: overlap.judge_partial_halted,
        Effect.RESUME: overlap.resume,
        Effect.RESUME_AFTER_NOISE: noise.resume_after_noise,
        Effect.INTERRUPT_WITH_WORDS: utterance.interrupt_with_words,
        Effect.INTERRUPT_UNHEARD: utterance.interrupt_unheard,
        Effect.SPECULATE: utterance.speculate,
        Effect.CUT_OFF: utterance.cut_off,
        Effect.DECODE: utterance.decode,
        Effect.WEIGH_WORDS: speculation.weigh_words,
        Effect.FORGET: overlap.forget,
        Effect.FORGET_NOISE: noise.forget_noise,
        Effect.DISMISS: noise.dismiss,
        Effect.KEY: gather.key,
        Effect.KEY_ON: gather.key_on,
        Effect.FIRST_KEY: gather.first_key,
        Effect.INTERRUPT_BY_KEY: gather.interrupt_by_key,
        Effect.TAKE_TURN: utterance.take_turn,
        Effect.LISTEN_ON: utterance.listen_on,
        Effect.GUESS: speculation.guess,
        Effect.PRESUME: speculation.presume,
        Effect.CHECK_GUESS: speculation.check_guess,
        Effect.REVISE: speculation.revise,
        Effect.CONFIRM_TURN: speculation.confirm_turn,
        Effect.WAIT: prompting.wait,
        Effect.TAKE_KEYS: gather.take_keys,
        Effect.TAKE_TEXT: utterance.take_text,
        Effect.INTERRUPT_BY_TEXT: utterance.interrupt_by_text,
        Effect.REPROMPT: prompting.reprompt,
        Effect.WATCH_ON: prompting.watch_on,
        Effect.FORGET_AND_WATCH: prompting.forget_and_watch,
        Effect.FILL: prompting.fill,
        Effect.ASK_AGAIN: prompting.ask_again,
        Effect.SPEAK: prompting.speak,
        Effect.LISTEN: prompting.listen,
        Effect.BEGIN_FAREWELL: closing.begin_farewell,
        Effect.SAY_FAREWELL: closing.say_farewell,
        Effect.CONCLUDE: closing.conclude,
        Effect.APOLOGISE: closing.apologise,
        Effect.SAY_GOODBYE: closing.say_goodbye,
        Effect.TIME_OUT: closing.time_out,
        Effect.LINGER: closing.linger,
        Effect.AWAIT_WORDS: closing.await_words,
        Effect.END: closing.end,
        Effect.BREAK_OFF: closing.break_off,
    }
)
