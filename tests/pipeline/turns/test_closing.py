"""The record of a farewell."""

from __future__ import annotations

from pipeline.result import EndReason
from pipeline.turns.closing import CLOSING_LIMIT_S, MAX_RETRACTED, Farewell


def test_a_farewell_has_a_reason_and_a_deadline() -> None:
    farewell = Farewell()
    farewell.begin(EndReason.TRANSFER, 5.0)
    assert (farewell.under_way, farewell.reason) == (True, EndReason.TRANSFER)
    assert farewell.until == 5.0 + CLOSING_LIMIT_S


def test_a_caller_may_stop_so_many_farewells_as_nobody_is_held_for_ever() -> None:
    farewell = Farewell()
    for _ in range(MAX_RETRACTED):
        assert farewell.may_be_retracted
        farewell.begin(EndReason.AGENT, 0.0)
        farewell.retract(heard=True)
        assert not farewell.under_way
    assert not farewell.may_be_retracted


def test_a_farewell_of_which_nothing_was_heard_is_not_counted() -> None:
    farewell = Farewell()
    farewell.begin(EndReason.AGENT, 0.0)
    farewell.retract(heard=False)
    assert (farewell.under_way, farewell.retracted) == (False, 0)


def test_what_goes_on_without_a_farewell_stops_none() -> None:
    farewell = Farewell()
    farewell.retract(heard=True)
    assert farewell.retracted == 0
