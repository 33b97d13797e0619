"""Telephones beside the one that a call began with count as calls of their company and their trunk."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from mediaserver.queue.decisions import Rule
from mediaserver.queue.extra_legs import NewLeg
from mediaserver.queue.records import CallStatus, Claim, Outcome
from mediaserver.rooms.web_call import WebCallRequest
from mediaserver.store.store import Store
from tests.support.node.node import KEY, NUMBER, bearer, place_call, running
from tests.support.node.store import (
    TTL_MS,
    Clock,
    agent_of,
    company,
    new_call,
    opened,
    query,
    settings,
    trunk,
    trunk_of,
)
from tests.support.sip.transfers import DESK, HANDS_ON, LISTENS, WEB_KEY, telephones, write_transfer_site
from tests.support.webrtc.rooms import join
from tests.support.webrtc.rtc import rtc_client

PERSON = "+966500000077"
DONE = Outcome(status=CallStatus.COMPLETED, cause="normal", sip_status=200)


async def armed(store: Store, number: str) -> Claim:
    await store.enqueue(new_call(number))
    (claim,) = await store.claim("node", 1, TTL_MS)
    assert await store.arm(claim, TTL_MS)
    return claim


def leg(claim: Claim, leg_id: str = "leg") -> NewLeg:
    return NewLeg(
        id=leg_id,
        call_id=claim.call_id,
        company_id="acme",
        agent_id=agent_of("acme"),
        trunk_id=trunk_of("acme"),
        phone_number=PERSON,
    )


async def test_a_leg_takes_a_call_s_place_until_it_is_left(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme", concurrent=2))) as store:
        claim = await armed(store, "+966500000001")
        assert (await store.take_leg(leg(claim))).rule is None
        full = await store.take_leg(leg(claim, "another"))
        assert (full.rule, full.refused) == (Rule.COMPANY_LIMIT, False)
        assert full.reason == "The company is at its limit of concurrent calls"
        clock.advance(600_000)
        await store.enqueue(new_call("+966500000002"))
        assert await store.claim("node", 1, TTL_MS) == []
        assert await store.leave_leg("leg")
        assert not await store.leave_leg("leg")
        (second,) = await store.claim("node", 1, TTL_MS)
        assert await store.arm(second, TTL_MS)


async def test_a_claimed_call_finds_the_place_taken(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme", concurrent=2))) as store:
        claim = await armed(store, "+966500000001")
        await store.enqueue(new_call("+966500000002"))
        (second,) = await store.claim("node", 1, TTL_MS)
        assert (await store.take_leg(leg(claim))).rule is None
        assert not await store.arm(second, TTL_MS)


async def test_the_legs_of_a_call_that_is_over_count_no_more(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme", concurrent=2))) as store:
        claim = await armed(store, "+966500000001")
        assert (await store.take_leg(leg(claim))).rule is None
        clock.advance(600_000)
        await store.finish(claim, DONE)
        other = await armed(store, "+966500000002")
        assert (await store.take_leg(leg(other, "new"))).rule is None
    assert [row["id"] for row in await query(tmp_path, "SELECT id FROM legs")] == ["new"]


async def test_a_room_that_nobody_is_in_yet_has_its_telephone_counted(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme", concurrent=2))) as store:
        claim = await armed(store, "+966500000001")
        unwritten = replace(leg(claim), call_id="a-room")
        assert (await store.take_leg(unwritten)).rule is None
        assert (await store.take_leg(leg(claim, "another"))).rule is Rule.COMPANY_LIMIT
        clock.advance(120_001)
        assert (await store.take_leg(leg(claim, "another"))).rule is None


async def test_a_leg_is_one_of_its_trunk_s_calls(tmp_path: Path, clock: Clock) -> None:
    configured = settings(company("acme"), trunk=[trunk(max_concurrent_calls=2)])
    async with opened(tmp_path, clock, configured) as store:
        claim = await armed(store, "+966500000001")
        assert (await store.take_leg(leg(claim))).rule is None
        assert (await store.take_leg(leg(claim, "another"))).rule is Rule.TRUNK_LIMIT
        await store.enqueue(new_call("+966500000002"))
        assert await store.claim("node", 1, TTL_MS) == []


async def test_a_colleague_is_called_as_often_and_as_late_as_needed_but_not_against_the_list(
    tmp_path: Path, clock: Clock
) -> None:
    limits = {"contact_limit": {"calls": 1, "per_minutes": 60}, "calling_windows": ["fri 10:00-11:05"]}
    async with opened(tmp_path, clock, settings({**company("acme"), **limits})) as store:
        claim = await armed(store, "+966500000001")  # it is Friday, 11:00
        clock.advance(600_000)
        for number in range(3):
            assert (await store.take_leg(leg(claim, f"leg-{number}"))).rule is None
        await store.add_do_not_call("acme", [PERSON])
        refused = await store.take_leg(leg(claim, "last"))
        assert (refused.rule, refused.refused) == (Rule.DO_NOT_CALL, True)


# With telephones --------------------------------------------------------------------------------------------


async def test_a_transfer_is_refused_where_the_company_is_full(tmp_path: Path) -> None:
    site = write_transfer_site(tmp_path).limit("acme", 1)
    async with telephones(site) as people, running(site) as (_, client):
        url = f"/api/v1/calls/{await place_call(client, HANDS_ON)}"
        await people.answered(NUMBER)
        call: dict[str, object] = {}
        async with asyncio.timeout(30):
            while not call.get("endedAt"):
                await asyncio.sleep(0.05)
                async with client.get(url, headers=bearer(KEY)) as answer:
                    call = await answer.json()
    assert call["analysis"]["transfer"]["outcome"] == "refused"  # type: ignore[index]
    assert call["analysis"]["transfer"]["reason"] == "The company is at its limit of concurrent calls"  # type: ignore[index]
    assert DESK not in people.calls


async def test_a_telephone_is_called_into_a_room_only_where_there_is_a_place(tmp_path: Path) -> None:
    site = write_transfer_site(tmp_path).limit("desk", 2)
    async with telephones(site) as people, running(site) as (server, client), rtc_client(tone=500) as rtc:
        ticket = server.room_registry.invite("desk", WebCallRequest(agent_id=LISTENS, user_ref="ann"))
        await join(client, rtc, ticket.token)
        await rtc.event("sound")
        url = f"/api/v1/rooms/{ticket.room_name}/participants"

        async def call_in() -> tuple[int, str]:
            async with client.post(url, json={"phoneNumber": DESK}, headers=bearer(WEB_KEY)) as answer:
                return answer.status, (await answer.json()).get("error", "")

        assert await call_in() == (200, "")
        phone = await people.answered(DESK)
        status, error = await call_in()
        assert status == 429
        assert "limit of concurrent calls" in error
        await phone.hang_up()
        del people.calls[DESK]
        async with asyncio.timeout(30):
            while (await call_in())[0] != 200:  # its place is free as soon as that is written
                await asyncio.sleep(0.05)
        await people.answered(DESK)
        await rtc.end()
