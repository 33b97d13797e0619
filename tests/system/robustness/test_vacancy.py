"""`max_concurrent_calls` counts every call: phone in, phone out, browsers. However many come at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mediaserver.errors import RuleBroken
from mediaserver.queue.decisions import Rule
from mediaserver.queue.records import CallStatus, Claim, NewInboundCall, NewWebCall, Outcome
from mediaserver.store.store import Store
from tests.support.node.node import DATABASES, Site, bearer, database_on, running, write_site
from tests.support.node.store import (
    TTL_MS,
    Clock,
    agent_of,
    company,
    new_call,
    new_inbound,
    opened,
    settings,
    trunk,
)
from tests.support.sip.raw_call import RawCall
from tests.support.webrtc.rooms import AGENT as WEB_AGENT
from tests.support.webrtc.rooms import CALLS_KEY, bearing, invite, join, write_web_site
from tests.support.webrtc.rtc import rtc_client

FRONT_DESK = "+14155550101"
DONE = Outcome(status=CallStatus.COMPLETED, cause="normal", sip_status=200)


# In the store -----------------------------------------------------------------------------------------------


def inbound(number: int) -> NewInboundCall:
    return new_inbound(f"+96650000{number:04}", called_number="+966110000000")


def web(number: int) -> NewWebCall:
    return NewWebCall(call_id=f"room-{number}", company_id="acme", agent_id=agent_of("acme"), webhook_id="wh")


async def dialled(store: Store) -> Claim | None:
    """One call of the queue, armed; None where there is no place."""
    for claim in await store.claim("node", 1, TTL_MS):
        if await store.arm(claim, TTL_MS):
            return claim
    return None


async def test_of_calls_of_every_kind_that_come_at_once_as_many_get_in_as_may(
    tmp_path: Path, clock: Clock
) -> None:
    async with opened(tmp_path, clock, settings(company("acme", concurrent=3))) as store:
        await store.enqueue(new_call("+966500000001"))
        tried = await asyncio.gather(
            *(store.record_inbound(inbound(number), node="node", ttl_ms=TTL_MS) for number in range(4)),
            *(store.record_web_call(web(number), node="node", ttl_ms=TTL_MS) for number in range(4)),
            dialled(store),
            return_exceptions=True,
        )
        taken = [each for each in tried if isinstance(each, Claim)]
        refused = [each for each in tried if isinstance(each, BaseException)]
        assert len(taken) == 3
        assert {type(each) for each in refused} == {RuleBroken}
        await store.finish(taken[0], DONE)
        again = [store.record_inbound(inbound(number), node="node", ttl_ms=TTL_MS) for number in (5, 6)]
        first, second = await asyncio.gather(*again, return_exceptions=True)
        full = first if isinstance(first, RuleBroken) else second
    assert isinstance(full, RuleBroken)
    assert full.rule == Rule.COMPANY_LIMIT
    assert {type(first), type(second)} == {Claim, RuleBroken}


async def test_a_trunk_s_limit_holds_for_calls_that_come_in_and_not_for_browsers(
    tmp_path: Path, clock: Clock
) -> None:
    configured = settings(company("acme"), trunk=[trunk(max_concurrent_calls=1)])
    async with opened(tmp_path, clock, configured) as store:
        first = await store.record_inbound(inbound(1), node="node", ttl_ms=TTL_MS)
        with pytest.raises(RuleBroken) as full:
            await store.record_inbound(inbound(2), node="node", ttl_ms=TTL_MS)
        assert full.value.rule == Rule.TRUNK_LIMIT
        await store.record_web_call(web(1), node="node", ttl_ms=TTL_MS)
        await store.finish(first, DONE)
        await store.record_inbound(inbound(3), node="node", ttl_ms=TTL_MS)


async def test_a_place_that_is_held_for_a_room_is_nobody_else_s(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme", concurrent=2))) as store:
        for room in ("room-1", "room-2", "room-1"):
            assert (await store.hold_place("acme", room)).rule is None
        assert (await store.hold_place("acme", "room-3")).rule is Rule.COMPANY_LIMIT
        assert (await store.vacancy("acme")).rule is Rule.COMPANY_LIMIT
        with pytest.raises(RuleBroken):
            await store.record_inbound(inbound(1), node="node", ttl_ms=TTL_MS)
        await store.record_web_call(web(1), node="node", ttl_ms=TTL_MS)
        assert (await store.vacancy("acme")).rule is Rule.COMPANY_LIMIT  # it took its place, not one more
        await store.leave_leg("room-2")
        assert (await store.vacancy("acme")).rule is None
        assert (await store.hold_place("acme", "room-4")).rule is None
        clock.advance(120_001)
        assert (await store.vacancy("acme")).rule is None  # nobody came


# At the outside ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", DATABASES)
async def test_the_fourth_caller_of_three_hears_that_it_is_busy(tmp_path: Path, engine: str) -> None:
    with database_on(engine) as url:
        site = write_site(tmp_path, database=url).limit("acme", 3)
        async with running(site), AsyncExitStack() as ends:
            callers = [await ends.enter_async_context(RawCall(site.sip, FRONT_DESK)) for _ in range(8)]
            for caller in callers:
                caller.invite()
            finals = await asyncio.gather(*(caller.final() for caller in callers))
            assert Counter(final.status for final in finals) == {200: 3, 486: 5}
            for caller, final in zip(callers, finals, strict=True):
                caller.take_tag(final)
                caller.send(caller.request("ACK", cseq=1))
            up = next(caller for caller, final in zip(callers, finals, strict=True) if final.status == 200)
            await up.hang_up()
            async with asyncio.timeout(20):
                while await answer(site) != 200:  # its place is free as soon as its end is written
                    await asyncio.sleep(0.05)


async def answer(site: Site) -> int:
    """What one more caller hears."""
    async with RawCall(site.sip, FRONT_DESK) as caller:
        caller.invite()
        final = await caller.final()
        caller.take_tag(final)
        caller.send(caller.request("ACK", cseq=1))
        return final.status


@pytest.mark.parametrize("engine", DATABASES)
async def test_browsers_count_and_are_told_before_they_are_connected(tmp_path: Path, engine: str) -> None:
    with database_on(engine) as url:
        site = write_web_site(tmp_path)
        site.change('database = ""', f'database = "{url}"').limit("web", 1)
        async with running(site) as (server, client), rtc_client(tone=500) as rtc:
            late = invite(server)  # its page was opened while there was a place
            await join(client, rtc, invite(server).token)
            offer = "v=0\r\n"
            async with client.post("/rtc/whip", data=offer, headers=bearing(late.token)) as refused:
                assert refused.status == 503
                assert int(refused.headers["Retry-After"]) > 0
                assert "limit of concurrent calls" in (await refused.json())["error"]
            await rtc.event("sound")
            body = {"agentId": WEB_AGENT, "userRef": "bo"}
            url_of = "/api/v1/web-calls/connect"
            async with client.post(url_of, json=body, headers=bearer(CALLS_KEY)) as refused:
                assert refused.status == 429
                assert int(refused.headers["Retry-After"]) > 0
                assert "limit of concurrent calls" in (await refused.json())["error"]
            await rtc.end()
            async with asyncio.timeout(20):
                while True:
                    async with client.post(url_of, json=body, headers=bearer(CALLS_KEY)) as answered:
                        if answered.status == 200:
                            break
                    await asyncio.sleep(0.05)
