"""Answers that are prepared before the end of the caller's turn, and what they are a guess about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.turns.events import FinalTranscript, PartialTranscript

GUESS_AFTER_S: Final = 0.18
"""Silence after which a recogniser that streams has caught up: silence that it heard, not time that passed.
With 40 ms of jitter the difference is a word, and a wrong guess costs the whole answer's time again."""

GUESSED: Final = 0.8  # the confidence that an agent is told of a partial result
UNSURE: Final = 0.5  # final words with less confirm nothing
MAX_WRONG_GUESSES: Final = 2  # in a row: the recogniser's partial results come too late

_ROUNDING_S: Final = 0.001
NO_TURN: Final = -1


@dataclass(slots=True)
class Speculation:
    """What is being answered before it is certain."""

    answered: str = ""
    """The words whose answer nobody has heard yet."""
    guessed_from: int = NO_TURN
    """The turn whose final words are awaited although its partial result is being answered."""
    wrong_guesses: int = 0

    def is_whole(self, partial: PartialTranscript, silent_since: float, now: float) -> bool:
        """The recogniser has heard enough silence for `partial` to have all words, and its partial results
        have had all words before."""
        silence_s = min(now, partial.heard_until) - silent_since
        return silence_s >= GUESS_AFTER_S - _ROUNDING_S and self.wrong_guesses < MAX_WRONG_GUESSES

    def is_older(self, final: FinalTranscript) -> bool:
        """`final` is the beginning of the words that are being answered: it was asked for before the last of
        those words was said, as where noise hides the end of a word."""
        known, before = self.answered.split(), final.text.split()
        return len(before) < len(known) and known[: len(before)] == before

    def confirms(self, final: FinalTranscript) -> bool:
        """Whether `final` leaves the guess standing; counts the wrong guesses in a row."""
        sure = final.confidence >= UNSURE and not final.doubtful
        right = final.failed or (final.text == self.answered and sure)
        self.wrong_guesses = 0 if right else self.wrong_guesses + 1
        return right
