"""Do all streams keep house, and none that has left?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from pipeline.plane.drive.rounds import GROUPS, PERIOD_S, Rounds
from tests.support.speech.media import VirtualClock, VirtualTimer


class Loop(VirtualClock):
    """An event loop's clock, whose timers have arguments."""

    def call_at(self, when: float, callback: Callable[..., Any], /, *args: Any) -> VirtualTimer:
        return super().call_at(when, lambda: callback(*args))


def counting(kept: dict[int, int], number: int) -> Callable[[float], None]:
    def keep_house(now: float) -> None:
        kept[number] += 1

    return keep_house


def test_each_stream_keeps_house_in_each_round() -> None:
    loop, kept = Loop(), dict.fromkeys(range(2 * GROUPS), 0)
    rounds = Rounds(cast(Any, loop))
    for number in kept:
        rounds.join(number, counting(kept, number))
    loop.advance(8 * PERIOD_S)
    assert set(kept.values()) <= {7, 8, 9}


def test_a_stream_that_another_one_ends_in_its_turn_keeps_house_no_more() -> None:
    """As where the silence of one leg ends the call, and the other leg with it."""
    loop, kept = Loop(), list[int]()
    rounds = Rounds(cast(Any, loop))

    def ends_all(number: int, now: float) -> None:
        kept.append(number)
        for each in (0, GROUPS):
            rounds.leave(each)

    for number in (0, GROUPS):
        rounds.join(number, partial(ends_all, number))
    loop.advance(2 * PERIOD_S)
    assert kept == [0]
    assert not loop.armed


def test_a_loop_that_is_ever_late_leaves_no_stream_out() -> None:
    """Each turn of the loop takes as long as a round but for a moment."""
    loop, kept = Loop(), dict.fromkeys(range(GROUPS), 0)
    rounds = Rounds(cast(Any, loop))
    for number in kept:
        rounds.join(number, counting(kept, number))
    for _ in range(20):
        loop.stall(PERIOD_S - 0.01)
        loop.advance(0.01)
    assert min(kept.values()) >= 15
