"""Housekeeping of many streams by one timer."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final

from pipeline.errors import boundary

PERIOD_S: Final = 0.25
GROUPS: Final = 5
"""Groups of streams, each of which keeps house at one moment: a wake of the loop costs more than what is
done."""

_STEP_S: Final = PERIOD_S / GROUPS
_SLACK: Final = 0.01  # of a step: a timer may fire a little early

log = logging.getLogger(__name__)


class Rounds:
    """Calls what each stream has to do every `PERIOD_S`, with the loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._groups: list[dict[int, Callable[[float], None]]] = [{} for _ in range(GROUPS)]
        self._timer: asyncio.TimerHandle | None = None

    def join(self, number: int, keep_house: Callable[[float], None]) -> None:
        """From now on `keep_house` is called for stream `number`, which returns at once."""
        self._groups[number % GROUPS][number] = keep_house
        if self._timer is None:
            self._set_timer(self._loop.time())

    def leave(self, number: int) -> None:
        """Stream `number` keeps house no more. Idempotent."""
        self._groups[number % GROUPS].pop(number, None)
        if self._timer is not None and not any(self._groups):
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, now: float) -> int:
        step = math.floor(now / _STEP_S + _SLACK) + 1
        self._timer = self._loop.call_at(step * _STEP_S, self._step, step)
        return step

    def _step(self, step: int) -> None:
        """Takes the group of `step`, and of a late loop the groups of the steps since then too."""
        now = self._loop.time()
        for each in range(step, min(self._set_timer(now), step + GROUPS)):
            self._keep_house(self._groups[each % GROUPS], now)

    def _keep_house(self, group: dict[int, Callable[[float], None]], now: float) -> None:
        for number, keep_house in tuple(group.items()):
            if group.get(number) is keep_house:  # no other stream of the group has ended this one
                with boundary(log, "housekeeping of a media stream broke", stream=number):
                    keep_house(now)
