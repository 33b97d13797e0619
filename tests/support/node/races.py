"""Calls that are placed and cancelled at about the moment when they are dialled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.support.hostile.trap import Trap
from tests.support.node.node import KEY, OUTBOUND, bearer

AT_ONCE = 8
SETTLED_S = 60.0

CALLS = "/api/v1/calls"


@dataclass
class Race:
    """`ask` sends a request to any of the nodes. `latest_s`: a cancel comes at most so long after its call;
    it follows the machine's speed, so that either one comes first about as often."""

    ask: Callable[..., Any]
    latest_s: float = 0.02
    placed: dict[str, str] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)

    async def run(self, numbers: Sequence[str]) -> None:
        """Places and cancels a call to each number, some at a time."""
        waiting = list(numbers)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(self._some(waiting))

    async def _some(self, waiting: list[str]) -> None:
        while waiting:
            await self._one(waiting.pop())

    async def _one(self, number: str) -> None:
        body = {"agentId": OUTBOUND, "phoneNumber": number, "promptVariables": {"name": "Bo"}}
        placed = await self._answer("POST", f"{CALLS}/outbound", json=body)
        self.placed[number] = placed["data"]["callTaskId"]
        await asyncio.sleep(random.uniform(0, self.latest_s))
        answer = await self._answer("POST", f"{CALLS}/queue/cancel/{number}")
        cancelled: bool = answer["data"]["cancelled"]
        self.latest_s = min(2.0, max(0.001, self.latest_s * (1.1 if cancelled else 0.9)))
        if cancelled:
            assert answer["data"]["callQueueId"] == self.placed[number]
            self.cancelled.add(number)

    async def settled(self) -> None:
        """Waits until no call is on its way any more."""
        async with asyncio.timeout(SETTLED_S):
            for status in ("PENDING", "DIALING", "RINGING"):
                while (await self._answer("GET", f"{CALLS}?status={status}&limit=1"))["calls"]:
                    await asyncio.sleep(0.05)

    async def _answer(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        async with self.ask(method, path, headers=bearer(KEY), **more) as answer:
            content: dict[str, Any] = await answer.json()
            assert answer.status == 200, content
            return content

    def check(self, trap: Trap) -> None:
        """What was cancelled was never dialled, however late; what was not was dialled once."""
        assert self.cancelled, "every call was dialled before it was cancelled: no race"
        assert len(self.cancelled) < len(self.placed), "no call was dialled: no race"
        dialled = {number: len(trap.invites.get(number, ())) for number in self.placed}
        assert dialled == {number: int(number not in self.cancelled) for number in self.placed}


def among(*sessions: aiohttp.ClientSession) -> Callable[..., Any]:
    """Requests to any of them, each time another."""

    def ask(method: str, path: str, **more: Any) -> Any:
        return random.choice(sessions).request(method, path, **more)

    return ask
