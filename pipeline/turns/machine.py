"""The machine under `pipeline.turns.turns`: one state, one timer, a queue of actions; the table moves them.

What each effect of the table does is the business of the classes above it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from pipeline.agent import CallOpened
from pipeline.endpointing.policy import EndOfTurn, Endpointing
from pipeline.errors import LocalError
from pipeline.result import EndReason
from pipeline.settings import SessionSettings
from pipeline.speech import Expected
from pipeline.text.word_lists import word_lists
from pipeline.turns.events import (
    Action,
    CallConcluded,
    Effect,
    Event,
    FinalTranscript,
    Inner,
    KeyPressed,
    Kind,
    ReplyHeard,
    StartReply,
    State,
    TextWritten,
)
from pipeline.turns.gather import Gather
from pipeline.turns.table import TRANSITIONS

VOICE_CHECK_S: Final = 0.25

MAX_TAKEN_BACK: Final = 2
"""Farewells that a caller may stop in one call: nobody is held for ever."""

_NO_TURN: Final = -1


@dataclass(slots=True)
class Farewell:
    """`under_way`: the agent's words are its last. `heard`: the caller has heard something of the reply.
    `until`: they are not waited for any longer."""

    under_way: bool = False
    heard: bool = False
    until: float = 0.0
    taken_back: int = 0

    @property
    def may_be_taken_back(self) -> bool:
        """The caller has not stopped too many."""
        return self.taken_back < MAX_TAKEN_BACK

    def take_back(self) -> None:
        """The conversation goes on. A farewell of which nothing was heard was none."""
        self.taken_back += self.under_way and self.heard
        self.under_way = self.heard = False


class TurnMachine(ABC):
    """State, timer and queue of one conversation's turns."""

    def __init__(self, settings: SessionSettings, now: float) -> None:
        self.state = State.OPENING
        self.turn = 1
        self._settings = settings
        self._endpointing = Endpointing(settings)
        self._end_of_turn = EndOfTurn(
            threshold=settings.eot_threshold,
            action_delay_ms=settings.eot_action_delay_ms,
            timeout_ms=settings.eot_timeout_ms,
        )
        self._expected: Expected | None = None
        self._actions: deque[Action] = deque([StartReply(self.turn, CallOpened())])
        self._duration_at = now + settings.max_duration_s
        self._timer: tuple[float, Inner] | None = (now + settings.dead_air_ms / 1000, Inner.DEAD_AIR_NOTED)
        self._end_reason = EndReason.FAR_END
        self._farewell = Farewell()
        self._heard_since = now  # the utterance's first voice
        self._silent_since = self._voiced_until = now  # its last voiced sample; the same by sound alone
        self._voiced_ms = 0
        self._words: FinalTranscript | None = None
        self._overheard = ""  # of the voice over the agent, so far
        self._wanted_since: float | None = None  # from when on its partial results ask for the floor
        self._unexplained_since: float | None = None  # voice that the words so far do not account for
        self._asked_after = ""  # the words after which a voice that goes on was asked about
        self._asked_at = now  # when the words of the turn that may be over were asked for
        self._worded_at = now  # when the last new word of a voice that goes on was there
        self._voice_since = now  # when the voice that goes on began, after a pause too
        self._noisy_until = now
        self.cried_wolf = False  # a voice went on after a pause, without a word: the next needs one
        self._answered = ""  # the words whose answer nobody has heard yet
        self._guessed_from = _NO_TURN  # whose words are still awaited, though they are being answered
        self._wrong_guesses = 0  # in a row
        self._overdue_at = now  # when they are not waited for any more
        self._language = settings.language
        self._lists = word_lists(settings.language, settings.words)
        self._gather = Gather(settings.key_pause_ms / 1000)
        self._reprompt_at = now
        self._silences = 0  # reprompts in a row
        self._fillers = 0  # since the agent's own words of the reply under way
        self._filling = False  # the sound that comes next is a filler's

    # The outside --------------------------------------------------------------------------------------------

    def receive(self, event: Event, now: float) -> None:
        """Something happened. An event of an older turn is dropped. Raises `LocalError` for one that cannot
        happen in this state."""
        turn = getattr(event, "turn", self.turn)
        if turn != self.turn and not (isinstance(event, FinalTranscript) and turn == self._guessed_from):
            return
        kind = self._column(event)
        if kind is not None:
            self._step(kind, event, now)
        self._catch_up(now)

    def next_action(self) -> Action | None:
        """The next thing to do, in order; None when there is none."""
        return self._actions.popleft() if self._actions else None

    def timer_at(self) -> float | None:
        """When `handle_timer` is due; None: never."""
        if self.state is State.ENDED:
            return None
        limit = self._duration_at if not self._farewell.under_way else self._farewell.until
        at = self._timer[0] if self._timer is not None else limit
        return at if self.state is State.CLOSING else min(at, limit)

    def handle_timer(self, now: float) -> None:
        """Time has passed. Harmless when nothing is due."""
        if self.state in (State.CLOSING, State.ENDED):
            pass  # a timer of its own ends it
        elif not self._farewell.under_way and now >= self._duration_at:
            self._step(Inner.DURATION_REACHED, None, now)
        elif self._farewell.under_way and now >= self._farewell.until:
            self._step(Inner.FAREWELL_OVERDUE, None, now)
        self._catch_up(now)

    def expect(self, expected: Expected | None, *, masked: bool = False) -> None:
        """What the caller's next answer may be, for end-pointing and for keys; `masked`: nobody but the agent
        may see it."""
        self._expected = expected
        self._gather.expect(expected, masked=masked)

    @property
    def awaited(self) -> Expected | None:
        """What the caller's next words may be: the rest of what they have begun to key."""
        return self._gather.rest(self._expected)

    def is_trailing_key(self, key: str, now: float) -> bool:
        """`key` belongs to keys that are answered already: it is nobody's business any more. Ask once."""
        return not self._gather.has_begun and self._gather.belongs_to_last(key, now)

    def speak(self, language: str) -> None:
        """Both sides speak `language` from now on."""
        self._language = language
        self._lists = word_lists(language, self._settings.words)
        self._endpointing = Endpointing(replace(self._settings, language=language))

    # The machine --------------------------------------------------------------------------------------------

    def _column(self, event: Event) -> Kind | None:
        """What an event means where the agent says goodbye; None: nothing. A key over a farewell is one too
        many of an answer that was taken; that of somebody who was silent is their answer."""
        if isinstance(event, CallConcluded) and not event.final and self._farewell.may_be_taken_back:
            return Inner.FAREWELL_BEGAN
        if self._farewell.under_way:
            if isinstance(event, ReplyHeard):
                return Inner.FAREWELL_HEARD
            said_goodbye = isinstance(event, TextWritten) and self._wants_nothing(event.text)
            if said_goodbye or (isinstance(event, KeyPressed) and not self._silences):
                return None
        return type(event)

    def _step(self, kind: Kind, event: Event | None, now: float) -> None:
        try:
            state, effect = TRANSITIONS[self.state][kind]
        except KeyError:
            name = kind.name if isinstance(kind, Inner) else kind.__name__
            raise LocalError(f"{name} cannot happen in {self.state.name}") from None
        if state is not self.state:
            self.state = state
            self._timer = None
        self._perform(effect, event, now)

    def _catch_up(self, now: float) -> None:
        """Fires what is due; a timer armed in the past (words that came after their end-point) included."""
        while self._timer is not None and now >= self._timer[0]:
            inner = self._timer[1]
            self._timer = None
            self._step(self._judge(inner, now), None, now)

    def _next_turn(self) -> None:
        """What was under way is irrelevant from now on."""
        self.turn += 1
        self._guessed_from = _NO_TURN
        self._farewell.take_back()

    def _arm(self, at: float, inner: Inner) -> None:
        self._timer = (at, inner)

    def _endpoint_at(self) -> float:
        words = self._words
        if words is not None and words.p_eot is not None:
            return self._silent_since + self._end_of_turn.delay_ms(words.p_eot) / 1000
        text = words.text if words is not None else ""
        return self._silent_since + self._endpointing.delay_ms(text, self.awaited) / 1000

    @abstractmethod
    def _wants_nothing(self, text: str) -> bool:
        """Words over the agent that want nothing of it."""

    @abstractmethod
    def _judge(self, inner: Inner, now: float) -> Inner:
        """The inner event that really happened when the timer of `inner` is due."""

    @abstractmethod
    def _perform(self, effect: Effect, event: Event | None, now: float) -> None:
        """Does what the table says."""
