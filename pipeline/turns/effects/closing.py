"""Effects of farewells, which the caller may stop, and of last words, which nothing stops."""

from __future__ import annotations

from pipeline.result import EndReason
from pipeline.turns.closing import CLOSING_LIMIT_S
from pipeline.turns.context import TurnContext
from pipeline.turns.events import CallConcluded, EndCall, Event, Inner, SayLastWords

# A farewell -------------------------------------------------------------------------------------------------


def begin_farewell(turns: TurnContext, event: Event | None, now: float) -> None:
    """The agent has said its last words, which are on their way to the caller."""
    assert isinstance(event, CallConcluded)
    turns.farewell.begin(event.reason, now)


def say_farewell(turns: TurnContext, event: Event | None, now: float) -> None:
    """The caller does not answer: the agent says goodbye."""
    turns.prompting.silences += 1
    turns.speculation.answered = ""
    turns.next_turn()
    turns.farewell.begin(EndReason.SILENCE, now)
    turns.actions.append(SayLastWords(turns.turn, EndReason.SILENCE, final=False))


def linger(turns: TurnContext, event: Event | None, now: float) -> None:
    """The last words were sent: the line stays up until they are heard."""
    turns.arm(now + turns.settings.linger_ms / 1000, Inner.CLOSING_ENDED)


def await_words(turns: TurnContext, event: Event | None, now: float) -> None:
    """Something was said over the last words: the line stays up until its words are known."""
    utterance, settings = turns.utterance, turns.settings
    known_at = utterance.silent_since + settings.overlap_ms / 1000
    if utterance.words is None:  # they were asked for
        known_at = max(known_at, utterance.overdue_at)
    turns.arm(max(now + settings.linger_ms / 1000, known_at), Inner.CLOSING_ENDED)


# Last words -------------------------------------------------------------------------------------------------


def conclude(turns: TurnContext, event: Event | None, now: float) -> None:
    """The agent's words under way are its last, and nothing stops them."""
    assert isinstance(event, CallConcluded)
    turns.farewell.reason = event.reason
    turns.arm(now + CLOSING_LIMIT_S, Inner.CLOSING_ENDED)


def _close(turns: TurnContext, reason: EndReason, now: float) -> None:
    turns.next_turn()
    turns.farewell.reason = reason
    turns.actions.append(SayLastWords(turns.turn, reason))
    turns.arm(now + CLOSING_LIMIT_S, Inner.CLOSING_ENDED)


def apologise(turns: TurnContext, event: Event | None, now: float) -> None:
    """The agent or its voice has failed."""
    _close(turns, EndReason.ENGINE_ERROR, now)


def say_goodbye(turns: TurnContext, event: Event | None, now: float) -> None:
    """The caller does not answer, and has stopped enough farewells."""
    _close(turns, EndReason.SILENCE, now)


def time_out(turns: TurnContext, event: Event | None, now: float) -> None:
    """The call has lasted for `max_duration_s`."""
    _close(turns, EndReason.MAX_DURATION, now)


# The end ----------------------------------------------------------------------------------------------------


def end(turns: TurnContext, event: Event | None, now: float) -> None:
    """Ends the call for the reason of the farewell."""
    turns.actions.append(EndCall(turns.farewell.reason))


def break_off(turns: TurnContext, event: Event | None, now: float) -> None:
    """The far end has ended the call."""
    turns.farewell.reason = EndReason.FAR_END
    end(turns, event, now)
