"""Turn-taking: the table, and calls played through it in virtual time."""

from __future__ import annotations

from inspect import signature
from itertools import pairwise
from types import FunctionType
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.agent import CallOpened, UserKeyed, UserSaid, UserSilent
from pipeline.errors import LocalError
from pipeline.result import EndReason
from pipeline.settings import SessionSettings
from pipeline.speech import Expected
from pipeline.turns.effects import closing, gather, noise, overlap, prompting, speculation, utterance
from pipeline.turns.events import (
    AcceptSpeech,
    Action,
    AskAgain,
    BargedIn,
    CallConcluded,
    ConfirmTurn,
    Decode,
    Discard,
    EndCall,
    Event,
    FinalTranscript,
    Inner,
    Interrupt,
    KeyPressed,
    LegEnded,
    PartialTranscript,
    PlayFiller,
    RejectAsNoise,
    ReplyFailed,
    ReplyHeard,
    RequestPartial,
    SayLastWords,
    SpeechContinued,
    SpeechRanOut,
    SpeechReady,
    SpeechStarted,
    SpeechStopped,
    StartReply,
    State,
    TextWritten,
    WaitBegan,
)
from pipeline.turns.machine import Turns
from pipeline.turns.table import TRANSITIONS

SETTINGS = SessionSettings()
FROM_THE_CALLER = (SpeechStarted, SpeechStopped, SpeechContinued, BargedIn, KeyPressed, TextWritten, LegEnded)
FROM_A_REPLY = (WaitBegan, SpeechReady, SpeechRanOut, ReplyHeard, ReplyFailed, CallConcluded)
WITH_A_REPLY = (
    State.OPENING,
    State.PRESUMING,
    State.WAITING,
    State.REPLYING,
    State.SPEAKING,
    State.OVERLAPPING,
    State.OVERLAPPED,
    State.DUCKED,
    State.JUDGING,
    State.HALTED,
    State.DOUBTING,
    State.CLOSING,
)


def actions(turns: Turns) -> list[Action]:
    taken = list(turns.actions)
    turns.actions.clear()
    return taken


def reply_in(turns: Turns) -> StartReply:
    """The only action, which lets the agent answer."""
    (reply,) = actions(turns)
    assert isinstance(reply, StartReply)
    return reply


def at(state: State) -> Turns:
    """A machine at time 0 (-ish) in `state`, by the way that leads there."""
    turns = Turns(SETTINGS, 0.0)
    actions(turns)
    if state is State.OPENING:
        return turns
    turns.receive(SpeechReady(turns.turn), 0.0)
    ways: dict[State, list[Event]] = {
        State.SPEAKING: [],
        State.OVERLAPPING: [SpeechStarted()],
        State.OVERLAPPED: [SpeechStarted(), SpeechStopped(0.0, 100)],
        State.WAITING: [SpeechRanOut(1), WaitBegan(1, 5.0)],
        State.PRESUMING: [
            ReplyHeard(1), SpeechStarted(), SpeechStopped(0.0, 400), FinalTranscript(2, "hello", 0.8),
        ],
        State.DUCKED: [SpeechContinued()],
        State.JUDGING: [SpeechContinued(), SpeechStopped(0.0, 300)],
        State.HALTED: [BargedIn()],
        State.DOUBTING: [BargedIn(), SpeechStopped(0.0, 750)],
        State.LISTENING: [ReplyHeard(1)],
        State.HEARING: [ReplyHeard(1), SpeechStarted()],
        State.ENDPOINTING: [ReplyHeard(1), SpeechStarted(), SpeechStopped(0.0, 400)],
        State.KEYING: [ReplyHeard(1), KeyPressed("1")],
        State.LEAVING: [CallConcluded(1, EndReason.AGENT), ReplyHeard(1)],
        State.CLOSING: [CallConcluded(1, EndReason.AGENT, final=True)],
        State.ENDED: [LegEnded()],
        State.REPLYING: [SpeechRanOut(1)],
    }  # fmt: skip
    for event in ways[state]:
        turns.receive(event, 0.0)
    actions(turns)
    assert turns.state is state
    return turns


def run_until(turns: Turns, now: float) -> None:
    """Fires every timer up to `now`."""
    while (due := turns.timer_at()) is not None and due <= now:
        turns.handle_timer(due)


# The table --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("kind", FROM_THE_CALLER)
def test_what_the_caller_does_is_thought_of_in_every_state(state: State, kind: type) -> None:
    assert kind in TRANSITIONS[state]


@pytest.mark.parametrize("state", WITH_A_REPLY)
@pytest.mark.parametrize("kind", FROM_A_REPLY)
def test_what_a_reply_does_is_thought_of_wherever_there_is_one(state: State, kind: type) -> None:
    assert kind in TRANSITIONS[state]


def test_the_table_knows_every_event_and_every_effect_is_used() -> None:
    kinds = {kind for row in TRANSITIONS.values() for kind in row}
    assert kinds == {*get_args(Event), *Inner}
    written = {
        function
        for module in (closing, gather, noise, overlap, prompting, speculation, utterance)
        for function in vars(module).values()
        if isinstance(function, FunctionType)
        and [*signature(function).parameters] == ["turns", "event", "now"]
    }
    assert {effect for row in TRANSITIONS.values() for _, effect in row.values()} == written


@pytest.mark.parametrize("state", [state for state in State if state is not State.ENDED])
def test_every_state_but_the_last_has_a_way_out_by_time_alone(state: State) -> None:
    turns = at(state)
    for _ in range(400):
        due = turns.timer_at()
        assert due is not None
        turns.handle_timer(due)
        actions(turns)
        if turns.state is State.ENDED:
            return
    pytest.fail(f"still {turns.state}")


def test_an_empty_cell_is_a_bug_and_says_so() -> None:
    with pytest.raises(LocalError, match="ReplyHeard cannot happen in LISTENING"):
        at(State.LISTENING).receive(ReplyHeard(1), 0.0)


