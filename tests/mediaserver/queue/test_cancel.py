"""Cancelling against dialling, from outside: HTTP at one end of the server, the wire at the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from mediaserver.queue.cancel import COMPANY_REMOVED, PATIENCE_MS
from mediaserver.queue.records import CallStatus, Stage
from mediaserver.store.config import agent_row, company_row, trunk_row
from mediaserver.store.managed import Kind
from tests.support.hostile.trap import Trap
from tests.support.node.node import running, write_site
from tests.support.node.races import Race
from tests.support.node.store import Clock, company, new_call, opened, queued, record_of, settings
from tests.support.udp import bound


@pytest.mark.slow
@pytest.mark.parametrize("times", [200, pytest.param(1000, marks=pytest.mark.nightly("ci"))])
async def test_a_call_that_was_cancelled_does_not_ring(tmp_path: Path, times: int) -> None:
    site = write_site(tmp_path)
    site.add("[server]", "requests_per_minute = 1000000").limit("acme", 1000)
    async with bound(Trap(), port=site.carrier) as trap, running(site) as (_, client):
        race = Race(client.request)
        await race.run([f"+1415555{place:04d}" for place in range(times)])
        await race.settled()
    assert len(race.placed) == times
    race.check(trap)


async def test_calls_of_a_company_that_is_taken_away_are_cancelled_with_the_reason(
    tmp_path: Path, clock: Clock
) -> None:
    configured = settings()
    async with opened(tmp_path, clock, configured) as store:
        made = settings(company("made"))
        await store.put(Kind.COMPANY, company_row(made.companies[0]), "sealed", new=True)
        await store.put(Kind.TRUNK, trunk_row(made.trunks[0]), "sealed", new=True)
        await store.put(Kind.AGENT, agent_row(made.agents[0]), "sealed", new=True)
        later = new_call(company_id="made", not_before_ms=clock.now_ms + 10**9)
        theirs = await store.enqueue(later)
        (ours,) = await queued(store, 1)
        assert (await store.reap_expired()).orphaned == ()
        await store.remove(Kind.COMPANY, "made")
        assert (await store.reap_expired()).orphaned == (theirs.id,)
        record = await store.call("made", theirs.id)
        assert record is not None
        assert (record.status, record.cause) == (CallStatus.CANCELLED, COMPANY_REMOVED)
        assert record.error == "The company was removed"
        still = await record_of(store, ours.id)
        assert still.stage is Stage.QUEUED


async def test_a_company_that_is_missing_from_the_file_for_a_while_loses_nothing(
    tmp_path: Path, clock: Clock
) -> None:
    before, without = settings(company("acme"), company("other")), settings(company("other"))
    async with opened(tmp_path, clock, before) as store:
        (call,) = await queued(store, 1)
        await store.sync_file(without)
        clock.advance(PATIENCE_MS - 1)
        assert (await store.reap_expired()).orphaned == ()
        assert await store.claim("n", 5, 30_000) == []
        await store.sync_file(before)
        clock.advance(2)
        assert (await store.reap_expired()).orphaned == ()
        await store.sync_file(without)
        assert (await store.reap_expired()).orphaned == (call.id,)
