"""Effects of answers that are prepared before the end of the caller's turn."""

from __future__ import annotations

from typing import Final

from pipeline.agent import UserSaid
from pipeline.turns.context import TurnContext
from pipeline.turns.effects.prompting import watch
from pipeline.turns.events import (
    ConfirmTurn,
    Decode,
    Event,
    FinalTranscript,
    Inner,
    Interrupt,
    PartialTranscript,
    StartReply,
)
from pipeline.turns.speculation import GUESSED

_LIKELY: Final = 0.5  # that the turn is over: an answer is prepared, which will more often be wanted than not


def guess(turns: TurnContext, event: Event | None, now: float) -> Inner | None:
    """A partial result in a pause: after some silence it will be the whole."""
    assert isinstance(event, PartialTranscript)
    utterance = turns.utterance
    turns.noise.note_words(event.text, now, paused=True)
    words = FinalTranscript(turns.turn, event.text, GUESSED, final=False)
    whole = turns.speculation.is_whole(event, utterance.silent_since, now)
    if not whole or utterance.words is not None or not _is_likely(turns, words, now):
        return None
    utterance.words = words
    return Inner.TURN_LIKELY


def weigh_words(turns: TurnContext, event: Event | None, now: float) -> Inner | None:
    """The recogniser's answer in a pause decides how long the pause must be."""
    assert isinstance(event, FinalTranscript)
    noise = turns.noise
    noise.note_words(event.text, now, paused=True)
    turns.utterance.words = event
    asks_again = turns.utterance.is_empty and noise.is_asked_early(now)
    turns.arm(noise.in_hindsight_at if asks_again else turns.endpoint_at(), Inner.TURN_TAKEN)
    return Inner.TURN_LIKELY if _is_likely(turns, event, now) else None


def _is_likely(turns: TurnContext, words: FinalTranscript, now: float) -> bool:
    """There is time to prepare an answer, and the answer will probably be wanted."""
    settings = turns.settings
    if not settings.prepare_early or not words.text or turns.gather.has_begun:
        return False
    if words.p_eot is not None:
        return words.p_eot >= _LIKELY and now < turns.endpoint_at()
    delay_ms = turns.endpointing.delay_ms(words.text, turns.gather.expected)
    in_time = not words.final or now < turns.utterance.silent_since + delay_ms / 1000
    return delay_ms <= settings.endpoint_ms and in_time


def presume(turns: TurnContext, event: Event | None, now: float) -> None:
    """The turn is probably over: the agent prepares an answer that nobody hears yet."""
    utterance, words = turns.utterance, turns.utterance.words
    assert words is not None
    guessed_from = turns.turn
    turns.next_turn()
    turns.speculation.answered = words.text
    said, due = UserSaid(words.text, words.confidence, doubtful=words.doubtful), turns.endpoint_at()
    turns.actions.append(StartReply(turns.turn, said, utterance.silent_since, due, presumed=True))
    if not words.final:
        turns.speculation.guessed_from = guessed_from
        turns.arm(utterance.overdue_at, Inner.WORDS_OVERDUE)
    else:
        turns.arm(due, Inner.TURN_TAKEN)


def check_guess(turns: TurnContext, event: Event | None, now: float) -> Inner | None:
    """The recogniser's answer about words of which a partial result is being answered. An answer that is
    older than the partial result is asked for once more."""
    assert isinstance(event, FinalTranscript)
    utterance, speculation = turns.utterance, turns.speculation
    if event.turn != speculation.guessed_from:
        return None
    if not event.failed:
        asked, utterance.asked_after = utterance.asked_after, speculation.answered
        if asked != speculation.answered and speculation.is_older(event):
            turns.actions.append(Decode(event.turn))
            return None
        utterance.words = event
    speculation.guessed_from = turns.turn
    if not speculation.confirms(event):
        return Inner.TURN_CHANGED
    turns.arm(max(turns.endpoint_at(), now), Inner.TURN_TAKEN)
    return None


def revise(turns: TurnContext, event: Event | None, now: float) -> Inner | None:
    """The words were others than those that are being answered."""
    turns.actions.append(Interrupt())
    turns.next_turn()
    return weigh_words(turns, event, now)


def confirm_turn(turns: TurnContext, event: Event | None, now: float) -> None:
    """The presumed turn is over."""
    turns.prompting.silences = 0
    turns.actions.append(ConfirmTurn(turns.turn, turns.endpoint_at()))
    watch(turns, max(turns.utterance.silent_since + turns.settings.dead_air_ms / 1000, now))