@pytest.mark.parametrize(
    "event",
    [FinalTranscript(0, "old"), PartialTranscript(0, "old"), SpeechReady(0), SpeechRanOut(0), ReplyHeard(0),
     ReplyFailed(0), CallConcluded(0, EndReason.AGENT)],
)  # fmt: skip
@pytest.mark.parametrize("state", State)
def test_an_event_of_an_older_turn_is_dropped(state: State, event: Event) -> None:
    turns = at(state)
    due = turns.timer_at()
    turns.receive(event, 0.0)
    assert (turns.state, turns.timer_at(), actions(turns)) == (state, due, [])


# One turn ---------------------------------------------------------------------------------------------------


def test_the_agent_has_the_first_word() -> None:
    turns = Turns(SETTINGS, 0.0)
    assert actions(turns) == [StartReply(1, CallOpened())]


def test_decoding_begins_in_the_pause_and_the_answer_before_its_end() -> None:
    turns = at(State.HEARING)
    turns.receive(SpeechStopped(10.0, 400), 10.05)
    assert turns.timer_at() == pytest.approx(10.1)
    turns.handle_timer(10.1)
    assert actions(turns) == [Decode(turns.turn), RequestPartial(turns.turn)]
    turns.receive(FinalTranscript(turns.turn, "hello there", 0.8), 10.3)
    reply = reply_in(turns)
    assert (reply.turn, reply.event, reply.presumed) == (turns.turn, UserSaid("hello there", 0.8), True)
    assert reply.silent_since == 10.0
    assert reply.endpoint_due == pytest.approx(10.5)
    assert turns.timer_at() == pytest.approx(10.5)
    turns.handle_timer(10.5)
    (settle,) = actions(turns)
    assert isinstance(settle, ConfirmTurn)
    assert settle.endpoint_due == pytest.approx(10.5)
    assert turns.state is State.REPLYING


def guessed() -> tuple[Turns, int]:
    """A turn that is presumed to be over by a partial result, and whose words are still awaited."""
    turns = at(State.ENDPOINTING)
    turns.handle_timer(0.1)
    asked = turns.turn
    turns.receive(PartialTranscript(asked, "hello"), 0.12)
    assert turns.state is State.ENDPOINTING
    actions(turns)
    turns.receive(PartialTranscript(asked, "hello there"), 0.18)
    return turns, asked


def test_a_partial_result_is_answered_before_the_final_one() -> None:
    turns, asked = guessed()
    reply = reply_in(turns)
    assert (reply.presumed, turns.state) == (True, State.PRESUMING)
    turns.receive(FinalTranscript(asked, "hello there", 0.9), 0.35)
    assert turns.timer_at() == pytest.approx(0.5)
    turns.handle_timer(0.5)
    assert [type(action) for action in actions(turns)] == [ConfirmTurn]


def test_a_partial_result_counts_for_what_was_heard_not_for_the_time_that_passed() -> None:
    """The caller's packets are 40 ms late: the silence that the recogniser knows is that much shorter."""
    turns = at(State.ENDPOINTING)
    turns.handle_timer(0.1)
    states = []
    for moment, heard_until in ((0.185, 0.14), (0.205, 0.16), (0.225, 0.18 - 1e-9)):
        turns.receive(PartialTranscript(turns.turn, "hello there", heard_until), moment)
        states.append(turns.state)
    assert states == [State.ENDPOINTING, State.ENDPOINTING, State.PRESUMING]


def test_the_recogniser_is_looked_at_when_its_words_may_be_the_whole_and_then_often() -> None:
    turns = at(State.ENDPOINTING)
    turns.handle_timer(0.1)
    actions(turns)
    assert turns.timer_at() == pytest.approx(0.185)
    run_until(turns, 0.22)
    assert actions(turns) == [RequestPartial(turns.turn)] * 2


@pytest.mark.parametrize(("text", "confidence"), [("hello bear", 0.9), ("hello there", 0.2)])
def test_a_guess_is_withdrawn_when_the_final_words_are_others_or_unsure(text: str, confidence: float) -> None:
    turns, asked = guessed()
    actions(turns)
    turns.receive(FinalTranscript(asked, text, confidence), 0.35)
    withdrawn, again = actions(turns)
    assert withdrawn == Interrupt()
    assert isinstance(again, StartReply)
    assert again.event == UserSaid(text, confidence)


def test_a_guess_is_withdrawn_when_its_words_are_doubtful() -> None:
    turns, asked = guessed()
    actions(turns)
    turns.receive(FinalTranscript(asked, "hello there", 0.7, doubtful=True), 0.35)
    withdrawn, again = actions(turns)
    assert withdrawn == Interrupt()
    assert isinstance(again, StartReply)
    assert again.event == UserSaid("hello there", 0.7, doubtful=True)


def test_a_recogniser_whose_partial_results_lag_is_not_believed_again() -> None:
    turns = at(State.ENDPOINTING)
    for moment in (0.0, 10.0, 20.0):
        turns.receive(SpeechStarted(), moment)
        turns.receive(SpeechStopped(moment + 1.0, 900), moment + 1.05)
        run_until(turns, moment + 1.1)
        asked = turns.turn
        turns.receive(PartialTranscript(asked, "hello"), moment + 1.2)
        states = turns.state
        turns.receive(FinalTranscript(asked, "hello there", 0.9), moment + 1.3)
    assert states is State.ENDPOINTING


def test_a_partial_stop_after_the_voice_has_ended_silences_too() -> None:
    turns = at(State.JUDGING)
    turns.receive(PartialTranscript(turns.turn, "stop"), 0.3)
    assert turns.state is State.DOUBTING


def test_a_guess_stands_where_the_recogniser_fails_or_is_late() -> None:
    turns, asked = guessed()
    turns.receive(FinalTranscript(asked, "", failed=True), 0.35)
    run_until(turns, 0.5)
    assert turns.state is State.REPLYING
    late, _ = guessed()
    run_until(late, 0.5 + SETTINGS.stt_deadline_ms / 1000)
    assert late.state is State.REPLYING


def test_who_goes_on_withdraws_what_was_presumed() -> None:
    turns = at(State.PRESUMING)
    turns.receive(SpeechStarted(), 0.4)
    assert actions(turns) == [Interrupt()]
    assert turns.state is State.HEARING


