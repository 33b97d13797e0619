"""When is memory given back?"""

from __future__ import annotations

import asyncio

import pytest

from mediaserver.node.free_memory import LOOK_S, after_calls, give_back

pytestmark = pytest.mark.virtual_clock


async def test_memory_is_given_back_at_the_start_and_once_after_calls_have_ended() -> None:
    live, given = 0, list[float]()
    now = asyncio.get_running_loop().time
    task = asyncio.create_task(after_calls(lambda: live, lambda: given.append(now())))
    counts = [0, 3, 8, 8, 2, 2, 0, 0, 5]
    for count in counts:
        live = count
        await asyncio.sleep(LOOK_S)
    task.cancel()
    assert len(given) == 3
    assert given[1] - given[0] > 3 * LOOK_S


def test_giving_back_leaves_what_is_in_use_as_it_is() -> None:
    kept = [bytes([number]) * 5000 for number in range(200)]
    freed = [bytes(5000) for _ in range(2000)]
    del freed[::2]
    give_back()
    assert all(block == bytes([number]) * 5000 for number, block in enumerate(kept))
