"""What speaks for noise: the evidence that a voice without a word is not the caller's.

Babble, a television or a fan is voice to a detector that knows only levels. Words tell: a voice that has had
words and no new one is a noise that the words were in, and a voice without any word cannot be answered. The
level of such a voice is learnt (`RejectAsNoise`), and a sound that is not louder is not taken for the caller.
On a line that is known to be noisy words are the better clock, too: the caller's last word counts, not the
last sound as loud as the caller."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from pipeline.turns.events import FinalTranscript, PartialTranscript
from pipeline.turns.utterance import CallerUtterance

WORDLESS_S: Final = 1.0
"""A voice without a new word for so long, nor in what the recogniser is then asked for, is a noise that the
caller's words were in: longer than the longest word."""

WORDLESS_IN_NOISE_S: Final = 0.5
"""`WORDLESS_S` on a line that is known to be noisy: longer than most words, and partial results that are late
only make it longer."""

VOICE_ALONE_S: Final = 4.0
"""Voice without a pause or any word in it: nobody speaks so long without either. A person whom the recogniser
does not understand may have spoken, so the time is long."""

NOISY_S: Final = 60.0  # how long a line is known to be noisy
KNOWN_AFTER_S: Final = 0.35  # words are looked at so long after they were said
VOICE_CHECK_S: Final = 0.25
NOISE_CHECK_S: Final = 0.1  # on a noisy line a word is the only sign of the caller


class Verdict(Enum):
    """What a voice that goes on is."""

    SPEECH = auto()
    UNSURE = auto()  # the recogniser is to be asked for all the words
    NOISE = auto()


class NoiseEvidence:
    """What speaks for noise in `utterance` and on its line."""

    __slots__ = ("_noisy_until", "_utterance", "last_speech_was_noise")

    def __init__(self, utterance: CallerUtterance, now: float) -> None:
        self._utterance = utterance
        self._noisy_until = now
        self.last_speech_was_noise = False
        """A voice went on after a pause without a word: the next voice needs one."""

    def is_noisy(self, now: float) -> bool:
        """A noise has been taken for a voice on this line in the last minute."""
        return now < self._noisy_until

    def check_s(self, now: float) -> float:
        """Between two looks at a voice that goes on."""
        return NOISE_CHECK_S if self.is_noisy(now) else VOICE_CHECK_S

    def patience_s(self, now: float) -> float:
        """For how long a voice may have no new word."""
        return WORDLESS_IN_NOISE_S if self.is_noisy(now) else WORDLESS_S

    def note_words(self, text: str, now: float, *, paused: bool = False) -> None:
        """`text` is what the caller has said so far. A new word that becomes known in a pause on a noisy line
        was being said when the pause began."""
        utterance = self._utterance
        if not utterance.is_more(text):
            return
        utterance.note_words(text, now)
        self.last_speech_was_noise = False
        if paused and self.is_noisy(now):
            utterance.silent_since = min(utterance.voiced_until, now - KNOWN_AFTER_S)

    def note_pause(self, silent_since: float, voiced_ms: int, now: float) -> None:
        """The voice has fallen silent; on a noisy line the caller's last word says since when."""
        utterance = self._utterance
        utterance.pause(silent_since, voiced_ms)
        if utterance.partial and self.is_noisy(now):
            utterance.silent_since = min(silent_since, utterance.worded_at - KNOWN_AFTER_S)
            self._note_wordless_voice()

    def verdict(self, event: PartialTranscript | FinalTranscript, now: float) -> Verdict:
        """What the voice that goes on is, now that `event` says what its words are."""
        utterance, wordless_s = self._utterance, self._utterance.wordless_s(now)
        failed = isinstance(event, FinalTranscript) and event.failed
        final = isinstance(event, FinalTranscript)
        if not utterance.partial:
            return Verdict.NOISE if final and not failed and wordless_s >= VOICE_ALONE_S else Verdict.SPEECH
        if wordless_s < self.patience_s(now) or failed:
            return Verdict.SPEECH
        if final or self.is_noisy(now):
            return Verdict.NOISE
        return Verdict.UNSURE if utterance.asked_after != utterance.partial else Verdict.SPEECH

    def is_wordless(self, event: FinalTranscript, answered: str, now: float) -> bool:
        """A voice over the agent has lasted long enough, and has no words but `answered`, which are being
        answered."""
        wordless = not event.failed and event.text in ("", answered)
        return wordless and now - self._utterance.heard_since >= self.patience_s(now)

    def reject(self, now: float) -> None:
        """The voice is noise: the line is noisy from now on."""
        self._note_wordless_voice()
        self._noisy_until = now + NOISY_S

    def _note_wordless_voice(self) -> None:
        self.last_speech_was_noise = self._utterance.worded_at < self._utterance.voice_since

    @property
    def in_hindsight_at(self) -> float:
        """From when on a word whose end the noise hid is over."""
        return self._utterance.silent_since + WORDLESS_IN_NOISE_S

    def is_asked_early(self, now: float) -> bool:
        """The recogniser was asked for the words when the last word may not have been over."""
        return self.is_noisy(now) and self._utterance.asked_at < self.in_hindsight_at