@pytest.mark.parametrize(("text", "p"), [("my number is", None), ("hello there", 0.3), ("", None)])
def test_no_answer_is_prepared_for_a_turn_that_is_not_over(text: str, p: float | None) -> None:
    turns = at(State.ENDPOINTING)
    turns.receive(FinalTranscript(turns.turn, text, 0.8, p_eot=p), 0.2)
    assert turns.state is State.ENDPOINTING


def test_an_agent_that_waits_is_not_late_and_ends_its_wait() -> None:
    turns = at(State.WAITING)
    assert turns.timer_at() == pytest.approx(5.0)
    turns.handle_timer(5.0)
    assert turns.state is State.REPLYING
    assert actions(turns) == []


def test_a_voice_ends_a_wait() -> None:
    turns = at(State.WAITING)
    turns.receive(SpeechStarted(), 1.0)
    turns.receive(SpeechContinued(), 1.2)
    assert actions(turns) == [Interrupt()]
    assert turns.state is State.HEARING


def test_words_that_come_after_the_end_point_are_answered_at_once() -> None:
    turns = at(State.ENDPOINTING)
    turns.handle_timer(0.2)
    actions(turns)
    turns.receive(FinalTranscript(turns.turn, "hello there", 0.8), 0.9)
    reply = reply_in(turns)
    assert reply.endpoint_due == pytest.approx(0.5)


def test_the_words_decide_how_long_the_pause_is() -> None:
    turns = at(State.ENDPOINTING)
    turns.handle_timer(0.2)
    turns.receive(FinalTranscript(turns.turn, "my number is", 0.8), 0.6)
    assert turns.state is State.ENDPOINTING
    assert turns.timer_at() == pytest.approx(1.1)


def test_going_on_after_a_pause_makes_the_words_stale() -> None:
    turns = at(State.ENDPOINTING)
    turns.handle_timer(0.2)
    decode = turns.turn
    turns.receive(SpeechStarted(), 0.3)
    turns.receive(FinalTranscript(decode, "half of it", 0.8), 0.4)
    turns.receive(SpeechStopped(1.0, 900), 1.1)
    turns.handle_timer(1.2)
    assert [type(action) for action in actions(turns) if not isinstance(action, RequestPartial)] == [
        Decode
    ] * 2
    assert turns.turn > decode


def test_a_noise_is_no_turn_and_does_not_put_off_the_reprompt() -> None:
    turns = at(State.LISTENING)
    reprompt = turns.timer_at()
    assert reprompt is not None
    turns.receive(SpeechStarted(), 3.0)
    turns.receive(SpeechStopped(3.1, 80), 3.2)
    run_until(turns, 3.31)
    turns.receive(FinalTranscript(turns.turn, "", 0.0), 3.4)
    run_until(turns, 3.7)
    assert turns.state is State.LISTENING
    assert Discard() in actions(turns)
    assert turns.timer_at() == reprompt


def test_a_long_sound_without_words_is_a_turn_not_understood() -> None:
    turns = at(State.ENDPOINTING)  # 400 ms of voice
    turns.handle_timer(0.2)
    turns.receive(FinalTranscript(turns.turn, "", 0.0), 0.3)
    turns.handle_timer(0.5)
    assert any(isinstance(action, StartReply) for action in actions(turns))


def test_reprompts_are_counted_and_speech_resets_the_count() -> None:
    turns = at(State.LISTENING)
    run_until(turns, SETTINGS.reprompt_s)
    first = reply_in(turns)
    assert first.event == UserSilent(1)
    turns.receive(ReplyHeard(turns.turn), 9.0)
    turns.receive(SpeechStarted(), 10.0)
    turns.receive(SpeechStopped(11.0, 900), 11.1)
    run_until(turns, 11.2)
    turns.receive(FinalTranscript(turns.turn, "hello", 0.9), 11.3)
    run_until(turns, 11.5)
    turns.receive(ReplyHeard(turns.turn), 12.0)
    actions(turns)
    run_until(turns, 12.0 + SETTINGS.reprompt_s)
    again = reply_in(turns)
    assert again.event == UserSilent(1)


def test_patience_ends_with_last_words_and_a_hang_up() -> None:
    turns = Turns(SessionSettings(max_reprompts=0), 0.0)
    actions(turns)
    turns.receive(ReplyHeard(1), 1.0)
    run_until(turns, 9.0)
    assert actions(turns) == [SayLastWords(turns.turn, EndReason.SILENCE, final=False)]
    turns.receive(SpeechReady(turns.turn), 9.0)
    turns.receive(ReplyHeard(turns.turn), 10.0)
    run_until(turns, 10.0 + SETTINGS.linger_ms / 1000)
    assert actions(turns) == [EndCall(EndReason.SILENCE)]


def parting(state: State, reason: EndReason = EndReason.AGENT) -> Turns:
    """In `state`, and the agent says goodbye."""
    turns = at(state)
    turns.receive(CallConcluded(turns.turn, reason), 0.0)
    actions(turns)
    return turns


@pytest.mark.parametrize("known_s", [0.65, 1.2])
def test_a_short_word_at_the_end_of_a_farewell_is_waited_for(known_s: float) -> None:
    turns = parting(State.SPEAKING)
    turns.receive(SpeechStarted(), 1.0)
    turns.receive(SpeechStopped(1.2, 220), 1.3)
    assert actions(turns) == [Decode(turns.turn)]
    turns.receive(ReplyHeard(turns.turn), 1.4)
    run_until(turns, 1.2 + known_s)
    turns.receive(FinalTranscript(turns.turn, "wait", 0.9), 1.2 + known_s)
    run_until(turns, 3.0)
    done = actions(turns)
    assert Interrupt() in done
    assert [action.event for action in done if isinstance(action, StartReply)] == [UserSaid("wait", 0.9)]


