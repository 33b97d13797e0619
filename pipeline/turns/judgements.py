"""Judgements of a due timer: functions that look at the records and choose the inner event that happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from pipeline.turns.context import TurnContext
from pipeline.turns.events import Inner


def _judge_voice(turns: TurnContext, now: float) -> Inner:
    utterance = turns.utterance
    kept_waiting = turns.gather.is_kept_waiting(utterance.voice_since, now)
    if kept_waiting and _only_accompanies_keys(turns, utterance.partial):
        known = utterance.partial or (utterance.is_asked_whole and now >= utterance.overdue_at)
        return Inner.KEYS_RESUMED if known else Inner.VOICE_CHECK_DUE
    too_long = now - utterance.heard_since >= turns.settings.max_utterance_s
    return Inner.TALKED_TOO_LONG if too_long else Inner.VOICE_CHECK_DUE


def _judge_words(turns: TurnContext, now: float) -> Inner:
    utterance, noise = turns.utterance, turns.noise
    if _only_accompanies_keys(turns, utterance.text):
        return Inner.KEYS_RESUMED
    doubtful = utterance.voiced_ms < turns.settings.min_speech_ms or noise.is_noisy(now)
    if not doubtful or not utterance.is_empty:
        return Inner.TURN_TAKEN
    return Inner.DECODE_DUE if noise.is_asked_early(now) else Inner.NOISE_HEARD


def _judge_patience(turns: TurnContext, now: float) -> Inner:
    if now < turns.utterance.overdue_at:
        return Inner.GUESS_DUE
    return Inner.KEYS_RESUMED if turns.gather.has_begun else Inner.WORDS_OVERDUE


def _judge_overlap(turns: TurnContext, now: float) -> Inner:
    return turns.overlap.judge(turns.state, turns.turn, now)


def _judge_silence(turns: TurnContext, now: float) -> Inner:
    return turns.prompting.judge_silence(may_retract=turns.farewell.may_be_retracted)


def _judge_dead_air(turns: TurnContext, now: float) -> Inner:
    return turns.prompting.judge_dead_air()


def _only_accompanies_keys(turns: TurnContext, text: str) -> bool:
    """Whether the caller has keyed digits, and `text`, said between or after the digits, adds nothing to
    them."""
    if not turns.gather.has_begun:
        return False
    if turns.overlap.wants_nothing(text, turns.state):
        return True
    return turns.gather.is_said_by(text, turns.overlap.lists)


JUDGEMENTS: Final[Mapping[Inner, Callable[[TurnContext, float], Inner]]] = MappingProxyType(
    {
        Inner.VOICE_CHECK_DUE: _judge_voice,
        Inner.GUESS_DUE: _judge_patience,
        Inner.OVERLAP_CHECK_DUE: _judge_overlap,
        Inner.TURN_TAKEN: _judge_words,
        Inner.SILENCE_NOTED: _judge_silence,
        Inner.DEAD_AIR_NOTED: _judge_dead_air,
    }
)
"""For the inner event that a timer was armed with, the function that chooses the event that happens. An event
without a function happens itself."""
