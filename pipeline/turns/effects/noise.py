"""Effects of noise: a voice without words is rejected, and words in what was rejected are accepted."""

from __future__ import annotations

from pipeline.turns.context import TurnContext
from pipeline.turns.effects.overlap import forget, resume
from pipeline.turns.effects.utterance import hear
from pipeline.turns.events import (
    AcceptSpeech,
    Decode,
    Discard,
    Event,
    FinalTranscript,
    Inner,
    PartialTranscript,
    RejectAsNoise,
)
from pipeline.turns.noise import KNOWN_AFTER_S, Verdict


def follow_words(turns: TurnContext, event: Event | None, now: float) -> None:
    """The words of a voice that goes on: a voice that has had words, and has no more, has become a noise."""
    assert isinstance(event, (PartialTranscript, FinalTranscript))
    utterance, noise = turns.utterance, turns.noise
    noise.note_words(event.text, now)
    verdict = noise.verdict(event, now)
    if verdict is Verdict.UNSURE:  # partial results may come late, or by the sentence
        utterance.asked_after = utterance.partial
        turns.actions.append(Decode(turns.turn))
    elif verdict is Verdict.NOISE:
        _reject(turns, utterance.wordless_s(now) + KNOWN_AFTER_S, now)
    if isinstance(event, FinalTranscript) and turns.gather.is_kept_waiting(utterance.voice_since, now):
        utterance.overdue_at = now  # no words: the keys are waited for no longer
        turns.arm(now, Inner.VOICE_CHECK_DUE)


def accept_speech(turns: TurnContext, event: Event | None, now: float) -> Inner | None:
    """Words where only noise was known make the noise the caller's voice."""
    assert isinstance(event, (PartialTranscript, FinalTranscript))
    return Inner.WORDS_HEARD if event.text else None


def hear_words(turns: TurnContext, event: Event | None, now: float) -> None:
    """The caller's voice began when it was taken for noise; these are its words."""
    assert isinstance(event, (PartialTranscript, FinalTranscript))
    turns.actions.append(AcceptSpeech())
    hear(turns, event, now)
    turns.noise.note_words(event.text, now)


def forget_noise(turns: TurnContext, event: Event | None, now: float) -> None:
    """A voice over the agent was noise, and the agent speaks on."""
    forget(turns, event, now)
    _reject(turns, now - turns.utterance.heard_since, now)


def resume_after_noise(turns: TurnContext, event: Event | None, now: float) -> None:
    """A voice that has silenced the agent was noise: the agent goes on."""
    _reject(turns, now - turns.utterance.heard_since, now)
    resume(turns, event, now)


def dismiss(turns: TurnContext, event: Event | None, now: float) -> None:
    """What was taken for the caller's turn was a noise: the reprompt comes when it would have come."""
    turns.actions.append(Discard())
    turns.arm(max(turns.prompting.reprompt_at, now), Inner.SILENCE_NOTED)


def _reject(turns: TurnContext, seconds: float, now: float) -> None:
    turns.noise.reject(now)
    turns.actions.append(RejectAsNoise(seconds))