@pytest.mark.parametrize("text", ["bye", None])
def test_the_line_is_not_held_longer_for_it_than_that(text: str | None) -> None:
    turns = parting(State.SPEAKING)
    turns.receive(SpeechStarted(), 1.0)
    turns.receive(SpeechStopped(1.2, 220), 1.3)
    turns.receive(ReplyHeard(turns.turn), 1.4)
    if text is not None:
        turns.receive(FinalTranscript(turns.turn, text, 0.9), 1.5)
    patience_ms = SETTINGS.overlap_ms if text else SETTINGS.endpoint_ms + SETTINGS.stt_deadline_ms
    run_until(turns, 1.2 + patience_ms / 1000 + 0.001)
    assert turns.state is State.ENDED


@pytest.mark.parametrize("before", [State.SPEAKING, State.DUCKED])
def test_a_voice_that_nobody_understands_does_not_keep_a_farewell_silent(before: State) -> None:
    turns = parting(before)
    turns.receive(BargedIn(), 0.7)
    turns.receive(BargedIn(), 0.72)
    silenced = turns.state
    assert silenced is State.HALTED
    for tenth in range(8, 30):
        run_until(turns, tenth / 10)
        turns.receive(FinalTranscript(turns.turn, "", failed=True), tenth / 10)
    assert turns.state is State.SPEAKING
    assert any(isinstance(action, RejectAsNoise) for action in actions(turns))


def test_words_over_a_farewell_that_nobody_heard_any_of_take_none_back() -> None:
    """Else the third goodbye is hung up on, though the caller has not heard one yet."""
    turns = at(State.LISTENING)
    for second in range(0, 30, 10):
        turns.receive(KeyPressed("1"), second + 0.0)
        run_until(turns, second + 3.0)
        turns.receive(CallConcluded(turns.turn, EndReason.AGENT), second + 3.1)
        turns.receive(SpeechStarted(), second + 3.2)
        turns.receive(FinalTranscript(turns.turn, "wait please", 0.9), second + 3.5)
        assert turns.state is State.HEARING
    turns.receive(KeyPressed("1"), 30.0)
    run_until(turns, 33.0)
    turns.receive(CallConcluded(turns.turn, EndReason.AGENT), 33.1)
    assert turns.state is State.REPLYING  # not CLOSING, which nothing stops


@pytest.mark.parametrize("heard_s", [9.5, 10.05])
def test_a_key_over_the_goodbye_to_somebody_silent_is_their_answer(heard_s: float) -> None:
    turns = Turns(SessionSettings(max_reprompts=0), 0.0)
    turns.expect(Expected(digits=1))
    turns.receive(ReplyHeard(1), 1.0)
    run_until(turns, 9.0)
    turns.receive(SpeechReady(turns.turn), 9.0)
    if heard_s > 10.0:
        turns.receive(ReplyHeard(turns.turn), 10.0)
    actions(turns)
    turns.receive(KeyPressed("1"), heard_s)
    done = actions(turns)
    assert Interrupt() in done
    assert [action.event for action in done if isinstance(action, StartReply)] == [UserKeyed("1")]


def test_keys_reach_the_agent_whole() -> None:
    turns = at(State.LISTENING)
    turns.expect(Expected(digits=3))
    for second, key in enumerate("407"):
        turns.receive(KeyPressed(key), float(second))
    replies = [action for action in actions(turns) if isinstance(action, StartReply)]
    assert [reply.event for reply in replies] == [UserKeyed("407")]


def test_the_watch_on_dead_air_begins_at_the_callers_last_word() -> None:
    turns = at(State.ENDPOINTING)
    turns.handle_timer(0.2)
    turns.receive(FinalTranscript(turns.turn, "my number is", 0.8), 0.3)
    turns.handle_timer(1.1)
    actions(turns)
    assert turns.timer_at() == pytest.approx(SETTINGS.dead_air_ms / 1000)
    turns.handle_timer(2.3)
    assert actions(turns) == [PlayFiller(turns.turn)]
    turns.handle_timer(4.6)
    assert actions(turns) == [PlayFiller(turns.turn)]
    turns.handle_timer(6.9)
    assert actions(turns) == [AskAgain(turns.turn)]


@pytest.mark.parametrize("late", [True, False])
def test_failed_turns_in_a_row_end_the_call_and_others_do_not(late: bool) -> None:
    turns, now = at(State.REPLYING), 0.0

    def fail() -> list[Action]:
        nonlocal now
        if late:
            run_until(turns, now + 6.5)
            now += 6.5
        else:
            turns.receive(ReplyFailed(turns.turn), now)
        return [each for each in actions(turns) if not isinstance(each, PlayFiller)]

    def hear_it_out(*, then_write: bool = True) -> None:
        turns.receive(SpeechReady(turns.turn), now)
        turns.receive(ReplyHeard(turns.turn), now)
        assert turns.state is State.LISTENING
        if then_write:
            turns.receive(TextWritten("again"), now)
            actions(turns)

    for _ in range(2):  # what is answered in between begins the count anew
        for _ in range(SETTINGS.max_failures):
            assert fail() == [AskAgain(turns.turn)]
            hear_it_out()
        hear_it_out()
    for _ in range(SETTINGS.max_failures):
        assert fail() == [AskAgain(turns.turn)]
        hear_it_out()
    assert fail() == [SayLastWords(turns.turn, EndReason.ENGINE_ERROR)]
    assert turns.state is State.CLOSING


def test_a_caller_may_interrupt_the_request_to_say_it_again() -> None:
    turns = at(State.REPLYING)
    turns.receive(ReplyFailed(turns.turn), 0.0)
    turns.receive(SpeechReady(turns.turn), 0.1)
    turns.receive(SpeechContinued(), 0.5)
    assert turns.state is State.DUCKED


def test_words_of_the_agents_own_begin_the_patience_anew() -> None:
    turns = at(State.REPLYING)
    actions(turns)
    for _ in range(5):
        due = turns.timer_at()
        assert due is not None
        turns.handle_timer(due)
        assert actions(turns) == [PlayFiller(turns.turn)]
        for sound in ("filler", "agent"):
            turns.receive(SpeechReady(turns.turn), due + 0.1)
            turns.receive(SpeechRanOut(turns.turn), due + (0.5 if sound == "filler" else 1.0))


