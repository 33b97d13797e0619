"""Voice without words: what turn-taking makes of a voice detector that hears voice without end.

Babble, a television or a fan is voice to a detector that knows only levels. Words tell: a voice that has had
words and no new one is a noise they were in, and one without any is none that could be answered. Its level is
then learnt (`Disregard`), and what is not louder is not taken for the caller. Where that has happened words
are the better clock, too: the caller's last word counts, not the last sound as loud as they are."""

from __future__ import annotations

from abc import ABC
from typing import Final

from pipeline.turns.events import (
    Decode,
    Disregard,
    Event,
    FinalTranscript,
    Heed,
    Inner,
    Interrupt,
    PartialTranscript,
    ReplyHeard,
    SpeechStopped,
    State,
    VoiceSustained,
)
from pipeline.turns.machine import VOICE_CHECK_S, TurnMachine

WORDLESS_S: Final = 1.0
"""A voice without a new word for so long, nor in what is then asked for, is a noise that the caller's words
were in: longer than the longest word."""

WORDLESS_IN_NOISE_S: Final = 0.5
"""The same on a line that is known to be noisy: longer than most words, and partial results that are late
only make it longer."""

VOICE_ALONE_S: Final = 4.0
"""Voice without a pause or any word in it: nobody speaks so long without either. In what the recogniser made
nothing of a person who is not understood may have spoken, so this is no time to be short of."""

NOISY_S: Final = 60.0  # how long a line is known to be noisy
KNOWN_AFTER_S: Final = 0.35  # words are looked at so long after they were said
_NOISE_CHECK_S: Final = 0.1  # a word is the only sign of the caller


def _count(text: str) -> int:
    return len(text.split())


class WordlessVoices(TurnMachine, ABC):
    """What becomes of a voice that has no words, or no more."""

    # The caller's turn --------------------------------------------------------------------------------------

    def _hear(self, event: Event | None, now: float) -> None:
        self._heard_since = now
        self._overheard, self._worded_at = "", now
        self.cried_wolf = False
        self._note_reply_heard(event, now)
        self._hear_on(event, now)

    def _note_reply_heard(self, event: Event | None, now: float) -> None:
        """The floor is the caller's from now on, should what is heard over the agent's end be a noise."""
        if isinstance(event, ReplyHeard):
            self._reprompt_at = now + self._settings.reprompt_s

    def _hear_on(self, event: Event | None, now: float) -> None:
        self._next_turn()  # words decoded so far are not the whole any more
        self._words, self._asked_after = None, ""  # what was asked is not answered any more
        self._voice_since = now
        self._check_voice_again(now)

    def _take_back(self, event: Event | None, now: float) -> None:
        """The turn was not over: the answer that was being prepared is none."""
        self._actions.append(Interrupt())
        self._hear_on(event, now)

    def _check_voice_again(self, now: float) -> None:
        self._arm(now + (_NOISE_CHECK_S if self.is_noisy(now) else VOICE_CHECK_S), Inner.VOICE_CHECK_DUE)

    def _follow(self, event: Event | None, now: float) -> None:
        """The words of a voice that goes on. One that has had some, and has no more, has become a noise."""
        assert isinstance(event, (PartialTranscript, FinalTranscript))
        self._follow_words(event.text, now)
        wordless_s = self.wordless_s(now)
        if not self._overheard:
            self._follow_wordless(event, now)
        elif wordless_s < self._patience_s(now):
            return
        elif isinstance(event, PartialTranscript) and not self.is_noisy(now):
            if self._asked_after != self._overheard:  # its partial results may come late, or by the sentence
                self._asked_after = self._overheard
                self._actions.append(Decode(self.turn))
        elif isinstance(event, PartialTranscript) or not event.failed:
            self._leave_to_noise(wordless_s + KNOWN_AFTER_S, now)

    def _follow_wordless(self, event: PartialTranscript | FinalTranscript, now: float) -> None:
        asked = isinstance(event, FinalTranscript) and not event.failed
        if asked and now - self._voice_since >= VOICE_ALONE_S:
            self._leave_to_noise(now - self._voice_since + KNOWN_AFTER_S, now)

    def _follow_words(self, text: str, now: float) -> None:
        if _count(text) <= _count(self._overheard):
            return
        self._overheard, self._worded_at, self.cried_wolf = text, now, False
        if self.state is State.ENDPOINTING and self.is_noisy(now):  # it was being said at the pause
            self._silent_since = min(self._voiced_until, now - KNOWN_AFTER_S)

    def _note_pause(self, event: Event | None, now: float) -> None:
        """The caller's last voiced sample; in noise, where that is no news, their last word."""
        assert isinstance(event, SpeechStopped)
        self._silent_since = self._voiced_until = event.silent_since
        self._voiced_ms = event.voiced_ms
        if self._overheard and self.is_noisy(now):
            self._silent_since = min(event.silent_since, self._worded_at - KNOWN_AFTER_S)
            self.cried_wolf = self._worded_at < self._voice_since

    def _heed(self, event: Event | None, now: float) -> None:
        """Words where only noise was known."""
        assert isinstance(event, (PartialTranscript, FinalTranscript))
        if event.text:
            self._actions.append(Heed())
            self._step(VoiceSustained, None, now)
            self._follow_words(event.text, now)

    # Over the agent, and over its answer --------------------------------------------------------------------

    def _turns_out_noise(self, event: FinalTranscript, now: float) -> bool:
        """A voice over the agent in which there are no words, or none but those that are being answered."""
        lasted_s = now - self._heard_since
        wordless = not event.failed and event.text in ("", self._answered)
        if not wordless or lasted_s < self._patience_s(now):
            return False
        self._step(Inner.NOISE_HEARD, None, now)
        self._leave_to_noise(lasted_s, now)
        return True

    # Noise --------------------------------------------------------------------------------------------------

    def is_noisy(self, now: float) -> bool:
        """Something has been taken for a voice on this line that was none."""
        return now < self._noisy_until

    def _in_hindsight_at(self) -> float:
        """From when on a word whose end the noise hid is over."""
        return self._silent_since + WORDLESS_IN_NOISE_S

    def _asked_early(self, now: float) -> bool:
        """The words so far were asked for when the last one may not have been over yet."""
        return self.is_noisy(now) and self._asked_at < self._in_hindsight_at()

    def says_more(self, text: str) -> bool:
        """There are words in `text` that nobody has taken note of."""
        known = self._answered
        if self.state is State.ENDPOINTING:
            known = max(self._overheard, self._words.text if self._words is not None else "", key=_count)
        return _count(text) > _count(known)

    def wordless_s(self, now: float) -> float:
        """For how long a voice that had words has had no new one."""
        return now - max(self._worded_at, self._voice_since) if self._overheard else 0.0

    def _patience_s(self, now: float) -> float:
        return WORDLESS_IN_NOISE_S if self.is_noisy(now) else WORDLESS_S

    def _leave_to_noise(self, seconds: float, now: float) -> None:
        self.cried_wolf = self._worded_at < self._voice_since
        self._noisy_until = now + NOISY_S
        self._actions.append(Disregard(seconds))
