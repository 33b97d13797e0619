"""The built-in judge of the end of a turn: no weights to fetch, 0.6 ms.

Evidence of three kinds is added up as odds: what the words ask for (`pipeline.turn_cues`), how often a
sentence ends after such words (`pipeline.sentence_ends`, English), and how the voice ended: a fall to the
bottom of its range, or held up. Where the words are not known yet the voice alone decides.

The weights (`pipeline.turn_weights`) were set on synthetic callers; docs/turn-taking.md has the figures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from pipeline.endpointing import Completeness, TurnEvidence
from pipeline.language_lists import plain, word_lists
from pipeline.prosody import Prosody, prosody_of
from pipeline.sentence_ends import SentenceEnds
from pipeline.turn_cues import Asked, Cue, asked_for, cues_of
from pipeline.turn_weights import WITH_ENDS, WITHOUT_ENDS

_ANSWERED: Final = 0.97
_DICTATING: Final = 0.03
_THINKING: Final = 0.05
_STORY_WORDS: Final = 8
_STORY: Final = 0.59  # just below the usual threshold: between two sentences people pause 0.3 to 0.45 s
_MOST_WORDS: Final = 9
_TURN_MS: Final = 200  # voiced; a pitch needs a phrase to be measured against
_SHORT_MS: Final = 500  # voiced: what is shorter is no more doubtful
_LEAST_ST, _MOST_ST, _MOST_DB = -4.0, 8.0, 12.0
_WORD: Final = re.compile(r"[\w']+")
_HELD_UP: Final = frozenset({Cue.QUESTION, Cue.QUESTION_BEGUN, Cue.BREAKS_IN})
"""Questions rise, and who breaks in raises the voice: it says something else then."""


class BuiltInScorer:
    """An `EndOfTurnScorer` for English and Arabic words, and for the voice in any language. `ends`: see
    `pipeline.sentence_ends`; without it English is judged like Arabic, by the lists alone."""

    def __init__(self, ends: SentenceEnds | None = None) -> None:
        self._ends = ends

    def p_eot(self, evidence: TurnEvidence) -> float:
        """From 0 (more comes) to 1 (done)."""
        certain = by_words(evidence)
        return certain if certain is not None else self.weighed(evidence)

    def weighed(self, evidence: TurnEvidence) -> float:
        """The same where `by_words` has been asked and settles nothing."""
        terms = self.terms(evidence)
        weights = WITH_ENDS if "ends" in terms else WITHOUT_ENDS
        odds = weights["prior"] + sum(weights.get(name, 0.0) * value for name, value in terms.items())
        p = 1.0 / (1.0 + math.exp(-odds))
        return min(p, _STORY) if "story" in terms else p

    def terms(self, evidence: TurnEvidence) -> dict[str, float]:
        """What is weighed, by the names that `pipeline.turn_weights` has for it."""
        lists = evidence.lists or word_lists(evidence.language)
        text = plain(evidence.words)
        voice = prosody_of(evidence.audio, evidence.rate_hz)
        if not text:
            return {"unheard": 1.0, **dict(_of_the_voice(voice, asking=False))}
        words = text.split()
        cues = cues_of(text, evidence.asked, lists)
        terms = {cue.name.lower(): 1.0 for cue in cues}
        asking = bool(_HELD_UP & cues)
        terms.update(_of_the_voice(voice, asking=asking))
        if len(words) > 1:  # of one word the length says nothing
            terms.update(_of_the_length(len(words), voice, asking=asking))
        if self._ends is not None and evidence.language.startswith("en"):
            pair, last = self._ends.odds(_WORD.findall(evidence.words))
            terms["ends"], terms["ends_last"] = pair + 3.0, last + 3.0
        if _may_be_a_story(words, evidence.asked, cues):
            terms["story"] = 1.0
        return terms


def by_words(evidence: TurnEvidence) -> float | None:
    """The probability where words settle it, whatever the voice does; None where they do not."""
    lists = evidence.lists or word_lists(evidence.language)
    text = plain(evidence.words)
    if not text:
        return None
    words = Completeness(lists)
    if words.answered(text, evidence.expected):
        return _ANSWERED
    if evidence.expected is not None and words.dictating(text, evidence.expected):
        return _DICTATING
    return _THINKING if words.thinking(text) else None


def unfinished(evidence: TurnEvidence) -> bool:
    """The words ask for more, whatever the voice does: no question for a judge that hears only the voice."""
    lists = evidence.lists or word_lists(evidence.language)
    return Completeness(lists).unfinished(plain(evidence.words))


def _may_be_a_story(words: list[str], asked: str, cues: frozenset[Cue]) -> bool:
    """A long sentence that asks nothing, as an answer to nothing short: often another one follows."""
    open_to_all = asked_for(asked) in (Asked.HELP, Asked.NOTHING)
    return open_to_all and len(words) >= _STORY_WORDS and not cues & (_HELD_UP | {Cue.CLOSING})


def _of_the_voice(voice: Prosody, *, asking: bool) -> Iterator[tuple[str, float]]:
    """Each is 0 where it says nothing. A question may fall or rise at its end; on one pitch it goes on."""
    if voice.voiced_ms < _TURN_MS:
        return
    ends = {
        "fall": (_within(voice.fall_st) - 2.0) / 2.0,
        "late": (_within(voice.late_st) - 2.0) / 2.0,
        "last": (_within(voice.last_st) - 2.0) / 2.0,
        "floor": _within(voice.floor_st) / 2.0,
        "lowest": (_within(voice.lowest_st) - 0.5) / 2.0,
        "higher": voice.higher - 0.7,
        "drop": max(-_MOST_DB / 2.0, min(voice.drop_db, _MOST_DB)) / 6.0 - 0.3,
    }
    if not asking:
        yield from ends.items()
        return
    yield "asking_rise", max(-_within(voice.last_st), 0.0) / 2.0
    for name, value in ends.items():
        yield "asking_" + name, max(value, -0.5)


def _of_the_length(words: int, voice: Prosody, *, asking: bool) -> Iterator[tuple[str, float]]:
    of = "asking_" if asking else ""
    yield of + "words", math.log(min(words, _MOST_WORDS)) - 1.5
    if voice.voiced_ms >= _TURN_MS:
        yield of + "voiced", math.log(max(voice.voiced_ms, _SHORT_MS) / 1000.0)


def _within(semitones: float) -> float:
    return max(_LEAST_ST, min(semitones, _MOST_ST))