# Both speak -------------------------------------------------------------------------------------------------

BOTH_SPEAK = (State.SPEAKING, State.OVERLAPPING, State.OVERLAPPED, State.DUCKED, State.JUDGING)


@pytest.mark.parametrize("state", BOTH_SPEAK)
def test_a_voice_that_goes_on_without_words_silences_the_agent_and_keeps_its_reply(state: State) -> None:
    turns = at(state)
    turn = turns.turn
    turns.receive(BargedIn(), 0.70)
    turns.receive(BargedIn(), 0.72)
    assert turns.state is State.HALTED
    assert Interrupt() not in actions(turns)
    assert turns.turn == turn


@pytest.mark.parametrize(("text", "kept"), [("hello", True), ("hello i am", False)])
def test_before_its_first_sound_only_more_words_throw_an_answer_away(text: str, kept: bool) -> None:
    turns = at(State.ENDPOINTING)
    turns.handle_timer(0.2)
    turns.receive(FinalTranscript(turns.turn, "hello", 0.8), 0.3)
    turns.handle_timer(0.5)
    actions(turns)
    turns.receive(SpeechStarted(), 0.6)
    assert turns.state is State.HALTED
    turns.receive(SpeechStopped(0.7, 500), 0.8)
    turns.receive(FinalTranscript(turns.turn, text, 0.8), 0.9)
    assert (Interrupt() in actions(turns)) != kept
    assert turns.state is (State.SPEAKING if kept else State.ENDPOINTING)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("stop", State.HEARING),
        ("wait please", State.HEARING),
        ("tuesday works better", State.HEARING),
        ("tuesday", State.DUCKED),
        ("mm-hm", State.DUCKED),
        ("yeah", State.DUCKED),
        ("um", State.DUCKED),
        ("", State.DUCKED),
    ],
)
def test_words_over_the_agent_decide_whether_it_stops(text: str, state: State) -> None:
    turns = at(State.DUCKED)
    turns.receive(FinalTranscript(turns.turn, text, 0.9), 0.5)
    assert turns.state is state
    assert (Interrupt() in actions(turns)) == (state is State.HEARING)


@pytest.mark.parametrize(
    ("text", "state"), [("stop", State.ENDPOINTING), ("mm-hm", State.OVERLAPPED), ("", State.OVERLAPPED)]
)
@pytest.mark.parametrize("before", [State.JUDGING, State.OVERLAPPED])
def test_words_decide_after_the_voice_has_ended_too(before: State, text: str, state: State) -> None:
    turns = at(before)
    turns.receive(FinalTranscript(turns.turn, text, 0.9), 0.3)
    assert turns.state is state
    assert (Interrupt() in actions(turns)) == (state is State.ENDPOINTING)
    run_until(turns, 0.7)
    replies = [action.event for action in actions(turns) if isinstance(action, StartReply)]
    assert replies == ([UserSaid("stop", 0.9)] if text == "stop" else [])
    assert turns.state is (State.REPLYING if text == "stop" else State.SPEAKING)


def test_one_word_is_enough_where_it_answers_the_question() -> None:
    turns = at(State.JUDGING)
    turns.expect(Expected(phrases=("monday", "tuesday")))
    turns.receive(FinalTranscript(turns.turn, "tuesday", 0.9), 0.3)
    assert Interrupt() in actions(turns)


def test_a_partial_result_is_believed_when_it_stands_and_only_silences() -> None:
    turns = at(State.DUCKED)
    states = []
    for moment, text in (
        (0.30, "tuesday morning"),
        (0.32, "tuesday"),  # taken back
        (0.36, "tuesday morning"),
        (0.38, "tuesday morning"),
        (0.41, "tuesday morning please"),
    ):
        turns.receive(PartialTranscript(turns.turn, text), moment)
        states.append(turns.state)
    assert states == [State.DUCKED] * 4 + [State.HALTED]
    assert Interrupt() not in actions(turns)


def test_a_partial_stop_is_believed_at_once() -> None:
    turns = at(State.DUCKED)
    turns.receive(PartialTranscript(turns.turn, "stop"), 0.3)
    assert turns.state is State.HALTED


def test_the_recogniser_is_asked_again_and_again_about_a_voice_over_the_agent() -> None:
    turns = at(State.DUCKED)
    run_until(turns, 0.405)
    assert actions(turns) == [RequestPartial(turns.turn)] * 40


@pytest.mark.parametrize("said", [PartialTranscript, FinalTranscript])
@pytest.mark.parametrize(
    ("first", "then", "state"),
    [
        ("yeah", "yeah right okay", State.DUCKED),
        ("yeah", "yeah um", State.DUCKED),
        ("okay", "okay so", State.HALTED),  # it goes on
        ("", "", State.HALTED),
    ],
)
def test_a_voice_that_only_listens_silences_nobody(
    said: type[PartialTranscript | FinalTranscript], first: str, then: str, state: State
) -> None:
    turns = at(State.DUCKED)
    turns.receive(said(turns.turn, first), 0.5)
    turns.receive(said(turns.turn, then), 0.9)
    turns.receive(BargedIn(), 0.92)
    assert turns.state is state
    assert Interrupt() not in actions(turns)


def test_listening_explains_a_voice_only_for_as_long_again() -> None:
    """What goes on after "okay" without a word is no "okay" any more."""
    turns = at(State.DUCKED)
    turns.receive(PartialTranscript(turns.turn, "okay"), 0.25)
    hush_s = SETTINGS.barge_in_ms / 1000
    states = []
    for moment in (0.3, 0.28 + hush_s, 0.3 + hush_s):
        turns.receive(PartialTranscript(turns.turn, "okay"), moment - 0.01)
        turns.receive(BargedIn(), moment)
        states.append(turns.state)
    assert states == [State.DUCKED, State.DUCKED, State.HALTED]


