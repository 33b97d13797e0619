"""What becomes of a call that no server of its trunk took: it goes on over another trunk, or ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from sip.dialog.events import InviteEnded
from sip.states import HangupCause

GoOn = Callable[[int], Awaitable[bool]]
"""Sends the call over another trunk (`sip.trunk.Trunk.go_on`), because its own did not take it, with this SIP
status; False: there is none."""


class Onward:
    """The way of one call from trunk to trunk. `given_up`: for what this side has hung up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.go_on: GoOn | None = None
        self.given_up: HangupCause | None = None
        self._loop = loop
        self._between: asyncio.Task[None] | None = None

    def takes(self, event: InviteEnded, end: Callable[[InviteEnded, float], None]) -> bool:
        """Whether a call that has ended over its trunk goes on; if it cannot, `end` is called with how it
        ended."""
        if not event.elsewhere or self.go_on is None or self.given_up is not None:
            return False
        self._between = self._loop.create_task(self._go(self.go_on, replace(event, elsewhere=False), end))
        return True

    async def _go(self, go_on: GoOn, event: InviteEnded, end: Callable[[InviteEnded, float], None]) -> None:
        went = False
        try:
            went = await go_on(event.status)
        finally:
            if not went:
                end(self._as_given_up(event), self._loop.time())

    def _as_given_up(self, event: InviteEnded) -> InviteEnded:
        cause = self.given_up
        if cause is None:
            return event
        cause = HangupCause.CANCELLED if cause is HangupCause.NORMAL else cause
        return replace(event, cause=cause, status=487, by="local")
