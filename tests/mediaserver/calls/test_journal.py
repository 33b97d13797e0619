"""Call events on their way to the database: in order, through an outage, never more than the bound."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from mediaserver.calls.journal import GATHERED_S, TOGETHER, Journal
from mediaserver.errors import LocalError, StoreUnavailable

pytestmark = pytest.mark.virtual_clock


class Database:
    """Writes what it is given, unless it is away."""

    def __init__(self) -> None:
        self.away = False
        self.written: list[str] = []
        self.attempts = 0

    async def write(self, name: str) -> None:
        self.attempts += 1
        await asyncio.sleep(0)
        if self.away:
            raise StoreUnavailable("locked")
        self.written.append(name)


@asynccontextmanager
async def kept(journal: Journal) -> AsyncIterator[Journal]:
    task = asyncio.create_task(journal.run())
    try:
        yield journal
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def note(
    journal: Journal, database: Database, name: str, *, essential: bool = False, at_once: bool = False
) -> bool:
    return journal.note("call", name, lambda: database.write(name), essential=essential, at_once=at_once)


async def test_events_are_written_in_the_order_noted() -> None:
    database = Database()
    async with kept(Journal()) as journal:
        for number in range(50):
            note(journal, database, str(number))
        assert await journal.flush(5)
    assert database.written == [str(number) for number in range(50)]


async def test_events_wait_out_an_outage_and_keep_their_order() -> None:
    database = Database()
    database.away = True
    async with kept(Journal(retry_s=(0.001,))) as journal:
        for name in ("ringing", "answered", "finish"):
            note(journal, database, name)
        while database.attempts < 2:  # until the test's limit
            await asyncio.sleep(0.001)
        assert not await journal.flush(0.02)
        assert journal.failing
        database.away = False
        assert await journal.flush(5)
        assert not journal.failing
    assert database.written == ["ringing", "answered", "finish"]


async def test_when_full_only_what_decides_a_call_is_kept() -> None:
    database, dropped = Database(), []
    journal = Journal(limit=2, dropped=lambda: dropped.append(1))
    assert note(journal, database, "turn 1")
    assert note(journal, database, "turn 2")
    assert not note(journal, database, "turn 3")
    assert note(journal, database, "finish", essential=True)
    async with kept(journal):
        assert await journal.flush(5)
    assert database.written == ["turn 1", "turn 2", "finish"]
    assert len(dropped) == 1


async def test_an_event_that_can_never_be_written_does_not_hold_up_the_rest() -> None:
    database, done = Database(), []

    async def refused() -> None:
        raise LocalError("unknown call")

    async with kept(Journal()) as journal:
        journal.note("call", "bad", refused, done=lambda: done.append("bad"))
        note(journal, database, "good")
        assert await journal.flush(5)
    assert (done, database.written) == (["bad"], ["good"])


async def test_what_several_calls_have_next_is_written_together_and_each_call_keeps_its_order() -> None:
    at_once, most, written = 0, 0, []

    async def write(call: str, name: str) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        for _ in range(int(call)):  # some take longer than others
            await asyncio.sleep(0)
        at_once -= 1
        written.append((call, name))

    journal = Journal()
    for name in ("dialling", "answered", "finish"):
        for call in range(40):
            journal.note(str(call), name, partial(write, str(call), name))
    async with kept(journal):
        assert await journal.flush(5)
    assert most == TOGETHER
    assert len(written) == 120
    for call in range(40):
        own = [name for noted, name in written if noted == str(call)]
        assert own == ["dialling", "answered", "finish"]


@pytest.mark.parametrize("when", ["essential", "at_once"])
async def test_what_only_informs_waits_for_company_and_what_decides_a_call_does_not(when: str) -> None:
    database, clock = Database(), asyncio.get_running_loop().time
    async with kept(Journal()) as journal:
        note(journal, database, "turn 1")
        await asyncio.sleep(GATHERED_S * 0.9)
        note(journal, database, "turn 2")
        assert database.written == []
        await asyncio.sleep(GATHERED_S * 0.2)
        assert database.written == ["turn 1", "turn 2"]
        note(journal, database, "turn 3")
        began = clock()
        note(journal, database, "finish", **{when: True})
        while len(database.written) < 4:
            await asyncio.sleep(0)
        assert clock() == began
    assert database.written == ["turn 1", "turn 2", "turn 3", "finish"]


async def test_an_outage_in_the_middle_of_several_calls_loses_and_repeats_nothing() -> None:
    database = Database()
    async with kept(Journal(retry_s=(0.001,))) as journal:
        for name in ("a", "b"):
            for call in range(30):
                journal.note(str(call), name, partial(database.write, f"{call}{name}"), essential=True)
        while len(database.written) < 20:
            await asyncio.sleep(0)
        database.away = True
        while not journal.failing:
            await asyncio.sleep(0)
        database.away = False
        assert await journal.flush(5)
    assert sorted(database.written) == sorted(f"{call}{name}" for name in "ab" for call in range(30))
