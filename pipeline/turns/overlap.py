"""Judges a voice over the agent: a barge-in, a backchannel ("mm-hm") or noise.

The judgement has two stages, because nobody can tell "wait" from "mm-hm" or a cough at 240 ms, and an agent
that waits until the words are known seems not to listen. First the agent lowers its volume, then words
decide. Final words for the agent interrupt it. Weaker evidence (an interim transcript, a voice of 0.7 s
without a word, "okay" that goes on) only silences the agent and keeps the reply: after a backchannel the
agent goes on at the same place."""

from __future__ import annotations

from typing import Final

from pipeline.settings import SessionSettings
from pipeline.speech import Expected
from pipeline.text.word_lists import Overlap, OverlapKind, judge_farewell, judge_overlap, word_lists
from pipeline.turns.closing import Farewell
from pipeline.turns.events import Inner, State
from pipeline.turns.prompting import Prompting
from pipeline.turns.speculation import UNSURE
from pipeline.turns.utterance import CallerUtterance

STANDS_S: Final = 0.04
"""Seconds for which interim transcripts must ask for the floor before the agent falls silent; "stop" and its
like need no time."""

ENOUGH_WORDS: Final = 2  # of content; a single word is too often misheard noise

RELENT_AFTER_S: Final = 0.18
"""Seconds of silence after which an interim "mm-hm" is all of the caller's words, since a streaming
recogniser has caught up."""

_SPEAKING_ON: Final = (State.DUCKED, State.HALTED)


class OverlapJudge:
    """Judges the words of `utterance` over the agent's words. Over a `farewell`, words of parting ask for
    nothing; any answer, even "yes", counts from a caller who did not answer before (`prompting`)."""

    __slots__ = (
        "_farewell", "_prompting", "_settings", "_unexplained_since", "_utterance", "_wanted_since",
        "language", "lists",
    )  # fmt: skip

    def __init__(
        self, settings: SessionSettings, utterance: CallerUtterance, farewell: Farewell, prompting: Prompting
    ) -> None:
        self._settings = settings
        self._utterance = utterance
        self._farewell = farewell
        self._prompting = prompting
        self._wanted_since: float | None = None  # loop time since which interim words ask for the floor
        self._unexplained_since: float | None = None  # begin of voice beyond the words so far
        self.language = settings.language
        self.lists = word_lists(settings.language, settings.words)

    def speak(self, language: str) -> None:
        """Sets the language of words and word lists."""
        self.language = language
        self.lists = word_lists(language, self._settings.words)

    # Meanings -----------------------------------------------------------------------------------------------

    @property
    def hush_s(self) -> float:
        """Seconds of voice without a word after which the agent falls silent."""
        return min(self._settings.hush_ms, self._settings.barge_in_ms) / 1000

    def meaning(self, text: str, state: State) -> Overlap:
        """The meaning of `text`, said in `state`; a farewell has its own meanings."""
        if not self._farewell.under_way:
            return judge_overlap(text, self.language, self.lists)
        missed, ended = self._prompting.silences > 0, state not in _SPEAKING_ON
        return judge_farewell(text, self.language, self.lists, missed=missed, ended=ended)

    def wants_nothing(self, text: str, state: State) -> bool:
        """Whether `text` is a backchannel or has no meaning."""
        return self.meaning(text, state).kind in (OverlapKind.BACKCHANNEL, OverlapKind.NOTHING)

    def only_listens(self, text: str, state: State) -> bool:
        """Whether `text` is a backchannel on its own: "okay", not "okay so", after which more follows."""
        meaning = self.meaning(text, state)
        light = meaning.light_words and not self._farewell.under_way
        return meaning.kind is OverlapKind.BACKCHANNEL and not light

    def wants_floor(
        self, text: str, state: State, *, confidence: float = 0.0, answers: Expected | None = None
    ) -> bool:
        """Whether `text` asks for the floor. `confidence`: 0 for a recogniser without one. `answers`: the
        answers expected of a caller who has stopped speaking; a single word that is one of them counts."""
        if 0.0 < confidence < UNSURE:
            return False  # probably another person in the room
        meaning = self.meaning(text, state)
        if meaning.kind is OverlapKind.STOP:
            return True
        there = self._farewell.under_way and self._prompting.silences > 0
        enough = meaning.content_words >= ENOUGH_WORDS
        enough = enough or (answers is not None and (there or text in answers.phrases))
        return meaning.kind is OverlapKind.CONTENT and enough

    # While the agent speaks ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begins the judgement of a voice over the agent."""
        self._utterance.partial = ""
        self._unexplained_since = self._wanted_since = None

    def pause(self) -> None:
        """Notes that the voice over the agent stopped."""
        self._unexplained_since = None

    def note_words(self, text: str, state: State) -> None:
        """Notes the words so far. The first backchannel accounts for the voice until then."""
        if not self.only_listens(self._utterance.partial, state):
            self._unexplained_since = None
        self._utterance.partial = text

    def judge_partial(self, text: str, state: State, now: float) -> Inner | None:
        """Judges an interim transcript: ALARMED at once for "stop" and its like, after `STANDS_S` for other
        words that ask for the floor; None: no change."""
        if text == self._utterance.partial and self._wanted_since is None:
            return None  # judged before
        self.note_words(text, state)
        if not self.wants_floor(text, state):
            self._wanted_since = None
            return None
        if self._wanted_since is None:
            self._wanted_since = now
        stop = self.meaning(text, state).kind is OverlapKind.STOP
        return Inner.ALARMED if stop or now - self._wanted_since >= STANDS_S else None

    def judge_barge_in(self, state: State) -> Inner:
        """Judges a voice of `barge_in_ms`: SPARED if the words so far are a backchannel, since the voice may
        repeat it; ALARMED otherwise."""
        return Inner.SPARED if self.only_listens(self._utterance.partial, state) else Inner.ALARMED

    def judge_lasting_voice(self, state: State, now: float) -> Inner | None:
        """Judges a voice that goes on over the lowered volume: ALARMED, unless the words so far are a
        backchannel and the voice has gone on for less than `hush_s` since; None: no change."""
        if self._unexplained_since is None:
            self._unexplained_since = now
        more = now - self._unexplained_since >= self.hush_s and not self._farewell.under_way
        return Inner.ALARMED if more or not self.only_listens(self._utterance.partial, state) else None

    # While the agent is silenced, or waits for the words of a voice that stopped ----------------------------

    def judge(self, state: State, turn: int, now: float) -> Inner:
        """Chooses the inner event of an overlap check. A voice that is not understood does not keep a
        farewell silent for longer than `halt_ms`."""
        parting = self._farewell.under_way
        if state in (State.JUDGING, State.DOUBTING):
            overdue = Inner.SPARED if parting else Inner.WORDS_OVERDUE
            return overdue if now >= self._utterance.overdue_at else Inner.OVERLAP_CHECK_DUE
        if now - self._utterance.heard_since < self._settings.halt_ms / 1000:
            return Inner.OVERLAP_CHECK_DUE
        if not parting:
            return Inner.INTERRUPTED
        if state is not State.HALTED or self._utterance.is_understood(turn):
            return Inner.OVERLAP_CHECK_DUE
        return Inner.NOISE_HEARD

    def relents(self, text: str, state: State, now: float) -> bool:
        """Whether the voice stopped `RELENT_AFTER_S` ago and `text` is a backchannel: the agent may go on
        before the final transcript."""
        ended = now - self._utterance.silent_since >= RELENT_AFTER_S
        return ended and self.wants_nothing(text, state)
