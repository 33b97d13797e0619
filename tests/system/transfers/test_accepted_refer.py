"""A far end that refers an agent to somebody else: obeyed only where trunk and targets say so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mediaserver.calls.outbound_legs import LinesBusy, OutboundLegs, Route
from mediaserver.queue.extra_legs import NewLeg
from tests.support.node.node import KEY, bearer, place_call, until_final
from tests.support.sip.ladder import NUMBERS, Ladder, ladder
from tests.support.sip.referring_carrier import Telephone
from tests.support.sip.transfers import ASKS, ASKS_AND_HANDS_ON, DESK
from tests.support.waiting import until

OBEYS = "accept_refer = true\nmedia_timeout_s = 600"  # the carrier sends no audio


async def talking(line: Ladder, agent: str = ASKS) -> tuple[str, Telephone]:
    """A call whose agent has begun to speak."""
    call_id = await place_call(line.node.client, agent, number=NUMBERS["405"])
    await until(lambda: NUMBERS["405"] in line.carrier.dialled)
    caller = line.carrier.call_to(NUMBERS["405"])
    await until(lambda: caller.ear.packets > 25)
    return call_id, caller


def told(caller: Telephone) -> list[str]:
    """What the NOTIFYs say, each with its Subscription-State."""
    states = [(each.header("Subscription-State") or "").partition(";")[0] for each in caller.notified]
    said = [each.body.decode().split()[1] for each in caller.notified]
    return [f"{status} {state}" for status, state in zip(said, states, strict=True)]


@pytest.mark.parametrize("leaves", [False, True])
async def test_the_agent_goes_on_with_whom_the_far_end_names(tmp_path: Path, leaves: bool) -> None:
    async with ladder(tmp_path, trunk=OBEYS) as line:
        call_id, caller = await talking(line)
        caller.refer(f"sip:{DESK}@anywhere.example")
        if leaves:
            await until(lambda: 202 in caller.answers)
            caller.bye()
        await until(lambda: DESK in line.carrier.dialled)
        desk = line.carrier.call_to(DESK)
        await until(lambda: desk.ear.packets > 25)
        await until(lambda: told(caller) == ["100 active", "200 terminated"])
        await until(lambda: caller.hung_up_by == "server" or (leaves and caller.hung_up_by))
        async with line.node.client.get(f"/api/v1/calls/{call_id}", headers=bearer(KEY)) as answer:
            assert (await answer.json())["status"] == "ANSWERED"
        desk.bye()
        report = await until_final(line.node.client, call_id)
        assert line.node.server.endpoint.stats.rtp_ports_used == 0
    assert (report["status"], report["endedBy"]) == ("COMPLETED", "remote")
    assert caller.answers[0] == 202


@pytest.mark.parametrize(
    "to", ["sip:+14155550199@127.0.0.1", "sip:far@127.0.0.1", "tel:+4930123456", "sip:room%3Aany@127.0.0.1"]
)
async def test_a_refer_leads_nowhere_that_a_transfer_could_not(tmp_path: Path, to: str) -> None:
    async with ladder(tmp_path, trunk=OBEYS) as line:
        _, caller = await talking(line)
        caller.refer(to)
        await until(lambda: told(caller) == ["100 active", "603 terminated"])
        assert caller.answers == [202]
        assert line.carrier.dialled == [NUMBERS["405"]]
        heard = caller.ear.packets
        await until(lambda: caller.ear.packets > heard)  # the call goes on
        caller.bye()
        await asyncio.sleep(0.2)


async def test_a_person_is_called_once_however_often_a_far_end_asks(tmp_path: Path) -> None:
    async with ladder(tmp_path, trunk=OBEYS, refused={DESK: 486}) as line:
        _, caller = await talking(line)
        caller.refer(f"sip:{DESK}@127.0.0.1")
        await until(lambda: told(caller)[-1:] == ["486 terminated"])
        caller.refer(f"tel:{DESK}")
        await until(lambda: told(caller)[-1:] == ["603 terminated"])
        assert line.carrier.dialled.count(DESK) == 1
        caller.bye()
        await asyncio.sleep(0.2)


async def test_whom_no_invite_could_reach_may_be_named_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time the server has no place for one more call."""
    async with ladder(tmp_path, trunk=OBEYS) as line:
        _, caller = await talking(line)
        with monkeypatch.context() as full:
            full.setattr(OutboundLegs, "_place", _at_its_limit)
            caller.refer(f"sip:{DESK}@127.0.0.1")
            await until(lambda: told(caller)[-1:] == ["603 terminated"])
        assert DESK not in line.carrier.dialled
        caller.refer(f"sip:{DESK}@127.0.0.1")
        await until(lambda: DESK in line.carrier.dialled)
        line.carrier.call_to(DESK).bye()
        caller.bye()
        await asyncio.sleep(0.2)


async def _at_its_limit(legs: OutboundLegs, route: Route, leg_of: str) -> NewLeg:
    raise LinesBusy("the company is at its limit of concurrent calls")


