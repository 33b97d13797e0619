"""What a voice over the agent means: whether it asks for the floor, only listens, or is no voice.

Two stages, because at 240 ms nobody can tell "wait" from "mm-hm" from a cough, and waiting until one can is
felt as not being listened to: first the agent lowers its voice, then words decide. Words of the decoder stop
the agent for good. What is only probable (a partial result, a voice of 0.7 s without a word, "okay" that is
followed by more than its like) silences the agent, and its reply is kept: was the voice no more than a
listener's, the agent goes on where it was."""

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
"""For so long words of a partial result must have asked for the floor, but for those that say "stop"."""

ENOUGH_WORDS: Final = 2  # of content; one alone is too often a misheard noise

RELENT_AFTER_S: Final = 0.18
"""Silence after which a partial result that is a listener's "mm-hm" is the whole of it: a recogniser that
streams has caught up."""

_SPEAKING_ON: Final = (State.DUCKED, State.HALTED)


class OverlapJudge:
    """Judges the words of `utterance` over the agent's; over a `farewell` what people say at parting means
    nothing more. A caller who was silent until then (`prompting`), and says as much as "yes", is there."""

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
        self._wanted_since: float | None = None  # from when on partial results ask for the floor
        self._unexplained_since: float | None = None  # voice that the words so far do not account for
        self.language = settings.language
        self.lists = word_lists(settings.language, settings.words)

    def speak(self, language: str) -> None:
        """Both sides speak `language` from now on."""
        self.language = language
        self.lists = word_lists(language, self._settings.words)

    # Meanings -----------------------------------------------------------------------------------------------

    @property
    def hush_s(self) -> float:
        """Voice without a word that silences the agent."""
        return min(self._settings.hush_ms, self._settings.barge_in_ms) / 1000

    def meaning(self, text: str, state: State) -> Overlap:
        """What `text` means, said in `state`."""
        if not self._farewell.under_way:
            return judge_overlap(text, self.language, self.lists)
        missed, ended = self._prompting.silences > 0, state not in _SPEAKING_ON
        return judge_farewell(text, self.language, self.lists, missed=missed, ended=ended)

    def wants_nothing(self, text: str, state: State) -> bool:
        """`text` wants nothing of the agent."""
        return self.meaning(text, state).kind in (OverlapKind.BACKCHANNEL, OverlapKind.NOTHING)

    def only_listens(self, text: str, state: State) -> bool:
        """`text` is "okay", not "okay so", which goes on."""
        meaning = self.meaning(text, state)
        light = meaning.light_words and not self._farewell.under_way
        return meaning.kind is OverlapKind.BACKCHANNEL and not light

    def wants_floor(
        self, text: str, state: State, *, confidence: float = 0.0, answers: Expected | None = None
    ) -> bool:
        """`text` asks for the floor. A `confidence` of 0 is that of a recogniser without one. `answers`: what
        a single word may answer, given where the caller has said all that they had to say."""
        if 0.0 < confidence < UNSURE:
            return False  # somebody else in the room
        meaning = self.meaning(text, state)
        if meaning.kind is OverlapKind.STOP:
            return True
        there = self._farewell.under_way and self._prompting.silences > 0
        enough = meaning.content_words >= ENOUGH_WORDS
        enough = enough or (answers is not None and (there or text in answers.phrases))
        return meaning.kind is OverlapKind.CONTENT and enough

    # Over an agent that speaks ------------------------------------------------------------------------------

    def begin(self) -> None:
        """A voice over the agent has lasted long enough to listen to it."""
        self._utterance.partial = ""
        self._unexplained_since = self._wanted_since = None

    def pause(self) -> None:
        """The voice over the agent has fallen silent."""
        self._unexplained_since = None

    def note_words(self, text: str, state: State) -> None:
        """`text` is what the voice says so far. A listener's first "mm-hm" explains the voice."""
        if not self.only_listens(self._utterance.partial, state):
            self._unexplained_since = None
        self._utterance.partial = text

    def judge_partial(self, text: str, state: State, now: float) -> Inner | None:
        """A word that says "stop" is believed at once, others when they stand; None: go on as before."""
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
        """The voice has lasted long enough to silence the agent; if the voice before it was "mm-hm", so may
        this voice be."""
        return Inner.SPARED if self.only_listens(self._utterance.partial, state) else Inner.ALARMED

    def judge_lasting_voice(self, state: State, now: float) -> Inner | None:
        """The voice goes on. Only "mm-hm" is a reason not to fall silent, for `hush_s` after it; None: go on
        as before."""
        if self._unexplained_since is None:
            self._unexplained_since = now
        more = now - self._unexplained_since >= self.hush_s and not self._farewell.under_way
        return Inner.ALARMED if more or not self.only_listens(self._utterance.partial, state) else None

    # Over an agent that has fallen silent, or when its words are being waited for ---------------------------

    def judge(self, state: State, turn: int, now: float) -> Inner:
        """What follows when it is time to look at the voice again. A farewell is not kept silent by a voice
        that nobody understands."""
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
        """The voice has ended, and `text` is a listener's: the agent may go on before the recogniser's
        answer."""
        ended = now - self._utterance.silent_since >= RELENT_AFTER_S
        return ended and self.wants_nothing(text, state)