@pytest.mark.parametrize("text", ["", "mm-hm"])
def test_a_false_stop_goes_on_and_the_agent_is_not_asked(text: str) -> None:
    turns = at(State.DOUBTING)
    turns.receive(FinalTranscript(turns.turn, text, 0.0), 0.3)
    run_until(turns, 0.3 + SETTINGS.overlap_ms / 1000)
    assert turns.state is State.SPEAKING
    assert actions(turns) == [Discard()]


@pytest.mark.parametrize(
    ("text", "moment", "state"),
    [
        ("mm-hm", 0.1, State.DOUBTING),  # more of it may be on its way
        ("mm-hm", 0.25, State.OVERLAPPED),
        ("um", 0.25, State.SPEAKING),
        ("tuesday", 0.25, State.DOUBTING),
    ],
)
def test_a_partial_mm_hm_after_the_voice_lets_the_agent_go_on(text: str, moment: float, state: State) -> None:
    turns = at(State.DOUBTING)
    turns.receive(PartialTranscript(turns.turn, text), moment)
    assert turns.state is state
    assert Interrupt() not in actions(turns)


def test_a_mm_hm_that_hushed_the_agent_is_an_answer_if_it_ends_soon_after() -> None:
    turns = at(State.DOUBTING)
    turns.receive(FinalTranscript(turns.turn, "yes", 0.9), 0.3)
    turns.receive(ReplyHeard(turns.turn), 0.8)
    assert turns.state is State.ENDPOINTING


@pytest.mark.parametrize(
    "state", [State.DUCKED, State.OVERLAPPED, State.JUDGING, State.HALTED, State.DOUBTING]
)
def test_words_that_are_hardly_understood_are_somebody_elses(state: State) -> None:
    turns = at(state)
    turns.receive(FinalTranscript(turns.turn, "put the bag there", 0.4), 0.3)
    assert Interrupt() not in actions(turns)
    turns = at(state)
    turns.receive(FinalTranscript(turns.turn, "put the bag there", 0.6), 0.3)
    assert Interrupt() in actions(turns)


@pytest.mark.parametrize(
    "state", [State.DUCKED, State.OVERLAPPED, State.JUDGING, State.HALTED, State.DOUBTING]
)
def test_a_television_that_resembles_an_answer_does_not_interrupt_the_agent(state: State) -> None:
    turns = at(state)
    turns.receive(FinalTranscript(turns.turn, "put the bag there", 0.05, doubtful=True), 0.3)
    assert Interrupt() not in actions(turns)


def asked(turns: Turns) -> list[Action]:
    """What is to be done about a voice that goes on, but for looking at it."""
    return [action for action in actions(turns) if isinstance(action, Decode | RejectAsNoise)]


def test_a_voice_whose_words_have_ended_is_a_noise_and_the_turn_is_over() -> None:
    """Asked about first: partial results may be late."""
    turns = at(State.HEARING)
    for moment, text in ((0.5, "i want"), (0.75, "i want tea"), (1.5, "i want tea")):
        turns.receive(PartialTranscript(turns.turn, text), moment)
    assert asked(turns) == []
    for moment in (1.8, 1.9):
        turns.receive(PartialTranscript(turns.turn, "i want tea"), moment)
    assert asked(turns) == [Decode(turns.turn)]
    turns.receive(FinalTranscript(turns.turn, "i want tea", 0.9), 2.1)
    (noise,) = asked(turns)
    assert isinstance(noise, RejectAsNoise)
    assert 1.35 < noise.seconds < 2.1
    turns.receive(SpeechStopped(2.1 - noise.seconds, 900), 2.1)
    assert turns.state is State.ENDPOINTING


def test_who_is_asked_about_a_voice_is_asked_again_when_a_pause_came_before_the_answer() -> None:
    """A noise that pauses for a moment, again and again, is not listened to for ever."""
    turns = at(State.HEARING)
    turns.receive(PartialTranscript(turns.turn, "i want tea"), 0.5)
    for began in (0.5, 3.0, 6.0):
        actions(turns)
        turns.receive(PartialTranscript(turns.turn, "i want tea"), began + 1.1)
        assert asked(turns) == [Decode(turns.turn)]
        before = turns.turn
        turns.receive(SpeechStopped(began + 1.15, 900), began + 1.2)
        turns.receive(SpeechStarted(), began + 1.25)
        turns.receive(FinalTranscript(before, "i want tea", 0.9), began + 1.4)
        assert turns.state is State.HEARING


def test_a_voice_that_says_more_than_its_partial_result_is_none() -> None:
    turns = at(State.HEARING)
    turns.receive(PartialTranscript(turns.turn, "i want"), 0.5)
    turns.receive(PartialTranscript(turns.turn, "i want"), 1.6)
    asked(turns)
    turns.receive(FinalTranscript(turns.turn, "i want a large pot of tea", 0.9), 1.9)
    assert asked(turns) == []
    assert turns.state is State.HEARING


def on_a_noisy_line() -> Turns:
    """Somebody has spoken, over something that does not end, at time 2."""
    turns = at(State.HEARING)
    turns.receive(PartialTranscript(turns.turn, "i want tea"), 0.5)
    turns.receive(FinalTranscript(turns.turn, "i want tea", 0.9), 2.0)
    assert turns.noise.is_noisy(2.0)
    actions(turns)
    return turns


def answered_on_a_noisy_line(until: float) -> Turns:
    """What was said is answered, and the answer is heard at `until`."""
    turns = on_a_noisy_line()
    turns.receive(SpeechStopped(2.0, 900), 2.0)
    turns.receive(FinalTranscript(turns.turn, "i want tea", 0.9, p_eot=0.9), 2.01)
    turns.receive(SpeechReady(turns.turn), 2.1)
    turns.receive(ReplyHeard(turns.turn), until)
    return turns


def test_in_noise_the_end_of_a_turn_counts_from_its_last_word() -> None:
    """Not from the last sound that was as loud as the caller."""
    turns = on_a_noisy_line()
    turns.receive(SpeechStopped(2.0, 900), 2.0)
    turns.receive(FinalTranscript(turns.turn, "i want tea", 0.9, p_eot=0.9), 2.01)
    assert turns.state is State.REPLYING
    (reply,) = [action for action in actions(turns) if isinstance(action, StartReply)]
    assert reply.silent_since is not None
    assert reply.silent_since < 0.5


