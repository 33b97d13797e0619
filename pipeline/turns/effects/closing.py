"""Effects of farewells, which the caller may interrupt, and of last words, which the caller cannot."""

from __future__ import annotations

from pipeline.result import EndReason
from pipeline.turns.closing import CLOSING_LIMIT_S
from pipeline.turns.context import TurnContext
from pipeline.turns.events import CallConcluded, EndCall, Event, Inner, SayLastWords

# A farewell -------------------------------------------------------------------------------------------------


def begin_farewell(turns: TurnContext, event: Event | None, now: float) -> None:
    """Takes the agent's words under way for a farewell."""
    assert isinstance(event, CallConcluded)
    turns.farewell.begin(event.reason, now)


def say_farewell(turns: TurnContext, event: Event | None, now: float) -> None:
    """Plays a goodbye to a silent caller, who may still interrupt it."""
    turns.prompting.silences += 1
    turns.speculation.answered = ""
    turns.next_turn()
    turns.farewell.begin(EndReason.SILENCE, now)
    turns.actions.append(SayLastWords(turns.turn, EndReason.SILENCE, final=False))


def linger(turns: TurnContext, event: Event | None, now: float) -> None:
    """Keeps the line up for `linger_ms` after the last words were sent, until the far end has played them."""
    turns.arm(now + turns.settings.linger_ms / 1000, Inner.CLOSING_ENDED)


def await_words(turns: TurnContext, event: Event | None, now: float) -> None:
    """Keeps the line up until the words of a voice over the last words are known."""
    utterance, settings = turns.utterance, turns.settings
    known_at = utterance.silent_since + settings.overlap_ms / 1000
    if utterance.words is None:  # a final transcript was asked for
        known_at = max(known_at, utterance.overdue_at)
    turns.arm(max(now + settings.linger_ms / 1000, known_at), Inner.CLOSING_ENDED)


# Last words -------------------------------------------------------------------------------------------------


def conclude(turns: TurnContext, event: Event | None, now: float) -> None:
    """Takes the agent's words under way for its last, which the caller cannot interrupt."""
    assert isinstance(event, CallConcluded)
    turns.farewell.reason = event.reason
    turns.arm(now + CLOSING_LIMIT_S, Inner.CLOSING_ENDED)


def _close(turns: TurnContext, reason: EndReason, now: float) -> None:
    turns.next_turn()
    turns.farewell.reason = reason
    turns.actions.append(SayLastWords(turns.turn, reason))
    turns.arm(now + CLOSING_LIMIT_S, Inner.CLOSING_ENDED)


def apologise(turns: TurnContext, event: Event | None, now: float) -> None:
    """Apologises for a failure of the agent or its voice, and ends the call."""
    _close(turns, EndReason.ENGINE_ERROR, now)


def say_goodbye(turns: TurnContext, event: Event | None, now: float) -> None:
    """Ends the call with a goodbye to a silent caller who interrupted `MAX_RETRACTED` farewells."""
    _close(turns, EndReason.SILENCE, now)


def time_out(turns: TurnContext, event: Event | None, now: float) -> None:
    """Ends the call with a goodbye after `max_duration_s`."""
    _close(turns, EndReason.MAX_DURATION, now)


# The end ----------------------------------------------------------------------------------------------------


def end(turns: TurnContext, event: Event | None, now: float) -> None:
    """Ends the call for the reason of the farewell."""
    turns.actions.append(EndCall(turns.farewell.reason))


def break_off(turns: TurnContext, event: Event | None, now: float) -> None:
    """Ends the call after the far end has ended it."""
    turns.farewell.reason = EndReason.FAR_END
    end(turns, event, now)
