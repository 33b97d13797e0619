"""End-of-turn policy: how much silence ends the caller's turn. It has no clock of its own.

One fixed delay is wrong twice: too long after "yes", too short after "my number is" or between the groups of
a dictated number (people pause 0.4 to 1 s there). So a scorer says how probable it is that the turn is over,
from the sound and the words (`EndOfTurnScorer`; built in: `pipeline.endpointing.scorer`, no weights), and
`EndOfTurn` makes a delay of that probability, with the three parameters of the public end-of-turn benchmarks.
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
    """What is known at a pause of the caller's.

    `audio`: the caller's last 8 s at most, at `rate_hz`, up to now, so that it ends in `silence_ms` of
    silence; empty where it cannot be told from other voices. `words`: of this turn so far, "" for none.
    `asked`: the agent's last words; `expected`: what it expects as an answer. `voiced_ms`: voice in the
    utterance so far. `lists`: instead of the language's own."""

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
    """Scores how probable it is that the caller's turn is over; shared by all calls, keeps nothing of one."""

    def p_eot(self, evidence: TurnEvidence) -> float:
        """Gives the probability of the end of the turn, 0 (more comes) to 1 (done). Never raises. The
        built-in scorer takes 0.4 ms and may be called on the event loop; a model may take tens of ms:
        `EndOfTurnDetector` runs one off the loop."""


PAUSES: Final = (
    (200.0, 1.0),
    (300.0, 0.556),
    (600.0, 0.217),
    (1000.0, 0.10),
    (1600.0, 0.05),
    (3000.0, 0.005),
)
"""The share of people's pauses within a turn that is longer than so many ms: what the silence-only
baseline of eot-bench cuts off in English at these delays (pauses of 200 ms and more; the last one is our
own measure)."""

_USUAL: Final = SessionSettings()
_PAUSES_MS: Final = [length_ms for length_ms, _ in PAUSES]
_RARER: Final = [-math.log(share) for _, share in PAUSES]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfTurn:
    """Three knobs. The turn is believed to be over from a probability of `threshold` on, and taken
    `action_delay_ms` after the last voiced sample. Below it silence goes on speaking: the longer it lasts,
    the rarer is a pause of that length (`PAUSES`), so the odds of an end grow by the inverse of its share,
    and the turn is taken where they reach the threshold; nobody is waited for longer than `timeout_ms`.

    Delays fitted for each probability to the very pauses of `bench conversation` cut off about a tenth
    fewer of them at the same mean."""

    threshold: float = _USUAL.eot_threshold
    action_delay_ms: int = _USUAL.eot_action_delay_ms
    timeout_ms: int = _USUAL.eot_timeout_ms

    def __post_init__(self) -> None:
        if not 0.0 < self.threshold <= 1.0:
            raise ValueError(f"threshold={self.threshold}: must be above 0 and at most 1")
        if not 0 < self.action_delay_ms <= self.timeout_ms:
            raise ValueError("action_delay_ms: must be above 0 and at most timeout_ms")

    def delay_ms(self, p: float) -> int:
        """Silence after the caller's last voiced sample that ends the turn, given `p` (of a scorer)."""
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
    """What the words alone say about the end of the turn, in one language."""

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
            # Not while another answer goes on from it: "monday" may become "monday morning".
            return not any(phrase.startswith(text + " ") for phrase in phrases)
        return "yes_no" in expected.kinds and text in self._lists.yes_no

    def dictating(self, text: str, expected: Expected | None) -> bool:
        """Whether `text` ends in digits that may not be all."""
        digits = self.digits(text, expected)
        return bool(digits) and (awaits_digits(expected) or len(digits) > 1)

    def thinking(self, text: str) -> bool:
        """Whether `text` ends in a sound of thinking, an "and" or a "the", or is no more than "my number
        is"."""
        lists, last = self._lists, text.rpartition(" ")[2]
        return last in lists.fillers or last in lists.unending or text in lists.openers

    def unfinished(self, text: str) -> bool:
        """Whether the words need more after them: those of `thinking`, and any that end with a word like
        "with"."""
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
    """The delays of one conversation by its words alone, without a scorer (`ar`, `en`, also as `en-GB`;
    others get the base delay unless the answer is complete or made of figures)."""

    __slots__ = ("_settings", "_words")

    def __init__(self, settings: SessionSettings) -> None:
        self._settings = settings
        self._words = Completeness(word_lists(settings.language, settings.words))

    @property
    def base_ms(self) -> int:
        """The delay before anything is known about the words."""
        return self._settings.endpoint_ms

    def delay_ms(self, text: str, expected: Expected | None) -> int:
        """Silence after the caller's last voiced sample that ends the turn, given the words so far."""
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
