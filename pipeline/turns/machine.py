"""The turn machine: runs the transitions of `pipeline.turns.table`, which explains its states.

The machine has no audio, no task and no clock: `receive(event, now)` takes an event, `actions` queues what
is to be done, `timer_at()` is the time of the next `handle_timer(now)`. A test can play a whole call in a
millisecond and reproduce a race as an order of events."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Final

from pipeline.agent import CallOpened, Opening
from pipeline.endpointing.policy import EndOfTurn, Endpointing
from pipeline.errors import LocalError
from pipeline.settings import SessionSettings
from pipeline.speech import Expected
from pipeline.turns.closing import Farewell
from pipeline.turns.events import (
    Action,
    CallConcluded,
    Event,
    FinalTranscript,
    Inner,
    KeyPressed,
    Kind,
    ReplyFailed,
    ReplyHeard,
    StartReply,
    State,
    TextWritten,
)
from pipeline.turns.gather import Gather
from pipeline.turns.judgements import JUDGEMENTS
from pipeline.turns.noise import NoiseEvidence
from pipeline.turns.overlap import OverlapJudge
from pipeline.turns.prompting import Prompting
from pipeline.turns.speculation import NO_TURN, Speculation
from pipeline.turns.table import TRANSITIONS
from pipeline.turns.utterance import CallerUtterance, word_count

CALL_OPENED: Final = CallOpened()


class Turns:
    """The turn-taking of one conversation: one state, one timer, a queue of actions, and a record for each
    subject that turn-taking remembers. Begins in OPENING with the action `StartReply(opening)`."""

    def __init__(self, settings: SessionSettings, now: float, opening: Opening = CALL_OPENED) -> None:
        self.state = State.OPENING
        self.turn = 1
        self.settings = settings
        self.endpointing = Endpointing(settings)
        self.actions: deque[Action] = deque([StartReply(self.turn, opening)])
        self.utterance = CallerUtterance(now)
        self.noise = NoiseEvidence(self.utterance, now)
        self.speculation = Speculation()
        self.prompting = Prompting(settings, now)
        self.farewell = Farewell()
        self.overlap = OverlapJudge(settings, self.utterance, self.farewell, self.prompting)
        self.gather = Gather(settings.key_pause_ms / 1000)
        self._end_of_turn = EndOfTurn(
            threshold=settings.eot_threshold,
            action_delay_ms=settings.eot_action_delay_ms,
            timeout_ms=settings.eot_timeout_ms,
        )
        self._duration_at = now + settings.max_duration_s
        self._timer: tuple[float, Inner] | None = (now + settings.dead_air_ms / 1000, Inner.DEAD_AIR_NOTED)

    # Called by the session ----------------------------------------------------------------------------------

    def receive(self, event: Event, now: float) -> None:
        """Takes an event that happened at loop time `now`; an event of an older turn is dropped. Raises
        `LocalError` for an event that the table does not allow in the current state."""
        turn = getattr(event, "turn", self.turn)
        guessed = isinstance(event, FinalTranscript) and turn == self.speculation.guessed_from
        if turn != self.turn and not guessed:
            return
        kind = self._column(event)
        if kind is not None:
            self._step(kind, event, now)
        self._catch_up(now)

    def timer_at(self) -> float | None:
        """Loop time at which `handle_timer` is due; None: never."""
        if self.state is State.ENDED:
            return None
        limit = self.farewell.until if self.farewell.under_way else self._duration_at
        at = self._timer[0] if self._timer is not None else limit
        return at if self.state is State.CLOSING else min(at, limit)

    def handle_timer(self, now: float) -> None:
        """Fires what is due at loop time `now`. No effect when nothing is."""
        if self.state in (State.CLOSING, State.ENDED):
            pass  # the timer of CLOSING ends the call; the maximum duration no longer counts
        elif self.farewell.under_way:
            if now >= self.farewell.until:
                self._step(Inner.FAREWELL_OVERDUE, None, now)
        elif now >= self._duration_at:
            self._step(Inner.DURATION_REACHED, None, now)
        self._catch_up(now)

    def expect(self, expected: Expected | None, *, masked: bool = False) -> None:
        """Sets the answers expected of the caller, for end-pointing and for keys; `masked`: nobody but the
        agent may see the answer."""
        self.gather.expect(expected, masked=masked)

    def speak(self, language: str) -> None:
        """Sets the language of end-pointing and of overlap judgements from now on."""
        self.overlap.speak(language)
        self.endpointing = Endpointing(replace(self.settings, language=language))

    def says_more(self, text: str) -> bool:
        """Whether `text` has more words than the agent is answering or, in a pause, than are known of the
        caller's turn."""
        paused = self.state is State.ENDPOINTING
        known = self.utterance.known if paused else self.speculation.answered
        return word_count(text) > word_count(known)

    # Called by effects (`TurnContext`) ----------------------------------------------------------------------

    def next_turn(self) -> None:
        """Begins another turn: events of the turn before are dropped from now on."""
        self.turn += 1
        self.speculation.guessed_from = NO_TURN
        if self.farewell.under_way:
            self.farewell.retract(heard=self.prompting.reply_heard)
        self.prompting.reply_heard = False

    def arm(self, at: float, inner: Inner) -> None:
        """Sets the state's timer to the loop time `at`, when `inner` is due."""
        self._timer = (at, inner)

    def endpoint_at(self) -> float:
        """Loop time at which the caller's turn ends if they stay silent."""
        utterance, words = self.utterance, self.utterance.words
        if words is not None and words.p_eot is not None:
            return utterance.silent_since + self._end_of_turn.delay_ms(words.p_eot) / 1000
        delay_ms = self.endpointing.delay_ms(utterance.text, self.gather.awaited)
        return utterance.silent_since + delay_ms / 1000

    # The machine --------------------------------------------------------------------------------------------

    def _column(self, event: Event) -> Kind | None:
        """The table's column for `event`; None: the event is ignored. A farewell has columns of its own. A
        key over a farewell is taken for a surplus digit of the last answer, unless the caller was silent
        before the farewell; that key is an answer."""
        if isinstance(event, ReplyFailed) and self.prompting.may_fail:
            return Inner.TURN_FAILED
        if isinstance(event, CallConcluded) and not event.final and self.farewell.may_be_retracted:
            return Inner.FAREWELL_BEGAN
        if self.farewell.under_way:
            if isinstance(event, ReplyHeard):
                return Inner.FAREWELL_HEARD
            if isinstance(event, TextWritten) and self.overlap.wants_nothing(event.text, self.state):
                return None
            if isinstance(event, KeyPressed) and not self.prompting.silences:
                return None
        return type(event)

    def _step(self, kind: Kind, event: Event | None, now: float) -> None:
        """Makes the table's transition for `kind`, and then those for inner events that effects return."""
        following: Kind | None = kind
        while following is not None:
            cell = TRANSITIONS[self.state].get(following)
            if cell is None:
                name = following.name if isinstance(following, Inner) else following.__name__
                raise LocalError(f"{name} cannot happen in {self.state.name}")
            state, effect = cell
            if state is not self.state:
                self.state = state
                self._timer = None
            following = effect(self, event, now)

    def _catch_up(self, now: float) -> None:
        """Fires the timer while it is due. A timer may be armed in the past, by words that came after their
        end-point."""
        while self._timer is not None and now >= self._timer[0]:
            inner = self._timer[1]
            self._timer = None
            judgement = JUDGEMENTS.get(inner)
            self._step(judgement(self, now) if judgement is not None else inner, None, now)