def test_in_noise_a_word_that_was_known_at_the_pause_is_none_of_the_voice_after_it() -> None:
    """Noise that follows the caller's last word, again and again, does not make it younger."""
    turns = answered_on_a_noisy_line(4.0)
    turns.receive(SpeechStarted(), 5.0)
    turns.receive(SpeechStopped(5.5, 400), 5.6)
    turns.receive(PartialTranscript(turns.turn, "tuesday"), 5.65)
    for moment in (6.0, 6.5):
        turns.receive(SpeechStarted(), moment)
        turns.receive(PartialTranscript(turns.turn, "tuesday"), moment + 0.1)
        turns.receive(SpeechStopped(moment + 0.15, 600), moment + 0.2)
        assert turns.noise.last_speech_was_noise
    turns.receive(FinalTranscript(turns.turn, "tuesday", 0.9, p_eot=0.9), 6.75)
    assert turns.state is State.REPLYING
    (*_, reply) = [action for action in actions(turns) if isinstance(action, StartReply)]
    assert reply.silent_since is not None
    assert reply.silent_since <= 5.5


def test_in_noise_a_word_that_was_being_said_at_the_pause_moves_the_end_of_the_turn() -> None:
    """The last word is known a moment after it; until then the silence seemed to be longer."""
    turns = on_a_noisy_line()
    turns.receive(SpeechStarted(), 3.0)
    turns.receive(PartialTranscript(turns.turn, "i want tea with"), 3.5)
    turns.receive(SpeechStopped(3.9, 900), 4.0)
    actions(turns)
    turns.receive(FinalTranscript(turns.turn, "i want tea with milk", 0.9, p_eot=0.9), 4.1)
    assert turns.state is State.REPLYING
    (*_, reply) = [action for action in actions(turns) if isinstance(action, StartReply)]
    assert reply.silent_since is not None
    assert 3.7 < reply.silent_since <= 3.9


def in_a_pause_on_a_noisy_line() -> Turns:
    """The first half of a word was heard until 3.0, and nothing is understood yet."""
    turns = answered_on_a_noisy_line(2.5)
    turns.receive(SpeechStarted(), 2.8)
    turns.receive(SpeechStopped(3.0, 180), 3.1)
    turns.handle_timer(3.2)
    assert Decode(turns.turn) in asked(turns)
    return turns


def test_in_noise_a_word_of_which_only_the_beginning_was_heard_is_asked_for_again() -> None:
    """It was not over when the recogniser was asked first."""
    turns = in_a_pause_on_a_noisy_line()
    turns.receive(FinalTranscript(turns.turn, "", p_eot=0.4), 3.4)
    assert turns.timer_at() == 3.5
    turns.handle_timer(3.5)
    assert Decode(turns.turn) in asked(turns)
    turns.receive(FinalTranscript(turns.turn, "tuesday", 0.9, p_eot=0.9), 3.75)
    assert turns.state is State.REPLYING


def test_in_noise_a_partial_result_is_enough_for_such_a_word() -> None:
    turns = in_a_pause_on_a_noisy_line()
    turns.receive(FinalTranscript(turns.turn, "", p_eot=0.4), 3.4)
    turns.handle_timer(3.5)
    turns.receive(PartialTranscript(turns.turn, "tuesday"), 3.52)
    assert turns.state is State.PRESUMING


def test_in_noise_what_has_no_word_in_hindsight_either_is_none() -> None:
    turns = in_a_pause_on_a_noisy_line()
    turns.receive(FinalTranscript(turns.turn, "", p_eot=0.4), 3.4)
    turns.handle_timer(3.5)
    asked(turns)
    turns.receive(FinalTranscript(turns.turn, "", p_eot=0.4), 3.75)
    turns.handle_timer(4.2)
    assert turns.state is State.LISTENING
    assert not any(isinstance(action, (Decode, StartReply)) for action in actions(turns))


def test_in_noise_a_voice_that_goes_on_is_given_half_a_second_for_a_word() -> None:
    turns = on_a_noisy_line()
    turns.receive(SpeechStopped(2.0, 900), 2.0)
    turns.receive(SpeechStarted(), 2.1)
    actions(turns)
    turns.receive(PartialTranscript(turns.turn, "i want tea"), 2.5)
    assert asked(turns) == []
    assert not turns.noise.last_speech_was_noise
    turns.receive(PartialTranscript(turns.turn, "i want tea"), 2.65)
    assert [type(each) for each in asked(turns)] == [RejectAsNoise]
    assert turns.noise.last_speech_was_noise  # the next one needs a word
    turns.receive(SpeechStopped(2.65, 900), 2.65)
    assert turns.says_more("i want tea and")
    assert not turns.says_more("i want tea")


@pytest.mark.parametrize(("state", "later"), [(State.DUCKED, 1.0), (State.HALTED, 0.4)])
def test_a_voice_over_the_agent_without_a_word_is_noise(state: State, later: float) -> None:
    """After a second of it; and where the recogniser failed nobody knows what they said."""
    turns = at(state)
    actions(turns)
    turns.receive(FinalTranscript(turns.turn, "", 0.0), 0.05)
    turns.receive(FinalTranscript(turns.turn, "", 0.0, failed=True), later)
    assert turns.state is state
    turns.receive(FinalTranscript(turns.turn, "", 0.0), later)
    assert turns.state.name == "SPEAKING"
    assert any(isinstance(action, RejectAsNoise) for action in actions(turns))


def test_words_in_what_was_taken_for_noise_are_the_callers() -> None:
    turns = at(State.LISTENING)
    actions(turns)
    turns.receive(FinalTranscript(turns.turn, "", 0.0), 0.5)
    assert turns.state.name == "LISTENING"
    turns.receive(PartialTranscript(turns.turn, "yes"), 1.0)
    assert turns.state.name == "HEARING"
    assert AcceptSpeech() in actions(turns)


