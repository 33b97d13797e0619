"""Judges from the recogniser's words whether a voice is noise.

A detector that knows only levels takes babble, a television or a fan for voice. Words tell them apart: a
voice that had words and gets no new one is noise behind the caller's words, and a voice without any word
cannot be answered. The level of such noise is learnt (`RejectAsNoise`), and sound that is not louder is not
taken for the caller. On a line that is known to be noisy, the caller's silence counts from the last word and
not from the last loud sound."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from pipeline.turns.events import FinalTranscript, PartialTranscript
from pipeline.turns.utterance import CallerUtterance

WORDLESS_S: Final = 1.0
"""Seconds without a new word, longer than any word, after which the recogniser decodes a voice that had
words; without a new word in the result either, the voice is noise."""

WORDLESS_IN_NOISE_S: Final = 0.5
"""`WORDLESS_S` on a line that is known to be noisy: longer than most words."""

VOICE_ALONE_S: Final = 4.0
"""Seconds of voice without a pause or any word after which the voice is noise. The time is long, since the
recogniser may fail to understand a person."""

NOISY_S: Final = 60.0  # time for which a line counts as noisy after noise was found
KNOWN_AFTER_S: Final = 0.35  # delay from a word to its interim transcript


class NoiseVerdict(Enum):
    """The verdict on a voice that goes on."""

    SPEECH = auto()
    UNSURE = auto()  # the recogniser has to decode the whole utterance
    NOISE = auto()


class NoiseEvidence:
    """The evidence for noise in `utterance` and on the line."""

    __slots__ = ("_utterance", "last_speech_was_noise", "noisy_until")

    def __init__(self, utterance: CallerUtterance, now: float) -> None:
        self._utterance = utterance
        self.noisy_until = now
        """Loop time up to which the line counts as noisy."""
        self.last_speech_was_noise = False
        """Whether the last voice had no word: on a noisy line the next voice counts only with one."""

    def is_noisy(self, now: float) -> bool:
        """Whether a voice on this line was found to be noise within the last `NOISY_S`."""
        return now < self.noisy_until

    def patience_s(self, now: float) -> float:
        """Seconds for which a voice may have no new word."""
        return WORDLESS_IN_NOISE_S if self.is_noisy(now) else WORDLESS_S

    def note_words(self, text: str, now: float, *, paused: bool = False) -> None:
        """Notes the caller's words so far. In a pause on a noisy line a new word moves the begin of the
        caller's silence back, since the word was said before that silence."""
        utterance = self._utterance
        if not utterance.is_more(text):
            return
        utterance.note_words(text, now)
        self.last_speech_was_noise = False
        if paused and self.is_noisy(now):
            utterance.silent_since = min(utterance.voiced_until, now - KNOWN_AFTER_S)

    def note_pause(self, silent_since: float, voiced_ms: int, now: float) -> None:
        """Notes that the voice stopped; on a noisy line the silence counts from the caller's last word."""
        utterance = self._utterance
        utterance.pause(silent_since, voiced_ms)
        if utterance.partial and self.is_noisy(now):
            utterance.silent_since = min(silent_since, utterance.worded_at - KNOWN_AFTER_S)
            self._note_wordless_voice()

    def verdict(self, event: PartialTranscript | FinalTranscript, now: float) -> NoiseVerdict:
        """Judges a voice that goes on by the words of `event`."""
        utterance, wordless_s = self._utterance, self._utterance.wordless_s(now)
        failed = isinstance(event, FinalTranscript) and event.failed
        final = isinstance(event, FinalTranscript)
        if not utterance.partial:
            return (
                NoiseVerdict.NOISE
                if final and not failed and wordless_s >= VOICE_ALONE_S
                else NoiseVerdict.SPEECH
            )
        if wordless_s < self.patience_s(now) or failed:
            return NoiseVerdict.SPEECH
        if final or self.is_noisy(now):
            return NoiseVerdict.NOISE
        return NoiseVerdict.UNSURE if utterance.asked_after != utterance.partial else NoiseVerdict.SPEECH

    def is_wordless(self, event: FinalTranscript, answered: str, now: float) -> bool:
        """Whether a voice over the agent has lasted for `patience_s` without words other than `answered`,
        which the agent is answering."""
        wordless = not event.failed and event.text in ("", answered)
        return wordless and now - self._utterance.heard_since >= self.patience_s(now)

    def reject(self, now: float) -> None:
        """Takes the voice for noise: the line is noisy for `NOISY_S` from now on."""
        self._note_wordless_voice()
        self.noisy_until = now + NOISY_S

    def _note_wordless_voice(self) -> None:
        self.last_speech_was_noise = self._utterance.worded_at < self._utterance.voice_since

    @property
    def in_hindsight_at(self) -> float:
        """Loop time from which a last word whose end the noise hid is over."""
        return self._utterance.silent_since + WORDLESS_IN_NOISE_S

    def is_asked_early(self, now: float) -> bool:
        """Whether the recogniser decoded before the caller's last word was over for certain."""
        return self.is_noisy(now) and self._utterance.asked_at < self.in_hindsight_at
