"""The frames that a playout keeps, against lists of single frames."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pipeline.media.spool import Spool

REMEMBERED = 10


class Lists:
    """The same, a frame at a time."""

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.past: list[int] = []

    def take(self, count: int) -> None:
        """Takes the next `count`."""
        self.past = (self.past + self.waiting[:count])[-REMEMBERED:]
        del self.waiting[:count]

    def put_back(self, count: int) -> int:
        """Has frames wait again; how many."""
        count = min(count, len(self.past))
        self.waiting = self.past[len(self.past) - count :] + self.waiting
        del self.past[len(self.past) - count :]
        return count


def numbers(spool: Spool, first: int = 0, count: int = 1000) -> list[int]:
    """What waits, a number for each frame."""
    return [int(frame[0]) for frame in spool.following(first, count)]


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_given_as_one_list_of_them_would(seed: int) -> None:
    chance, spool, lists, made = random.Random(seed), Spool(REMEMBERED), Lists(), 0
    for _ in range(300):
        match chance.randrange(6):
            case 0 | 1:
                count = chance.randrange(1, 15)
                fresh = np.arange(made, made + count, dtype=np.int16)
                spool.extend(np.repeat(fresh[:, np.newaxis], 4, axis=1))
                lists.waiting += fresh.tolist()
                made += count
            case 2 | 3:
                count = chance.randrange(spool.waiting + 1)
                spool.take(count)
                lists.take(count)
            case 4:
                wanted = chance.randrange(2 * REMEMBERED)
                back = lists.put_back(wanted)
                assert spool.put_back(wanted) == back
            case _:
                dropped = chance.randrange(spool.waiting + 1)
                spool.drop(dropped)
                del lists.waiting[len(lists.waiting) - dropped :]
        assert (spool.waiting, numbers(spool)) == (len(lists.waiting), lists.waiting)
        first = chance.randrange(spool.waiting + 1)
        assert numbers(spool, first, 3) == lists.waiting[first : first + 3]


def test_what_was_taken_is_forgotten_once_it_is_not_wanted_again() -> None:
    spool = Spool(REMEMBERED)
    spool.extend(np.zeros((8, 160), np.int16))
    spool.extend(np.ones((4, 160), np.int16))
    spool.take(9)
    spool.forget()
    assert spool.put_back(5) == 0
    assert numbers(spool) == [1, 1, 1]
    spool.clear()
    assert spool.waiting == 0
