"""What turn-taking does while both speak: the effects of the rows from OVERLAPPING to DOUBTING.

Two stages, because at 240 ms nobody can tell "wait" from "mm-hm" from a cough, and waiting until one can is
felt as not being listened to: first the agent lowers its voice, then words decide. Words of the decoder stop
the agent for good. What is only probable (a partial result, a voice of 0.7 s without a word, "okay" that is
followed by more than its like) silences it, and its reply is kept: was it no more than a listener's, it
goes on where it was."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Final

from pipeline.text.word_lists import Overlap, OverlapKind, judge_farewell, judge_overlap
from pipeline.turns.events import (
    Decode,
    Event,
    FinalTranscript,
    Inner,
    Interrupt,
    ListenIn,
    PartialTranscript,
    SpeechStarted,
    State,
    VoiceSustained,
)
from pipeline.turns.noise import WordlessVoices

CHECK_S: Final = 0.01
"""Between two looks at what the recogniser makes of a voice over the agent: words are news for half a frame
at most."""

STANDS_S: Final = 0.04
"""For so long words of a partial result must have asked for the floor, but for those that say "stop"."""

ENOUGH_WORDS: Final = 2  # of content; one alone is too often a misheard noise
UNSURE: Final = 0.5  # final words with less are no confirmation, and over the agent nobody's

RELENT_AFTER_S: Final = 0.18
"""Silence after which a partial result that is a listener's "mm-hm" is the whole of it: a recogniser that
streams has caught up."""


class Overlaps(WordlessVoices, ABC):
    """Two voices at once."""

    # Judgements ---------------------------------------------------------------------------------------------

    def _judge_overlap(self, now: float) -> Inner:
        parting = self._farewell.under_way
        if self.state in (State.JUDGING, State.DOUBTING):
            overdue = Inner.SPARED if parting else Inner.WORDS_OVERDUE
            return overdue if now >= self._overdue_at else Inner.OVERLAP_CHECK_DUE
        lasted_s = now - self._heard_since
        if lasted_s < self._settings.halt_ms / 1000:
            return Inner.OVERLAP_CHECK_DUE
        if not parting:
            return Inner.INTERRUPTED
        if self.state is not State.HALTED or self._is_understood:
            return Inner.OVERLAP_CHECK_DUE
        self._leave_to_noise(lasted_s, now)  # a farewell is not kept silent by what nobody understands
        return Inner.NOISE_HEARD

    @property
    def _is_understood(self) -> bool:
        """There are words in what was said since the agent has had the floor."""
        words = self._words
        return words is not None and words.turn == self.turn and bool(words.text)

    def _meant(self, text: str) -> Overlap:
        """What `text` means over the agent's words; over a farewell what people say at parting means nothing
        more. Who was silent until then, and says as much as "yes", is there."""
        if not self._farewell.under_way:
            return judge_overlap(text, self._language, self._lists)
        ended = self.state not in (State.DUCKED, State.HALTED)
        missed = self._silences > 0
        return judge_farewell(text, self._language, self._lists, missed=missed, ended=ended)

    def _wants_floor(self, text: str, *, paused: bool, confidence: float = 0.0) -> bool:
        """Words over an agent that speaks. A `confidence` of 0 is that of an engine without one."""
        if 0.0 < confidence < UNSURE:
            return False  # somebody else in the room
        meant = self._meant(text)
        if meant.kind is OverlapKind.STOP:
            return True
        expected = self._expected
        answers = paused and expected is not None and text in expected.phrases
        answers = answers or (paused and self._farewell.under_way and self._silences > 0)
        return meant.kind is OverlapKind.CONTENT and (meant.content_words >= ENOUGH_WORDS or answers)

    def _wants_nothing(self, text: str) -> bool:
        return self._meant(text).kind in (OverlapKind.BACKCHANNEL, OverlapKind.NOTHING)

    def _only_listens(self, text: str) -> bool:
        """ "Okay", not "okay so", which goes on."""
        meant = self._meant(text)
        return meant.kind is OverlapKind.BACKCHANNEL and (not meant.light_words or self._farewell.under_way)

    @property
    def _hush_s(self) -> float:
        """Voice without a word that silences the agent."""
        return min(self._settings.hush_ms, self._settings.barge_in_ms) / 1000

    # The agent speaks ---------------------------------------------------------------------------------------

    def _duck(self, event: Event | None, now: float) -> None:
        self._overheard, self._unexplained_since, self._wanted_since = "", None, None
        self._heard_since = now - self._settings.duck_ms / 1000
        self._listen_in(event, now)

    def _listen_in(self, event: Event | None, now: float) -> None:
        self._actions.append(ListenIn(self.turn))
        self._arm(now + CHECK_S, Inner.OVERLAP_CHECK_DUE)

    def _suspect(self, event: Event | None, now: float) -> None:
        """A partial result: a word that asks for the floor is believed at once, others when they stand; what
        is done about it can be undone."""
        assert isinstance(event, PartialTranscript)
        if event.text == self._overheard and self._wanted_since is None:
            return  # judged before
        self._note_words(event.text)
        if not self._wants_floor(event.text, paused=False):
            self._wanted_since = None
            return
        if self._wanted_since is None:
            self._wanted_since = now
        stop = self._meant(event.text).kind is OverlapKind.STOP
        if stop or now - self._wanted_since >= STANDS_S:
            self._step(Inner.ALARMED, None, now)

    def _note_words(self, text: str) -> None:
        """What the voice says so far. Its first "mm-hm" explains it."""
        if not self._only_listens(self._overheard):
            self._unexplained_since = None
        self._overheard = text

    def _barge(self, event: Event | None, now: float) -> None:
        """Voice enough to fall silent for, that before it included; if that was "mm-hm", so may this."""
        listens = self._only_listens(self._overheard)
        self._step(Inner.SPARED if listens else Inner.ALARMED, None, now)

    def _insist(self, event: Event | None, now: float) -> None:
        """The voice goes on, and only "mm-hm" is a reason not to fall silent: for as long a voice again."""
        if self._unexplained_since is None:
            self._unexplained_since = now
        more = now - self._unexplained_since >= self._hush_s and not self._farewell.under_way
        if more or not self._only_listens(self._overheard):
            self._step(Inner.ALARMED, None, now)

    def _consider(self, event: Event | None, now: float) -> None:
        assert isinstance(event, FinalTranscript)
        self._words = event
        self._note_words(event.text)
        if self._turns_out_noise(event, now):
            return
        wanted = self._wants_floor(event.text, paused=False, confidence=event.confidence)
        self._step(Inner.INTERRUPTED if wanted else Inner.SPARED, None, now)

    def _consider_whole(self, event: Event | None, now: float) -> None:
        """The same, where the caller has said what they had to say."""
        assert isinstance(event, FinalTranscript)
        self._words = event
        wanted = self._wants_floor(event.text, paused=True, confidence=event.confidence)
        self._step(Inner.INTERRUPTED if wanted else Inner.SPARED, None, now)

    def _hold(self, event: Event | None, now: float) -> None:
        """Too short to lower a voice for; even so it may have been "no"."""
        self._note_pause(event, now)
        if self._voiced_ms >= self._settings.min_speech_ms:
            self._ask_whole()
            self._words = None
        self._spare(event, now)

    def _judge_pause(self, event: Event | None, now: float) -> None:
        self._note_pause(event, now)
        self._unexplained_since = None
        self._ask_whole()
        self._listen_in(event, now)

    def _ask_whole(self) -> None:
        self._actions.append(Decode(self.turn))
        patience_ms = self._settings.endpoint_ms + self._settings.stt_deadline_ms
        self._overdue_at = self._silent_since + patience_ms / 1000

    def _spare(self, event: Event | None, now: float) -> None:
        self._arm(self._silent_since + self._settings.overlap_ms / 1000, Inner.OVERLAP_FORGOTTEN)

    # The agent fell silent ----------------------------------------------------------------------------------

    def _halt(self, event: Event | None, now: float) -> None:
        sustained_s = self._hush_s
        if isinstance(event, SpeechStarted | VoiceSustained):  # over an answer that nobody has heard yet
            sustained_s = self._settings.duck_ms / 1000 if isinstance(event, VoiceSustained) else 0.0
        self._heard_since = now - sustained_s
        self._listen_in(event, now)

    def _believe(self, event: Event | None, now: float) -> None:
        """Words in a voice that has silenced the agent: any that carry content, but those of somebody else
        and those that are being answered."""
        assert isinstance(event, FinalTranscript)
        self._words = event
        if self.state is State.HALTED and self._turns_out_noise(event, now):
            return
        if self._answered:
            more = event.text.removeprefix(self._answered)
            goodbye = self._farewell.under_way and self._wants_nothing(more)
            meant = event.text not in ("", self._answered) and not goodbye
        else:
            kind = self._meant(event.text).kind
            sure = not 0.0 < event.confidence < UNSURE
            sure = sure and not (self._gather.taken and self._gather.is_said_by(event.text, self._lists))
            meant = sure and kind in (OverlapKind.STOP, OverlapKind.CONTENT)
        self._step(Inner.INTERRUPTED if meant else Inner.SPARED, None, now)

    def _relent(self, event: Event | None, now: float) -> None:
        """The voice has ended, and it was a listener's: go on before the last word on it is there."""
        assert isinstance(event, PartialTranscript)
        ended = now - self._silent_since >= RELENT_AFTER_S
        meant = self._meant(event.text).kind
        if ended and not self._answered and meant in (OverlapKind.BACKCHANNEL, OverlapKind.NOTHING):
            self._words = None
            self._overheard = event.text
            self._step(Inner.SPARED, None, now)

    def _resume(self, event: Event | None, now: float) -> None:
        """The agent goes on. If it was about to end, "yes" was an answer."""
        words = self._words.text if self._words is not None else self._overheard
        listens = self._meant(words).kind is OverlapKind.BACKCHANNEL
        answers = not self._answered and listens
        self._farewell.heard = True
        self._arm(now + self._settings.overlap_ms / 1000 if answers else now, Inner.OVERLAP_FORGOTTEN)

    def _believe_whole(self, event: Event | None, now: float) -> None:
        """The same for the last word on it; that of a broken recogniser is "somebody said something"."""
        assert isinstance(event, FinalTranscript)
        if event.failed and not self._farewell.under_way:
            self._words = event
            self._step(Inner.INTERRUPTED, None, now)
        else:
            self._believe(event, now)

    # The caller has the floor -------------------------------------------------------------------------------

    def _interrupt(self, event: Event | None, now: float) -> None:
        self._actions.append(Interrupt())
        self._hear(event, now)

    def _interrupt_with_words(self, event: Event | None, now: float) -> None:
        """They have already said what they want."""
        self._actions.append(Interrupt())
        self._next_turn()
        if self._words is not None:
            self._words = replace(self._words, turn=self.turn)
        self._arm(self._endpoint_at(), Inner.TURN_TAKEN)

    def _interrupt_unheard(self, event: Event | None, now: float) -> None:
        """Nobody knows what they said."""
        self._actions.append(Interrupt())
        self._words = None
        self._take_turn(event, now)

    # Shared with the effects of one voice -------------------------------------------------------------------

    @abstractmethod
    def _take_turn(self, event: Event | None, now: float) -> None:
        """The agent answers what was said."""
