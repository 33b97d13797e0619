"""Effects of answers that are prepared before the end of the caller's turn is certain."""

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

_LIKELY: Final = 0.5  # least probability of the turn's end at which an answer is prepared


def guess(turns: TurnContext, event: Event | None, now: float) -> Inner | None:
    """Takes an interim transcript in a pause for the whole utterance, after enough silence."""
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
    """Sets the length of the pause that ends the turn, from the final transcript."""
    assert isinstance(event, FinalTranscript)
    noise = turns.noise
    noise.note_words(event.text, now, paused=True)
    turns.utterance.words = event
    asks_again = turns.utterance.is_empty and noise.is_asked_early(now)
    turns.arm(noise.in_hindsight_at if asks_again else turns.endpoint_at(), Inner.TURN_TAKEN)
    return Inner.TURN_LIKELY if _is_likely(turns, event, now) else None


def _is_likely(turns: TurnContext, words: FinalTranscript, now: float) -> bool:
    """Whether there is time to prepare an answer, and the turn is probably over."""
    settings = turns.settings
    if not settings.prepare_early or not words.text or turns.gather.has_begun:
        return False
    if words.p_eot is not None:
        return words.p_eot >= _LIKELY and now < turns.endpoint_at()
    delay_ms = turns.endpointing.delay_ms(words.text, turns.gather.expected)
    in_time = not words.final or now < turns.utterance.silent_since + delay_ms / 1000
    return delay_ms <= settings.endpoint_ms and in_time


def presume(turns: TurnContext, event: Event | None, now: float) -> None:
    """Lets the agent prepare an answer to a turn that is probably over; the answer is not heard yet."""
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
    """Compares the final transcript with the interim words that the agent is answering. A final transcript
    older than those words is asked for once more."""
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
    """Stops the prepared answer, since the final words differ, and weighs those."""
    turns.actions.append(Interrupt())
    turns.next_turn()
    return weigh_words(turns, event, now)


def confirm_turn(turns: TurnContext, event: Event | None, now: float) -> None:
    """Confirms the presumed turn: its answer may be heard."""
    turns.prompting.silences = 0
    turns.actions.append(ConfirmTurn(turns.turn, turns.endpoint_at()))
    watch(turns, max(turns.utterance.silent_since + turns.settings.dead_air_ms / 1000, now))