# Whom both name, the far end by REFER and the agent by its own transfer --------------------------------


async def handed_on(telephone: Telephone) -> str:
    """Presses the key at which the agent hands its caller on; returns who has hung up three seconds later."""
    heard = telephone.ear.packets
    telephone.key("1")
    await until(lambda: telephone.ear.packets > heard + 150 or telephone.hung_up_by)
    return telephone.hung_up_by


@pytest.mark.parametrize("status", [486, pytest.param(0, marks=pytest.mark.nightly("ci"))])
async def test_whom_a_refer_named_before_is_not_called_by_the_agents_transfer(
    tmp_path: Path, status: int
) -> None:
    """The desk is busy, or its telephone answers nothing at all."""
    async with ladder(tmp_path, trunk=OBEYS, refused={DESK: status}) as line:
        call_id, caller = await talking(line, ASKS_AND_HANDS_ON)
        caller.refer(f"sip:{DESK}@127.0.0.1")
        await until(lambda: told(caller)[-1:] not in ([], ["100 active"]), 40)
        assert await handed_on(caller) == ""
        caller.bye()
        report = await until_final(line.node.client, call_id)
        assert line.carrier.dialled.count(DESK) == 1
    assert_refused(report)


async def test_whom_a_refer_is_ringing_is_not_called_by_the_agents_transfer(tmp_path: Path) -> None:
    async with ladder(tmp_path, trunk=OBEYS, refused={DESK: 180}) as line:
        call_id, caller = await talking(line, ASKS_AND_HANDS_ON)
        caller.refer(f"sip:{DESK}@127.0.0.1")
        caller.key("1")
        await until(lambda: DESK in line.carrier.dialled)
        await until(lambda: told(caller)[-1:] == ["503 terminated"])
        heard = caller.ear.packets
        await until(lambda: caller.ear.packets > heard + 150)
        assert caller.hung_up_by == ""
        caller.bye()
        report = await until_final(line.node.client, call_id)
        assert line.carrier.dialled.count(DESK) == 1
    assert_refused(report)


async def test_the_agents_transfer_does_not_call_whom_it_talks_with(tmp_path: Path) -> None:
    """The far end has referred the agent to the desk, which asks for the desk."""
    async with ladder(tmp_path, trunk=OBEYS) as line:
        call_id, caller = await talking(line, ASKS_AND_HANDS_ON)
        caller.refer(f"sip:{DESK}@127.0.0.1")
        await until(lambda: told(caller)[-1:] == ["200 terminated"])
        desk = line.carrier.call_to(DESK)
        assert await handed_on(desk) == ""
        desk.bye()
        report = await until_final(line.node.client, call_id)
        assert line.carrier.dialled.count(DESK) == 1
    assert_refused(report)


async def test_whom_the_agents_transfer_called_before_no_refer_calls(tmp_path: Path) -> None:
    async with ladder(tmp_path, trunk=OBEYS, refused={DESK: 0}) as line:
        call_id, caller = await talking(line, ASKS_AND_HANDS_ON)
        caller.key("1")
        await until(lambda: DESK in line.carrier.dialled)
        for pause_s in (7, 1):  # while the agent's transfer rings, and with the agent back
            caller.refer(f"sip:{DESK}@127.0.0.1")
            await asyncio.sleep(pause_s)
        assert set(told(caller)) <= {"100 active", "603 terminated"}
        caller.bye()
        await until_final(line.node.client, call_id)
        assert line.carrier.dialled.count(DESK) == 1


async def test_whom_the_call_was_placed_to_is_not_called_again(tmp_path: Path) -> None:
    async with ladder(tmp_path, trunk=OBEYS) as line:
        line.carrier.calls.clear()
        await place_call(line.node.client, ASKS_AND_HANDS_ON, number=DESK)
        await until(lambda: DESK in line.carrier.dialled)
        desk = line.carrier.call_to(DESK)
        await until(lambda: desk.ear.packets > 25)
        desk.refer(f"sip:{DESK}@127.0.0.1")
        await until(lambda: told(desk)[-1:] == ["603 terminated"])
        assert await handed_on(desk) == ""
        assert line.carrier.dialled == [DESK]
        desk.bye()
        await asyncio.sleep(0.2)


def assert_refused(report: dict[str, Any]) -> None:
    transfer = report["analysis"]["transfer"]
    assert (transfer["outcome"], transfer["reason"]) == (
        "refused",
        "the person was called before in this call",
    )


async def test_a_trunk_obeys_no_refer_unless_it_says_so(tmp_path: Path) -> None:
    async with ladder(tmp_path) as line:
        _, caller = await talking(line)
        caller.refer(f"sip:{DESK}@127.0.0.1")
        await until(lambda: caller.answers == [405])
        assert "REFER" not in (caller.invite.header("Allow") or "")
        caller.bye()
        await asyncio.sleep(0.2)
    assert caller.notified == []
