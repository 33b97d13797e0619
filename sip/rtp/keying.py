"""Digits that one stream sends, and who waits until they have left."""

from __future__ import annotations

import asyncio
from typing import Any

from pipeline.plane.rows import KEYS
from sip.errors import LocalError
from sip.rtp.telephone_event import DIGITS


class Keying:
    """The digits that wait on a row. `close` tells whoever waits that they are not sent."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[int, asyncio.Future[bool]]] = []

    async def send(self, line: Any, digits: str) -> None:
        """Sends `digits`; returns when the last has left. Raises LocalError when too many wait, and when the
        stream closes first."""
        wanted, done = int(line["keys_wanted"]), int(line["keys_sent"])
        if wanted - done + len(digits) > KEYS:
            raise LocalError(f"more than {KEYS} DTMF digits waiting to be sent")
        for index, digit in enumerate(digits):
            line["wanted_keys"][(wanted + index) % KEYS] = DIGITS.index(digit)
        line["keys_wanted"] = wanted + len(digits)
        sent: asyncio.Future[bool] = self._loop.create_future()
        self._waiting.append((wanted + len(digits), sent))
        if not await sent:
            raise LocalError("the media stream closed before the digits were sent")

    def sent(self, count: int) -> None:
        """So many digits have left by now."""
        while self._waiting and self._waiting[0][0] <= count:
            _settle(self._waiting.pop(0)[1], complete=True)

    def close(self) -> None:
        """Nothing is sent any more."""
        for _, sent in self._waiting:
            _settle(sent, complete=False)


def _settle(sent: asyncio.Future[bool], *, complete: bool) -> None:
    if not sent.done():
        sent.set_result(complete)
