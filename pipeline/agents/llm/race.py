"""The requests for one answer, until one of them has a word.

A model that is late is waited for as long as there is time; another request, to the next model or to the same
one, runs beside it, and the first with a word is heard. Failed requests are made again, with a longer pause
each time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Final

from pipeline.agents.llm.attempt import Attempt, ChatModel, SaidNothing
from pipeline.errors import EngineBusy, EngineError

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 1.0

OnFault = Callable[[str], Awaitable[None]]


def pause_s(failures: int) -> float:
    """The seconds before a model that failed `failures` times is asked again."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** max(0, failures - 1))


class Race:
    """The requests for one answer. `request` makes one that gives up its first word at the loop time given;
    `timeout_s`: for all of them together; `hedge_s`: age of a request at which another one begins beside
    it. `may_be_empty`: an answer without words is one, and not a failure to be got over."""

    def __init__(
        self,
        models: Sequence[ChatModel],
        request: Callable[[ChatModel, float], Attempt],
        *,
        timeout_s: float,
        hedge_s: float,
        may_be_empty: bool = False,
    ) -> None:
        self._models = models
        self._request = request
        self._until = _now() + timeout_s
        self._hedge_s = hedge_s
        self._may_be_empty = may_be_empty
        self._due = _now()  # of the next request
        self._asked: Counter[ChatModel] = Counter()
        self._refused: set[ChatModel] = set()
        self._running: dict[asyncio.Task[None], Attempt] = {}
        self._faults: list[str] = []  # not told yet
        self._told: set[str] = set()
        self._failed: EngineError | None = None

    async def winner(self, on_fault: OnFault) -> Attempt:
        """Returns the request that has the first word. `on_fault` is called with each failure that was got
        over. Raises `EngineError` when no request can bring a word in time."""
        try:
            while True:
                if self._due <= _now() < self._until:
                    await self._begin(on_fault)
                if not self._running and max(self._due, _now()) >= self._until:
                    assert self._failed is not None  # the first request is always made
                    raise self._failed
                for task in await self._finished():
                    attempt = self._running.pop(task)
                    failure = task.exception()
                    if failure is None:
                        self._faults += [_late(each) for each in self._overtaken()]
                        await self._tell(on_fault)
                        return attempt
                    await attempt.close()
                    self._note(attempt.model, failure)
        finally:
            await self._give_up()

    async def _begin(self, on_fault: OnFault) -> None:
        """Begins another request, unless each model that may be asked is being asked."""
        self._due = inf
        model = self._next()
        if model is None:
            return
        if self._failed is not None:
            await self._tell(on_fault)
        self._asked[model] += 1
        attempt = self._request(model, self._until)
        self._running[asyncio.create_task(attempt.begin())] = attempt
        self._due = _now() + self._hedge_s

    def _next(self) -> ChatModel | None:
        """The model to be asked: of those least asked the first whose breaker admits a request. The last of
        them is asked in any case while no other answer is on its way."""
        able = sorted(self._able(), key=self._asked.__getitem__)
        for place, model in enumerate(able, 1):
            if model.guard.admits(always=place == len(able) and not self._running):
                return model
        return None

    def _able(self) -> list[ChatModel]:
        """The models that may be asked. One that thinks is not asked to think anew."""
        busy = [attempt.model for attempt in self._running.values()]
        if len(self._models) > 1:
            return [each for each in self._models if each not in self._refused and each not in busy]
        waits = len(busy) > 1 or any(attempt.thinks for attempt in self._running.values())
        return [] if waits else [each for each in self._models if each not in self._refused]

    async def _finished(self) -> set[asyncio.Task[None]]:
        """The requests that end before the next one is due; each ends by itself when its time is over."""
        wait_s = max(0.0, self._due - _now()) if self._due < self._until else None
        if not self._running:
            await asyncio.sleep(wait_s or 0.0)
            return set()
        done, _ = await asyncio.wait(self._running, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        return done

    def _note(self, model: ChatModel, failure: BaseException) -> None:
        if not isinstance(failure, EngineError) or (self._may_be_empty and isinstance(failure, SaidNothing)):
            raise failure
        self._failed = failure
        self._faults.append(str(failure))
        if not failure.retryable:
            self._refused.add(model)
        able = self._able()
        if not able:
            self._due = inf
            return
        fresh = any(not self._asked[each] and not each.guard.is_open() for each in able)
        rest_s = 0.0 if fresh else pause_s(min(self._asked[each] for each in able))
        if isinstance(failure, EngineBusy) and not fresh and _now() + failure.retry_after_s < self._until:
            rest_s = max(rest_s, failure.retry_after_s)
        self._due = min(self._due, _now() + rest_s)

    def _overtaken(self) -> list[Attempt]:
        return [each for each in self._running.values() if each.age_s >= self._hedge_s]

    async def _tell(self, on_fault: OnFault) -> None:
        faults, self._faults = self._faults, []
        for fault in faults:
            if fault not in self._told:
                self._told.add(fault)
                await on_fault(fault)

    async def _give_up(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for attempt in self._running.values():
            await attempt.close()


def _late(attempt: Attempt) -> str:
    return f"{attempt.model.guard.name} did not answer in time"


def _now() -> float:
    return asyncio.get_running_loop().time()
