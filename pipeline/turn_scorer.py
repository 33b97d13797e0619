"""The built-in judge of the end of a turn: no weights to fetch, 0.2 ms.

Two kinds of evidence, added up as odds: what the words ask for (the strongest there is: digits that are still
missing, "my number is", a trailing "because"), and how the voice ended (a fall to the bottom of its range, or
held up). Where the words are not known yet the voice alone decides, and is trusted less.

The weights were set on synthetic callers; the figures are in docs/turn-taking.md."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from pipeline.endpointing import Completeness, TurnEvidence
from pipeline.language_lists import WordLists, plain, word_lists
from pipeline.prosody import Prosody, prosody_of

_ANSWERED: Final = 0.97
_DICTATING: Final = 0.03
_UNFINISHED: Final = 0.05

# Odds (natural logarithm) that are added up; above 0 the turn is rather over.
_PRIOR: Final = 0.2
_UNHEARD: Final = -0.6  # no words yet: doubt
_CLOSING: Final = 2.0
_WANTING: Final = -1.6
_SHORT_ANSWER: Final = 1.0  # a few words to a question
_QUESTION: Final = 0.6  # and its pitch may rise
_LONE_WORD: Final = -0.5  # "Monday" without having been asked for
_FALL: Final = 0.55  # for a semitone
_FALL_MIDDLE_ST: Final = 1.8
_FALL_LEAST_ST, _FALL_MOST_ST = -1.5, 3.0  # of it; a wrong octave must not decide
_HELD: Final = -0.8  # a long last sound on one pitch: "ummm", "aaand"
_HELD_MS: Final = 500
_TURN_MS: Final = 400  # voiced; a pitch needs a phrase to be measured against


class BuiltInScorer:
    """An `EndOfTurnScorer` for English and Arabic words, and for the voice in any language. `lists`:
    instead of the language's own."""

    def __init__(self, lists: WordLists | None = None) -> None:
        self._lists = lists

    def p_eot(self, evidence: TurnEvidence) -> float:
        """From 0 (more comes) to 1 (done)."""
        lists = self._lists or word_lists(evidence.language)
        text = plain(evidence.words)
        certain = by_words(evidence, lists)
        if certain is not None:
            return certain
        odds = _PRIOR + _word_odds(text, evidence, lists)
        asks = _is_question(text, lists)
        odds += _voice_odds(prosody_of(evidence.audio, evidence.rate_hz), question=asks)
        return 1.0 / (1.0 + math.exp(-odds))


def by_words(evidence: TurnEvidence, lists: WordLists | None = None) -> float | None:
    """The probability where words settle it, whatever the voice does; None where they do not."""
    lists = lists or word_lists(evidence.language)
    text = plain(evidence.words)
    if not text:
        return None
    words = Completeness(lists)
    if words.answered(text, evidence.expected):
        return _ANSWERED
    if words.dictating(text, evidence.expected):
        return _DICTATING
    return _UNFINISHED if words.unfinished(text) else None


def _word_odds(text: str, evidence: TurnEvidence, lists: WordLists) -> float:
    if not text:
        return _UNHEARD
    spoken = text.split()
    longest = min(_longest_of(lists.closing), len(spoken))
    if any(" ".join(spoken[-size:]) in lists.closing for size in range(1, longest + 1)):
        return _CLOSING
    if spoken[-1] in lists.wanting:
        return _WANTING
    if len(spoken) <= 4 and evidence.asked.rstrip().endswith(("?", "؟")):
        return _SHORT_ANSWER
    if _is_question(text, lists):
        return _QUESTION
    return _LONE_WORD if len(spoken) == 1 else 0.0


def _is_question(text: str, lists: WordLists) -> bool:
    """It begins like one, a sound or "so" in front left out, and is long enough to be one."""
    spoken = [word for word in text.split() if word not in lists.fillers and word not in lists.light]
    return len(text.split()) >= 4 and bool(spoken) and spoken[0] in lists.asking


def _voice_odds(voice: Prosody, *, question: bool) -> float:
    if voice.voiced_ms < _TURN_MS:
        return 0.0
    fall = max(_FALL_LEAST_ST, min(voice.fall_st - _FALL_MIDDLE_ST, _FALL_MOST_ST))
    odds = _FALL * (max(fall, 0.0) if question else fall)
    if voice.held_ms > _HELD_MS and abs(voice.slope_st_s) < 4.0 and voice.fall_st < _FALL_MIDDLE_ST:
        odds += _HELD
    return odds


@lru_cache(maxsize=64)
def _longest_of(phrases: frozenset[str]) -> int:
    return max((phrase.count(" ") + 1 for phrase in phrases), default=0)
