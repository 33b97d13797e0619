"""The record of what is said into silences."""

from __future__ import annotations

from pipeline.settings import SessionSettings
from pipeline.turns.events import Inner
from pipeline.turns.prompting import Prompting


def test_a_silent_caller_is_asked_again_and_then_left() -> None:
    prompting = Prompting(SessionSettings(max_reprompts=1), 0.0)
    assert prompting.judge_silence(may_retract=True) is Inner.SILENCE_NOTED
    prompting.silences += 1
    assert prompting.judge_silence(may_retract=True) is Inner.PATIENCE_ENDED
    assert prompting.judge_silence(may_retract=False) is Inner.PATIENCE_SPENT


def test_a_late_agent_is_covered_by_fillers_and_then_given_up() -> None:
    prompting = Prompting(SessionSettings(max_fillers=1, max_failures=0), 0.0)
    assert prompting.judge_dead_air() is Inner.DEAD_AIR_NOTED
    prompting.fill()
    assert prompting.judge_dead_air() is Inner.DEAD_AIR_REPEATED


def test_only_words_of_the_agents_own_begin_the_patience_anew() -> None:
    prompting = Prompting(SessionSettings(max_fillers=1, max_failures=0), 0.0)
    prompting.fill()
    prompting.speak()
    assert prompting.judge_dead_air() is Inner.DEAD_AIR_REPEATED
    prompting.speak()
    assert prompting.judge_dead_air() is Inner.DEAD_AIR_NOTED


def test_a_new_answer_is_waited_for_with_all_patience() -> None:
    prompting = Prompting(SessionSettings(max_fillers=1, max_failures=0), 0.0)
    prompting.fill()
    prompting.watch()
    assert prompting.judge_dead_air() is Inner.DEAD_AIR_NOTED


def test_failed_turns_are_counted_in_a_row() -> None:
    prompting = Prompting(SessionSettings(max_fillers=0, max_failures=1), 0.0)
    assert prompting.judge_dead_air() is Inner.TURN_FAILED
    prompting.ask_again()
    prompting.reply_ended()
    assert prompting.judge_dead_air() is Inner.DEAD_AIR_REPEATED
    prompting.watch()
    prompting.reply_ended()
    assert prompting.judge_dead_air() is Inner.TURN_FAILED
