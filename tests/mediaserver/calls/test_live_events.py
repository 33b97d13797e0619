"""Events of live calls: told to those who may know, bounded for each, kept for those who come back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mediaserver.admin.access import Access
from mediaserver.calls import live_events
from mediaserver.calls.live_events import LiveEvent, LiveEvents, LiveReader, Lost
from mediaserver.errors import TooMany, Unavailable
from tests.support.claims import claim

CLAIM = claim()
MINE = Access(CLAIM.company_id)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def tell(live: LiveEvents, *texts: str) -> None:
    for text in texts:
        live.tell("call.words", CLAIM, 1, {"text": text})


async def got(reader: LiveReader) -> list[Any]:
    async with asyncio.timeout(1):
        found = await reader.get()
    return [each.data["text"] if isinstance(each, LiveEvent) else each for each in found]


def waits(reader: LiveReader) -> bool:
    return not reader._came.is_set()


async def test_readers_get_what_their_key_may_see_and_what_they_asked_for() -> None:
    live = LiveEvents()
    mine = live.listen(MINE)
    narrow = live.listen(MINE, wanted=lambda event: event.call_id == "another")
    agents = live.listen(Access(CLAIM.company_id, frozenset({"another-agent"})))
    others = live.listen(Access("other"))
    tell(live, "hello")
    assert await got(mine) == ["hello"]
    assert [waits(each) for each in (narrow, agents, others)] == [True, True, True]


async def test_nothing_is_kept_where_nobody_listens() -> None:
    clock = Clock()
    live = LiveEvents(clock)
    tell(live, "unheard")
    assert not live.heard
    reader = live.listen(MINE)
    assert waits(reader)
    live.leave(reader)
    assert live.heard, "somebody may come back"
    clock.now += live_events.RESUME_S
    assert not live.heard
    assert not live._ring


async def test_a_slow_reader_loses_the_oldest_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_events, "WAITING", 3)
    live = LiveEvents()
    slow, fast = live.listen(MINE), live.listen(MINE)
    for text in "abcde":
        tell(live, text)
        assert await got(fast) == [text]
    assert await got(slow) == [Lost(2), "c", "d", "e"]
    tell(live, "f")
    assert await got(slow) == ["f"]


async def test_a_reader_that_comes_back_goes_on_where_it_was() -> None:
    clock = Clock()
    live = LiveEvents(clock)
    first = live.listen(MINE)
    tell(live, "a", "b")
    seen = await first.get()
    assert isinstance(seen[0], LiveEvent)
    after = live.id_of(seen[0])
    live.leave(first)
    tell(live, "c")
    assert await got(live.listen(MINE, after=after)) == ["b", "c"]
    assert waits(live.listen(MINE, after=f"{live.run}-3")), "nothing was missed"


@pytest.mark.parametrize("after", ["nonsense", "another-run-2", "-", "{run}-99", "{run}-x", "{run}-٣"])
async def test_a_place_that_is_not_known_is_said_to_be_lost(after: str) -> None:
    live = LiveEvents()
    live.listen(MINE)
    tell(live, "a", "b")
    assert await got(live.listen(MINE, after=after.replace("{run}", live.run))) == [Lost(None)]


async def test_a_place_that_has_left_the_ring_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_events, "RING", 2)
    live = LiveEvents()
    live.listen(MINE)
    tell(live, "a", "b", "c", "d")
    assert await got(live.listen(MINE, after=f"{live.run}-1")) == [Lost(None)]
    assert await got(live.listen(MINE, after=f"{live.run}-2")) == ["c", "d"]


@pytest.mark.parametrize("another", [False, True])
async def test_what_nobody_was_told_is_said_to_be_lost(another: bool) -> None:
    clock = Clock()
    live = LiveEvents(clock)
    first = live.listen(MINE)
    tell(live, "a")
    [seen] = await first.get()
    assert isinstance(seen, LiveEvent)
    live.leave(first)
    clock.now += live_events.RESUME_S
    tell(live, "while nobody listens")
    if another:
        live.listen(MINE)
        tell(live, "b")
    assert await got(live.listen(MINE, after=live.id_of(seen))) == [Lost(None)]


async def test_words_are_kept_no_longer_than_they_can_be_asked_for() -> None:
    clock = Clock()
    live = LiveEvents(clock)
    live.listen(MINE)
    tell(live, "a")
    clock.now += live_events.RESUME_S
    assert await got(live.listen(MINE, after=f"{live.run}-0")) == [Lost(None)]
    tell(live, "b")
    assert await got(live.listen(MINE, after=f"{live.run}-1")) == ["b"]


async def test_readers_have_a_limit_and_end_with_the_node() -> None:
    live = LiveEvents()
    readers = [live.listen(MINE) for _ in range(live_events.READERS_OF_COMPANY)]
    with pytest.raises(TooMany):
        live.listen(MINE)
    live.listen(Access("other"))
    live.close()
    assert await readers[0].get() == []
    assert readers[0].closed
    with pytest.raises(Unavailable):
        live.listen(MINE)
