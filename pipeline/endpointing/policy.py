"""End-of-turn policy: how much silence ends the caller's turn. The policy has no clock.

A fixed delay is too long after "yes", and too short after "my number is" or between the groups of a dictated
number (where people pause for 0.4 to 1 s). An `EndOfTurnScorer` (built in: `pipeline.endpointing.scorer`)
therefore estimates from voice and words how probable it is that the turn is over, and `EndOfTurn` converts
that probability to a delay, with the three parameters of the public end-of-turn benchmarks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np

from pipeline.audio import Pcm
from pipeline.endpointing.cues import dangles
from pipeline.settings import SessionSettings
from pipeline.speech import Expected
from pipeline.text.word_lists import WordLists, plain, word_lists

_NO_DIGITS: Final[Mapping[str, str]] = MappingProxyType({})

EVIDENCE_S: Final = 8.0
"""Most audio given to a scorer, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEvidence:
    """The evidence at a pause of the caller.

    `audio`: the caller's last `EVIDENCE_S` at most, int16 at `rate_hz`, ending with `silence_ms` of silence;
    empty where the caller's voice cannot be told from others. `words`: of this turn so far, "" for none.
    `asked`: the agent's last words; `expected`: the answers that the agent expects. `voiced_ms`: length of
    voice in the utterance so far. `lists`: word lists; None: those of the language."""

    audio: Pcm
    rate_hz: int
    words: str = ""
    asked: str = ""
    expected: Expected | None = None
    silence_ms: int = 0
    voiced_ms: int = 0
    language: str = "en"
    lists: WordLists | None = None


class EndOfTurnScorer(Protocol):
    """Estimates how probable it is that the caller's turn is over; shared by all calls, without state of a
    call."""

    def p_eot(self, evidence: TurnEvidence) -> float:
        """Gives the probability that the turn is over, 0 to 1. Never raises. The built-in scorer takes 0.4 ms
        and may be called on the event loop; a model may take tens of ms, and `EndOfTurnDetector` runs a model
        in a thread."""


PAUSES: Final = (
    (200.0, 1.0),
    (300.0, 0.556),
    (600.0, 0.217),
    (1000.0, 0.10),
    (1600.0, 0.05),
    (3000.0, 0.005),
)
"""Pairs of a length in ms and the share of pauses within a turn that are longer, of pauses of 200 ms and more
in English: the turns cut off by the silence-only baseline of eot-bench at these delays. The last pair is
measured by this project."""

_USUAL: Final = SessionSettings()
_PAUSES_MS: Final = [length_ms for length_ms, _ in PAUSES]
_RARER: Final = [-math.log(share) for _, share in PAUSES]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfTurn:
    """Converts the probability of the end of a turn to a delay. From `threshold` on, the turn ends
    `action_delay_ms` after the last voiced sample. Below, silence counts as further evidence: the odds grow
    by the inverse of the share of pauses that are longer (`PAUSES`), and the turn ends where the odds reach
    the threshold, or after `timeout_ms`. Raises ValueError for values out of range.

    Delays fitted for each probability to the pauses of `bench conversation` themselves would cut off about a
    tenth fewer pauses at the same mean delay."""

    threshold: float = _USUAL.eot_threshold
    action_delay_ms: int = _USUAL.eot_action_delay_ms
    timeout_ms: int = _USUAL.eot_timeout_ms

    def __post_init__(self) -> None:
        if not 0.0 < self.threshold <= 1.0:
            raise ValueError(f"threshold={self.threshold}: must be above 0 and at most 1")
        if not 0 < self.action_delay_ms <= self.timeout_ms:
            raise ValueError("action_delay_ms: must be above 0 and at most timeout_ms")

    def delay_ms(self, p: float) -> int:
        """Gives the silence in ms after the caller's last voiced sample that ends the turn, for a scorer's
        probability `p`."""
        if p >= self.threshold:
            return self.action_delay_ms
        if p <= 0.0 or self.threshold == 1.0:
            return self.timeout_ms
        missing = _log_odds(self.threshold) - _log_odds(p)
        if missing >= _RARER[-1]:
            return self.timeout_ms
        silence_ms = float(np.interp(missing, _RARER, _PAUSES_MS))
        return round(min(max(silence_ms, self.action_delay_ms), self.timeout_ms))


def _log_odds(p: float) -> float:
    return math.log(p / (1.0 - p))


class Completeness:
    """Judges by the words alone, in one language, whether an answer is complete or unfinished."""

    __slots__ = ("_lists",)

    def __init__(self, lists: WordLists) -> None:
        self._lists = lists

    def answered(self, text: str, expected: Expected | None) -> bool:
        """Whether `text`, which is `plain`, is a complete answer to the question."""
        if expected is None:
            return False
        if expected.digits:
            return len(self.digits(text, expected)) >= expected.digits
        phrases = [plain(phrase) for phrase in expected.phrases]
        if text in phrases:
            # Another phrase may begin with this one: "monday" may become "monday morning".
            return not any(phrase.startswith(text + " ") for phrase in phrases)
        return "yes_no" in expected.kinds and text in self._lists.yes_no

    def dictating(self, text: str, expected: Expected | None) -> bool:
        """Whether `text` ends with digits after which more may follow."""
        digits = self.digits(text, expected)
        return bool(digits) and (awaits_digits(expected) or len(digits) > 1)

    def thinking(self, text: str) -> bool:
        """Whether `text` ends with a filler ("um") or a word like "and" or "the", or is only an opening such
        as "my number is"."""
        lists, last = self._lists, text.rpartition(" ")[2]
        return last in lists.fillers or last in lists.unending or text in lists.openers

    def unfinished(self, text: str) -> bool:
        """Whether more words must follow: after those of `thinking`, and after a last word like "with"."""
        words = text.split()
        return self.thinking(text) or bool(words and dangles(words, self._lists))

    def digits(self, text: str, expected: Expected | None) -> str:
        """Gives the digits that end the text: "it is five five" gives "55", "one moment" gives ""."""
        homophones = self._lists.homophones if awaits_digits(expected) else _NO_DIGITS
        digits = ""
        for word in reversed(text.split()):
            figure = word if word.isdecimal() else self._lists.digits.get(word) or homophones.get(word)
            if not figure:
                break
            digits = figure + digits
        return digits


def awaits_digits(expected: Expected | None) -> bool:
    """Whether the agent's question asks for digits or a number."""
    return expected is not None and (expected.digits > 0 or bool({"digits", "number"} & set(expected.kinds)))


class Endpointing:
    """Gives the delays of one conversation by its words alone, without a scorer, in English and Arabic (`en`,
    `en-GB`, `ar`). Other languages have the base delay unless the answer is complete or has digits."""

    __slots__ = ("_settings", "_words")

    def __init__(self, settings: SessionSettings) -> None:
        self._settings = settings
        self._words = Completeness(word_lists(settings.language, settings.words))

    @property
    def base_ms(self) -> int:
        """The delay in ms before any word is known."""
        return self._settings.endpoint_ms

    def delay_ms(self, text: str, expected: Expected | None) -> int:
        """Gives the silence in ms after the caller's last voiced sample that ends the turn, by the words so
        far."""
        settings, words = self._settings, plain(text)
        if not words:
            return settings.endpoint_ms
        if self._words.answered(words, expected):
            return settings.endpoint_complete_ms
        if self._words.dictating(words, expected):
            return max(settings.endpoint_ms, settings.endpoint_digits_ms)
        if self._words.unfinished(words):
            return max(settings.endpoint_ms, settings.endpoint_unfinished_ms)
        return settings.endpoint_ms
