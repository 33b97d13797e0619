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
_SHORT_ANSWER: Final = 0.8  # up to three words to a question
_CONDITION: Final = -2.0  # "if it rains tomorrow": the other half is missing
_QUESTION: Final = 0.6  # or who breaks in; the pitch may rise
_LONE_WORD: Final = -0.5  # "Monday" without having been asked for
_FALL: Final = 1.1  # for a semitone
_FALL_MIDDLE_ST: Final = 2.4
_FALL_LEAST_ST, _FALL_MOST_ST = -1.6, 2.0  # around the middle: no melody alone decides
_HELD: Final = -0.8  # a long last sound on one pitch: "ummm", "aaand"
_HELD_MS: Final = 500
_SHORT_WORDS: Final = 3
_CLAUSE_WORDS: Final = 4
_CONDITION_WORDS: Final = 8
_STORY_WORDS: Final = 8
_STORY: Final = 0.59  # just below the usual threshold: between two sentences people pause 0.3 to 0.45 s
_TURN_MS: Final = 400  # voiced; a pitch needs a phrase to be measured against


class BuiltInScorer:
    """An `EndOfTurnScorer` for English and Arabic words, and for the voice in any language."""

    def p_eot(self, evidence: TurnEvidence) -> float:
        """From 0 (more comes) to 1 (done)."""
        lists = evidence.lists or word_lists(evidence.language)
        text = plain(evidence.words)
        certain = by_words(evidence)
        if certain is not None:
            return certain
        odds = _PRIOR + _word_odds(text, evidence, lists)
        held_up = _is_question(text, lists) or _breaks_in(text, lists)
        odds += _voice_odds(prosody_of(evidence.audio, evidence.rate_hz), held_up=held_up)
        p = 1.0 / (1.0 + math.exp(-odds))
        return min(p, _STORY) if _may_be_a_story(text, lists) else p


def by_words(evidence: TurnEvidence) -> float | None:
    """The probability where words settle it, whatever the voice does; None where they do not."""
    lists = evidence.lists or word_lists(evidence.language)
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
    asked = evidence.asked.rstrip().endswith(("?", "؟"))
    # The first that is so.
    cases = (
        (_closes(spoken, lists), _CLOSING),
        (spoken[-1] in lists.wanting, _WANTING),
        (spoken[0] in lists.conditions and len(spoken) < _CONDITION_WORDS, _CONDITION),
        (asked and len(spoken) <= _SHORT_WORDS, _SHORT_ANSWER),
        (_is_question(text, lists) or _breaks_in(text, lists), _QUESTION),
        (len(spoken) == 1, _LONE_WORD),
    )
    return next((odds for so, odds in cases if so), 0.0)


def _may_be_a_story(text: str, lists: WordLists) -> bool:
    """A long sentence that asks nothing: whoever says one often says another."""
    spoken = text.split()
    asks = bool(lists.asking.intersection(spoken[:1])) or _is_question(text, lists)
    return len(spoken) >= _STORY_WORDS and not asks and not _closes(spoken, lists)


def _closes(spoken: list[str], lists: WordLists) -> bool:
    longest = min(_longest_of(lists.closing), len(spoken))
    return any(" ".join(spoken[-size:]) in lists.closing for size in range(1, longest + 1))


def _is_question(text: str, lists: WordLists) -> bool:
    """It begins like one, a sound, "so" or "sorry" in front left out, and is long enough to be one."""
    spoken = text.split()
    before = lists.light | lists.fillers | lists.stops
    while spoken and spoken[0] not in lists.asking and spoken[0] in before:
        del spoken[0]
    return len(spoken) >= _CLAUSE_WORDS and spoken[0] in lists.asking


def _breaks_in(text: str, lists: WordLists) -> bool:
    """ "Stop, I only want the price": whoever takes the floor knows what they want to say, and says it with a
    raised voice (French and Local 1983), which says nothing about the end."""
    spoken = text.split()
    return len(spoken) > _CLAUSE_WORDS and (spoken[0] in lists.stops or " ".join(spoken[:2]) in lists.stops)


def _voice_odds(voice: Prosody, *, held_up: bool) -> float:
    if voice.voiced_ms < _TURN_MS:
        return 0.0
    fall = max(_FALL_LEAST_ST, min(voice.fall_st - _FALL_MIDDLE_ST, _FALL_MOST_ST))
    odds = _FALL * (max(fall, 0.0) if held_up else fall)
    if voice.held_ms > _HELD_MS and abs(voice.slope_st_s) < 4.0 and voice.fall_st < _FALL_MIDDLE_ST:
        odds += _HELD
    return odds


@lru_cache(maxsize=64)
def _longest_of(phrases: frozenset[str]) -> int:
    return max((phrase.count(" ") + 1 for phrase in phrases), default=0)
