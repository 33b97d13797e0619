"""The clock that does not wait: threads are as quick as the loop that asked them."""

from __future__ import annotations

import asyncio
import time

from tests.support.speech.conversation import play


def test_no_time_passes_while_a_thread_computes() -> None:
    async def scene() -> tuple[float, bool]:
        loop = asyncio.get_running_loop()
        began, computed = loop.time(), loop.run_in_executor(None, time.sleep, 0.05)
        await asyncio.sleep(1)
        return loop.time() - began, computed.done()

    assert play(scene) == (1.0, True)
