"""The built-in end-of-turn scorer, which needs no download and takes 0.2 ms.

The scorer adds up evidence of three kinds as odds: cues in the words (`pipeline.endpointing.cues`), how often
a sentence and a turn end after such words (`pipeline.endpointing.sentence_model`,
`pipeline.endpointing.phrase_model`; English only), and the prosody at the end
(`pipeline.endpointing.prosody`). Where no words are known the voice alone decides.

The weights (`pipeline.endpointing.weights`) were set on synthetic callers; docs/turn-taking.md has the
figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from pipeline.endpointing.cues import Cue, cues_of, is_whole
from pipeline.endpointing.phrase_model import wording
from pipeline.endpointing.policy import Completeness, TurnEvidence
from pipeline.endpointing.prosody import Prosody, prosody_of
from pipeline.endpointing.sentence_model import SentenceEnds, sentence_ends
from pipeline.endpointing.telephone import asks_for_number
from pipeline.endpointing.telephone import is_whole as is_whole_telephone
from pipeline.endpointing.weights import ENGLISH, OTHERS, Terms
from pipeline.errors import SettingsRefused
from pipeline.speech import Expected
from pipeline.text.word_lists import plain, word_lists

ENDS: Final = "ends"
ENDS_LAST: Final = "ends_last"
WORDING: Final = "wording"
WORDS: Final = "words"
ASKING: Final = "asking_"
OF_ENGLISH: Final = frozenset({ENDS, ENDS_LAST, WORDING})
OF_WORDS: Final = OF_ENGLISH | {WORDS}
"""Names of the measures of the words; other measures have the names of `Prosody`'s fields, after `ASKING` for
a question."""

_ANSWERED: Final = 0.97
_DICTATING: Final = 0.03
_THINKING: Final = 0.05
_WHOLE: Final = 0.45
"""Least probability of an order or a question that is whole, whatever the voice: half a second ends it."""

_ANY_DIGITS: Final = Expected(kinds=("digits",))
_TURN_MS: Final = 200  # least voiced length: an ending's pitch is measured against the pitch before
_WORD: Final = re.compile(r"[\w']+")
_NAMES: Final = tuple(field.name for field in fields(Prosody))
_ASKING_NAMES: Final = tuple(ASKING + name for name in _NAMES)
_values: Final = attrgetter(*_NAMES)
_ASKS: Final = frozenset({Cue.QUESTION, Cue.QUESTION_BEGUN})


class BuiltInDetector:
    """An `EndOfTurnScorer` for English and Arabic words, and for the voice in any language. `ends`: the model
    of `pipeline.endpointing.sentence_model`; None: English is judged by word lists, like Arabic."""

    def __init__(self, ends: SentenceEnds | None = None) -> None:
        self._ends = ends
        self._wording = wording()  # reads a file, which must not happen in the first pause of a call

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> BuiltInDetector:
        """Takes no keys. Raises `SettingsRefused`."""
        if settings:
            raise SettingsRefused("built-in", [(key, "unknown key; none is known") for key in settings])
        return cls(sentence_ends())

    def p_eot(self, evidence: TurnEvidence) -> float:
        """Gives the probability that the turn is over, 0 to 1."""
        certain = by_words(evidence)
        return certain if certain is not None else self.weighed(evidence)

    def weighed(self, evidence: TurnEvidence) -> float:
        """Gives the probability by the weights, for evidence that `by_words` does not decide."""
        terms = self.terms(evidence)
        if ENDS not in terms.measures:
            return OTHERS.p(terms, heard=WORDS in terms.measures)
        p = ENGLISH.p(terms)
        return _WHOLE if p < _WHOLE and _is_whole(evidence) else p

    def terms(self, evidence: TurnEvidence) -> Terms:
        """Gives the cues and measures of `evidence`, by their names in `pipeline.endpointing.weights`."""
        voice = prosody_of(evidence.audio, evidence.rate_hz)
        text = plain(evidence.words)
        if not text:
            return Terms(frozenset(), dict(_of_the_voice(voice, asking=False)))
        cues = cues_of(text, evidence.asked, evidence.lists or word_lists(evidence.language))
        measures = dict(_of_the_voice(voice, asking=bool(_ASKS & cues)))
        measures[WORDS] = float(text.count(" ") + 1)
        if self._ends is not None and evidence.language.startswith("en"):
            measures[ENDS], measures[ENDS_LAST] = self._ends.odds(_WORD.findall(evidence.words))
            measures[WORDING] = self._wording.odds(text, evidence.asked)
        return Terms(cues, measures)


def by_words(evidence: TurnEvidence) -> float | None:
    """Gives the probability where the words alone decide, and None where they do not."""
    lists = evidence.lists or word_lists(evidence.language)
    text = plain(evidence.words)
    if not text:
        return None
    words = Completeness(lists)
    if words.answered(text, evidence.expected):
        return _ANSWERED
    if _asks_for_telephone(evidence):
        digits = words.digits(text, _ANY_DIGITS)
        whole = is_whole_telephone(digits, evidence.language) if digits else None
        if whole is not None:
            return _ANSWERED if whole else _DICTATING
    if evidence.expected is not None and words.dictating(text, evidence.expected):
        return _DICTATING
    return _THINKING if words.thinking(text) else None


def _asks_for_telephone(evidence: TurnEvidence) -> bool:
    """Whether the question is one for a telephone number, in a script's words or in a model's own."""
    of_a_length = evidence.expected is not None and evidence.expected.digits > 0
    return not of_a_length and asks_for_number(evidence.asked)


def unfinished(evidence: TurnEvidence) -> bool:
    """Whether more words must follow, whatever the voice; a model that has only the voice is not asked
    then."""
    lists = evidence.lists or word_lists(evidence.language)
    return Completeness(lists).unfinished(plain(evidence.words))


def _is_whole(evidence: TurnEvidence) -> bool:
    lists = evidence.lists or word_lists(evidence.language)
    text = plain(evidence.words)
    return text in lists.orders or is_whole(text.split(), evidence.asked, lists)


def _of_the_voice(voice: Prosody, *, asking: bool) -> Iterator[tuple[str, float]]:
    """The measures of the voice. Those of a question have names, and so weights, of their own: a question may
    end with a fall or a rise, and goes on where the pitch stays."""
    if voice.voiced_ms < _TURN_MS:
        return
    names = _ASKING_NAMES if asking else _NAMES
    yield from zip(names, map(float, _values(voice)), strict=True)
