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
from pipeline.turns.noise import KNOWN_AFTER_S, NoiseVerdict


def follow_words(turns: TurnContext, event: Event | None, now: float) -> None:
    """Notes the words of a voice that goes on; rejects as noise a voice without new words."""
    assert isinstance(event, (PartialTranscript, FinalTranscript))
    utterance, noise = turns.utterance, turns.noise
    noise.note_words(event.text, now)
    verdict = noise.verdict(event, now)
    if verdict is NoiseVerdict.UNSURE:  # interim transcripts may come late, or by the sentence
        utterance.asked_after = utterance.partial
        turns.actions.append(Decode(turns.turn))
    elif verdict is NoiseVerdict.NOISE:
        _reject(turns, utterance.wordless_s(now) + KNOWN_AFTER_S, now)
    if isinstance(event, FinalTranscript) and turns.gather.is_kept_waiting(utterance.voice_since, now):
        utterance.overdue_at = now  # the final transcript is there: the keys need not wait for it
        turns.arm(now, Inner.VOICE_CHECK_DUE)


def accept_speech(turns: TurnContext, event: Event | None, now: float) -> Inner | None:
    """Raises WORDS_HEARD for words in sound that was taken for noise."""
    assert isinstance(event, (PartialTranscript, FinalTranscript))
    return Inner.WORDS_HEARD if event.text else None


def hear_words(turns: TurnContext, event: Event | None, now: float) -> None:
    """Takes sound that was taken for noise, and has words, for the caller's voice."""
    assert isinstance(event, (PartialTranscript, FinalTranscript))
    turns.actions.append(AcceptSpeech())
    hear(turns, event, now)
    turns.noise.note_words(event.text, now)


def forget_noise(turns: TurnContext, event: Event | None, now: float) -> None:
    """Drops a voice over the agent as noise; the agent speaks on."""
    forget(turns, event, now)
    _reject(turns, now - turns.utterance.heard_since, now)


def resume_after_noise(turns: TurnContext, event: Event | None, now: float) -> None:
    """Rejects the voice that silenced the agent as noise; the agent goes on."""
    _reject(turns, now - turns.utterance.heard_since, now)
    resume(turns, event, now)


def dismiss(turns: TurnContext, event: Event | None, now: float) -> None:
    """Drops a turn that was noise; the time of the reprompt stays as it was before the noise."""
    turns.actions.append(Discard())
    turns.arm(max(turns.prompting.reprompt_at, now), Inner.SILENCE_NOTED)


def _reject(turns: TurnContext, seconds: float, now: float) -> None:
    turns.noise.reject(now)
    turns.actions.append(RejectAsNoise(seconds))