def test_noise_over_the_agents_last_word_is_not_answered_by_asking_again() -> None:
    """The caller has all the time that they have after any words of the agent's."""
    turns = at(State.OVERLAPPED)
    turns.receive(ReplyHeard(turns.turn), 0.1)
    actions(turns)
    turns.receive(FinalTranscript(turns.turn, "", 0.0), 0.3)
    run_until(turns, SETTINGS.reprompt_s - 0.1)
    assert turns.state.name == "LISTENING"
    assert not [action for action in actions(turns) if isinstance(action, StartReply)]
    run_until(turns, SETTINGS.reprompt_s + 0.2)
    assert turns.state.name == "REPLYING"


def test_a_voice_that_lasts_was_no_noise() -> None:
    turns = at(State.HALTED)
    run_until(turns, SETTINGS.halt_ms / 1000)
    assert turns.state is State.HEARING
    assert Interrupt() in actions(turns)


def test_any_word_in_a_voice_that_stopped_the_agent_counts() -> None:
    turns = at(State.DOUBTING)
    turns.receive(FinalTranscript(turns.turn, "tuesday", 0.9), 0.3)
    assert turns.state is State.ENDPOINTING
    run_until(turns, 0.5)
    assert UserSaid("tuesday", 0.9) in [a.event for a in actions(turns) if isinstance(a, StartReply)]


def test_a_recogniser_that_says_nothing_leaves_the_floor_to_who_stopped_the_agent() -> None:
    turns = at(State.DOUBTING)
    run_until(turns, 2.0)
    assert turns.state is State.REPLYING
    assert Interrupt() in actions(turns)


def test_duration_is_watched_in_every_state() -> None:
    for state in set(State) - {State.LEAVING, State.CLOSING, State.ENDED}:
        turns = at(state)
        turns.handle_timer(SETTINGS.max_duration_s)
        assert turns.state is State.CLOSING


# Every order of events --------------------------------------------------------------------------------------


class World:
    """A caller and engines that do anything at any time, but nothing that cannot be."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = Turns(SETTINGS, 0.0)
        self.silent_since = 0.0  # the caller hears nothing and says nothing
        self.worst_s = 0.0
        self.reply: StartReply | AskAgain | SayLastWords | None = None
        self.decode: Decode | RequestPartial | None = None
        self.sounding = False
        self.voiced = False
        self.take()

    def take(self) -> None:
        for action in actions(self.turns):
            if isinstance(action, StartReply | SayLastWords):
                self.reply, self.decode = action, None
                self.sounding = isinstance(action, SayLastWords)
            elif isinstance(action, Decode | RequestPartial):
                self.decode = action
            elif isinstance(action, Interrupt):
                self.reply, self.sounding = None, False
            elif isinstance(action, PlayFiller):
                self.sounding = True
                self.turns.receive(SpeechReady(action.turn), self.now)
            elif isinstance(action, AskAgain):
                self.reply, self.decode, self.sounding = action, None, True
                self.turns.receive(SpeechReady(action.turn), self.now)

    def quiet(self) -> bool:
        return not self.sounding and self.turns.state is State.REPLYING

    def wait(self, until: float) -> None:
        while (due := self.turns.timer_at()) is not None and due <= until:
            self.advance(due)
            self.turns.handle_timer(due)
            self.take()
        self.advance(until)

    def advance(self, moment: float) -> None:
        self.now = moment
        if self.quiet():
            self.worst_s = max(self.worst_s, moment - self.silent_since)
        else:
            self.silent_since = moment

    def happen(self, what: str) -> None:
        turn = self.reply.turn if self.reply is not None else -1
        speech: dict[str, Event] = {
            "starts": SpeechStarted(), "lasts": SpeechContinued(), "barges": BargedIn(),
            "stops": SpeechStopped(self.now - 0.1, 300), "blip": SpeechStopped(self.now - 0.1, 60),
            "key": KeyPressed("5"), "hash": KeyPressed("#"), "writes": TextWritten("hi"),
        }  # fmt: skip
        reply: dict[str, Event] = {
            "ready": SpeechReady(turn), "dry": SpeechRanOut(turn), "heard": ReplyHeard(turn),
            "fails": ReplyFailed(turn), "concludes": CallConcluded(turn, EndReason.AGENT),
        }  # fmt: skip
        if what in speech:
            self.silent_since = self.now  # they hear themselves
            self.turns.receive(speech[what], self.now)
        elif what in reply and self.reply is not None:
            self.turns.receive(reply[what], self.now)
            self.sounding = what == "ready" or (self.sounding and what not in ("dry", "heard"))
            if what in ("heard", "fails"):
                self.reply = None
        elif what == "maybe" and self.decode is not None:
            self.turns.receive(PartialTranscript(self.decode.turn, "stop"), self.now)
        elif what in ("words", "nothing", "listens") and self.decode is not None:
            text = {"words": "hello", "nothing": "", "listens": "mm-hm"}[what]
            self.turns.receive(FinalTranscript(self.decode.turn, text, 0.5), self.now)
            self.decode = None
        self.take()


HAPPENINGS = [
    "starts", "stops", "blip", "barges", "key", "hash", "ready", "dry", "heard", "fails", "concludes",
    "words", "nothing", "listens", "maybe", "lasts", "writes",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(HAPPENINGS), st.floats(0.0, 4.0, allow_subnormal=False)),
        min_size=1,
        max_size=60,
    )
)
def test_no_order_of_events_breaks_it_or_leaves_the_line_dead(happenings: list[tuple[str, float]]) -> None:
    world = World()
    numbers = [world.turns.turn]
    for what, gap in happenings:
        world.wait(world.now + gap)
        world.happen(what)
        numbers.append(world.turns.turn)
        if world.turns.state is not State.ENDED:
            assert world.turns.timer_at() is not None
    assert all(a <= b for a, b in pairwise(numbers))
    assert world.worst_s <= SETTINGS.dead_air_ms / 1000 + 0.01
    world.turns.receive(LegEnded(), world.now)
    assert world.turns.state is State.ENDED
    assert world.turns.timer_at() is None
