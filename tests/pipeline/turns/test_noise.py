"""The evidence that a voice without a word is noise."""

from __future__ import annotations

import pytest

from pipeline.turns.events import FinalTranscript, PartialTranscript
from pipeline.turns.noise import KNOWN_AFTER_S, NOISY_S, NoiseEvidence, NoiseVerdict
from pipeline.turns.utterance import CallerUtterance

TEA = "i want tea"


def evidence(*, noisy: bool = False, words: str = "") -> tuple[NoiseEvidence, CallerUtterance]:
    """At 10 s a voice begins, which has `words` from then on."""
    utterance = CallerUtterance(0.0)
    noise = NoiseEvidence(utterance, 0.0)
    if noisy:
        noise.reject(9.0)
    utterance.begin(10.0)
    noise.last_speech_was_noise = False
    noise.note_words(words, 10.0)
    return noise, utterance


def test_a_line_is_noisy_for_a_minute_after_a_noise() -> None:
    noise, _ = evidence()
    assert not noise.is_noisy(10.0)
    noise.reject(10.0)
    assert noise.is_noisy(10.0 + NOISY_S - 0.1)
    assert not noise.is_noisy(10.0 + NOISY_S)


def test_in_noise_a_voice_is_given_less_time() -> None:
    quiet, noisy = evidence()[0], evidence(noisy=True)[0]
    assert noisy.patience_s(10.0) < quiet.patience_s(10.0)


@pytest.mark.parametrize(
    ("event", "later_s", "noisy", "verdict"),
    [
        (PartialTranscript(1, TEA), 0.9, False, NoiseVerdict.SPEECH),
        (PartialTranscript(1, TEA), 1.1, False, NoiseVerdict.UNSURE),
        (FinalTranscript(1, TEA), 1.1, False, NoiseVerdict.NOISE),
        (FinalTranscript(1, "", failed=True), 1.1, False, NoiseVerdict.SPEECH),
        (PartialTranscript(1, TEA), 0.4, True, NoiseVerdict.SPEECH),
        (PartialTranscript(1, TEA), 0.6, True, NoiseVerdict.NOISE),
    ],
)
def test_a_voice_without_a_new_word_is_noise_when_the_recogniser_says_so(
    event: PartialTranscript | FinalTranscript, later_s: float, noisy: bool, verdict: NoiseVerdict
) -> None:
    noise, _ = evidence(noisy=noisy, words=TEA)
    assert noise.verdict(event, 10.0 + later_s) is verdict


def test_the_recogniser_is_asked_once_about_the_same_words() -> None:
    noise, utterance = evidence(words=TEA)
    utterance.asked_after = TEA
    assert noise.verdict(PartialTranscript(1, TEA), 12.0) is NoiseVerdict.SPEECH


@pytest.mark.parametrize(
    ("event", "later_s", "verdict"),
    [
        (PartialTranscript(1, ""), 9.0, NoiseVerdict.SPEECH),
        (FinalTranscript(1, ""), 3.9, NoiseVerdict.SPEECH),
        (FinalTranscript(1, ""), 4.1, NoiseVerdict.NOISE),
        (FinalTranscript(1, "", failed=True), 9.0, NoiseVerdict.SPEECH),
    ],
)
def test_a_voice_without_any_word_is_given_four_seconds(
    event: PartialTranscript | FinalTranscript, later_s: float, verdict: NoiseVerdict
) -> None:
    noise, _ = evidence()
    assert noise.verdict(event, 10.0 + later_s) is verdict


@pytest.mark.parametrize(
    ("event", "wordless"),
    [
        (FinalTranscript(1, ""), True),
        (FinalTranscript(1, TEA), True),
        (FinalTranscript(1, "", failed=True), False),
        (FinalTranscript(1, "stop"), False),
    ],
)
def test_a_voice_over_the_agent_that_repeats_what_is_answered_has_no_words(
    event: FinalTranscript, wordless: bool
) -> None:
    noise, _ = evidence()
    assert noise.is_wordless(event, TEA, 11.0) == wordless
    assert not noise.is_wordless(event, TEA, 10.9)


@pytest.mark.parametrize("noisy", [False, True])
def test_the_last_word_says_since_when_the_caller_is_silent_only_in_noise(noisy: bool) -> None:
    noise, utterance = evidence(noisy=noisy, words=TEA)
    noise.note_pause(12.0, 900, 12.1)
    assert utterance.silent_since == (10.0 - KNOWN_AFTER_S if noisy else 12.0)
    assert utterance.voiced_until == 12.0


def test_a_word_that_becomes_known_in_a_pause_in_noise_moves_the_silence_to_its_end() -> None:
    noise, utterance = evidence(noisy=True, words=TEA)
    noise.note_pause(12.0, 900, 12.1)
    noise.note_words("i want tea with milk", 12.2, paused=True)
    assert utterance.silent_since == 12.2 - KNOWN_AFTER_S


def test_the_next_voice_needs_a_word_where_a_voice_after_a_pause_had_none() -> None:
    noise, utterance = evidence(words=TEA)
    utterance.go_on(11.0)
    noise.reject(12.0)
    assert noise.last_speech_was_noise
    noise.note_words("i want tea please", 12.5)
    assert not noise.last_speech_was_noise


def test_words_asked_for_at_once_in_noise_are_asked_for_in_hindsight() -> None:
    noise, utterance = evidence(noisy=True)
    noise.note_pause(11.0, 200, 11.1)
    utterance.asked_at = 11.1
    assert noise.is_asked_early(11.2)
    utterance.asked_at = noise.in_hindsight_at
    assert not noise.is_asked_early(11.6)
