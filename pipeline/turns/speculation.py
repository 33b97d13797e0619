"""The record of an answer that is prepared before the end of the caller's turn is certain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.turns.events import FinalTranscript, PartialTranscript

GUESS_AFTER_S: Final = 0.18
"""Seconds of silence in the recogniser's audio after which its interim transcript is complete. Loop time is
no substitute: with 40 ms of jitter the difference is a word, and a wrong guess costs an answer's time."""

GUESSED: Final = 0.8  # the confidence given to the agent for an interim transcript
UNSURE: Final = 0.5  # a final transcript of less confidence confirms no guess
MAX_WRONG_GUESSES: Final = 2  # in a row; after that interim transcripts are too late to be answered

_ROUNDING_S: Final = 0.001
NO_TURN: Final = -1


@dataclass(slots=True)
class Speculation:
    """The words that the agent is answering before the caller's turn is over for certain."""

    answered: str = ""
    """The words that the agent is answering, until the caller hears a part of the answer."""
    guessed_from: int = NO_TURN
    """The turn whose interim transcript the agent is answering while the final one is awaited."""
    wrong_guesses: int = 0

    def is_whole(self, partial: PartialTranscript, silent_since: float, now: float) -> bool:
        """Whether `partial` has all of the caller's words: the recogniser's audio ends with `GUESS_AFTER_S`
        of silence, and its last interim transcripts were not wrong."""
        silence_s = min(now, partial.heard_until) - silent_since
        return silence_s >= GUESS_AFTER_S - _ROUNDING_S and self.wrong_guesses < MAX_WRONG_GUESSES

    def is_older(self, final: FinalTranscript) -> bool:
        """Whether `final` is only the beginning of the answered words: it was decoded before the last word,
        which happens where noise hides the end of a word."""
        known, before = self.answered.split(), final.text.split()
        return len(before) < len(known) and known[: len(before)] == before

    def confirms(self, final: FinalTranscript) -> bool:
        """Whether `final` leaves the guess standing; counts the wrong guesses in a row."""
        sure = final.confidence >= UNSURE and not final.doubtful
        right = final.failed or (final.text == self.answered and sure)
        self.wrong_guesses = 0 if right else self.wrong_guesses + 1
        return right
