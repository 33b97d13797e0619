"""Listeners among floods: nobody is taken that there is no room for, and it is said once."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator

import pytest

from sip.stack import listening
from sip.stack.listening import DESCRIPTORS, StreamListener, bind_streams
from tests.support.waiting import until


class Starving(socket.socket):
    """Cannot accept for want of descriptors, `tries` times."""

    tries = 0
    asked = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        if self.asked <= self.tries:
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


class Recorded:
    """A door that keeps what happened."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        self.taken: list[socket.socket] = []
        self.turned_away: list[str] = []

    def refusal(self, host: str) -> str:
        return self.reason

    def take(self, connection: socket.socket, host: str) -> None:
        self.taken.append(connection)

    def turn_away(self, connection: socket.socket, reason: str) -> None:
        self.turned_away.append(reason)


@pytest.fixture
async def bound() -> AsyncIterator[socket.socket]:
    (bound,) = await bind_streams("127.0.0.1", 0)
    yield bound
    bound.close()


async def connected(address: tuple[str, int]) -> None:
    """A client that comes, and goes when the server lets it."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(30):
            await reader.read()
    finally:
        writer.transport.abort()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, object]]:
    return [
        (record.message, getattr(record, "reason", getattr(record, "connections", None)))
        for record in caplog.records
        if record.name == "sip.stack.listening"
    ]


async def test_a_process_without_descriptors_says_so_once_and_tries_again(
    bound: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "RETRY_S", 0.05)
    starving = Starving(fileno=bound.detach())
    starving.tries = 5
    door = Recorded()
    listener = StreamListener("test", starving, door)
    client = asyncio.create_task(connected(listener.address))
    await until(lambda: door.taken)
    assert starving.asked <= 7
    assert lines(caplog) == [("connections refused", DESCRIPTORS)]
    door.taken.pop().close()
    await client
    listener.close()


async def test_descriptors_from_the_ceiling_on_are_not_a_listeners(bound: socket.socket) -> None:
    door = Recorded()
    listener = StreamListener("test", bound, door, ceiling=3)
    await connected(listener.address)
    assert door.turned_away == [DESCRIPTORS]
    assert door.taken == []
    listener.close()


async def test_a_state_of_refusing_is_told_when_it_begins_lasts_and_ends(
    bound: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "REPORT_S", 0.5)
    door = Recorded("all")
    listener = StreamListener("test", bound, door)
    for _ in range(40):
        await connected(listener.address)
    await until(lambda: lines(caplog)[-1][0] == "connections taken again")
    told = lines(caplog)
    assert told[0] == ("connections refused", "all")
    assert told[1][0] == "connections still refused"
    assert len(told) < 10
    assert door.turned_away == ["all"] * 40
    listener.close()
