"""Does the event loop, where no thread can, send what is due between its ticks?"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest

from pipeline.plane.address import sockaddr
from pipeline.plane.drive.contract import Memory
from pipeline.plane.drive.on_loop import OnLoop
from pipeline.plane.outgoing import Outgoing
from pipeline.plane.rows import rows, shared
from pipeline.plane.setup import begin_sending, configure_sending, prepare
from sip.rtp.media_formats import sending
from tests.support.speech.media import VirtualClock, plan

MS = 0.001


class Loop(VirtualClock):
    """An event loop's clock. Nothing comes from the far end."""

    def call_soon(self, call: Callable[[], None]) -> object:
        return self.call_at(self.time(), call)

    def add_reader(self, *_: object) -> None: ...

    def remove_reader(self, *_: object) -> None: ...


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.socket(type=socket.SOCK_DGRAM) as ours, socket.socket(type=socket.SOCK_DGRAM) as theirs:
        for each in (ours, theirs):
            each.bind(("127.0.0.1", 0))
            each.setblocking(False)
        yield ours, theirs


def test_a_lead_is_given_back_between_the_ticks(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    loop, lines = Loop(), rows(1)
    line = lines[0]
    drive = OnLoop(Memory(lines, shared(), []), cast(Any, loop), lambda: None)
    prepare(line, 0, rate_hz=8000, patience_ms=40)
    begin_sending(line, ours.fileno(), first_due_ns=round(loop.time() * 1e9))
    configure_sending(line, sending(plan()))
    address = sockaddr(theirs.getsockname())
    line["remote"][: len(address)], line["remote_size"] = list(address), len(address)
    drive.watch(ours, 0)
    agent = Outgoing(line, drive.poke)
    moments = arrivals(loop, theirs, 507)
    agent.say([np.full(160, 5000, np.int16)] * 5)
    moments += arrivals(loop, theirs, 1000)
    drive.forget(ours, 0)
    drive.close()
    assert moments[-1] - moments[0] > 1400
    assert int(line["lead_ns"]) == 0
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert 21 in gaps
    assert max(gaps) <= 22  # of times in whole milliseconds


def arrivals(loop: Loop, theirs: socket.socket, ms: int) -> list[int]:
    """When packets came in the next `ms`."""
    moments = []
    for _ in range(ms):
        loop.advance(MS)
        try:
            while theirs.recv(2048):
                moments.append(round(loop.time() / MS))
        except BlockingIOError:
            continue
    return moments
