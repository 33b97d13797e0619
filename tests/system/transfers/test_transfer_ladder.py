"""The transfer ladder against carriers that treat a REFER in eight ways: nobody lost, nobody called twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.sip.ladder import EXPECTED, NUMBERS, at_the_desk, ladder
from tests.support.sip.referring_carrier import BEHAVIOURS
from tests.support.sip.transfers import DESK, KINDS
from tests.support.waiting import until


@pytest.mark.parametrize("kind", KINDS)
async def test_a_transfer_goes_by_the_rung_that_the_carrier_takes(tmp_path: Path, kind: str) -> None:
    bridged = sum(rung == "bridge" for _, rung, _ in EXPECTED[kind].values())
    async with ladder(tmp_path) as line:
        desk = asyncio.create_task(at_the_desk(line.carrier, bridged))
        reports = await asyncio.gather(
            *(line.transferred(number, KINDS[kind]) for number in NUMBERS.values())
        )
        await asyncio.wait_for(desk, 30)
        assert line.node.server.endpoint.stats.rtp_ports_used == 0
        assert line.carrier.dialled.count(DESK) == (bridged if kind == "blind" else len(BEHAVIOURS))
    for name, (report, caller) in zip(BEHAVIOURS, reports, strict=True):
        outcome, rung, known = EXPECTED[kind][name]
        transfer = report["analysis"]["transfer"]
        tried = [(each["rung"], each["outcome"], each["status"]) for each in transfer["tried"]]
        assert (transfer["outcome"], transfer.get("rung")) == (outcome, rung), (name, transfer)
        assert known in (None, tried), name
        assert report["status"] == "COMPLETED", name
        assert set(caller.answers) <= {200}, name
        assert caller.ear.longest_gap_s < 1.0, name
        if kind == "blind":  # one way to the person, whatever the carrier does
            taken = [each for each in tried if each[1] not in ("refused", "not_allowed")]
            assert len(taken) + (rung == "bridge") == 1, name


async def test_the_person_is_named_to_the_carrier_in_its_format_and_by_whom(tmp_path: Path) -> None:
    async with ladder(tmp_path) as line:
        _, caller = await line.transferred(NUMBERS["tel:"])
        port = line.carrier.port
    assert caller.referred == [f"<sip:{DESK}@127.0.0.1:{port}>", f"<tel:{DESK}>"]


@pytest.mark.parametrize(
    ("number", "outcome", "dials"), [("+14155552486", "busy", 0), ("+14155552302", "answered", 1)]
)
async def test_only_who_was_not_called_by_the_carrier_is_called_from_here(
    tmp_path: Path, number: str, outcome: str, dials: int
) -> None:
    async with ladder(tmp_path) as line:
        desk = asyncio.create_task(at_the_desk(line.carrier, dials))
        report, _ = await line.transferred(number)
        await asyncio.wait_for(desk, 30)
        assert line.carrier.dialled.count(DESK) == dials
    assert report["analysis"]["transfer"]["outcome"] == outcome


async def test_a_trunk_that_may_only_refer_tells_the_caller_when_the_carrier_does_not(tmp_path: Path) -> None:
    async with ladder(tmp_path, transfer="refer") as line:
        report, caller = await line.transferred(NUMBERS["405"])
        assert line.carrier.dialled.count(DESK) == 0
    assert report["analysis"]["transfer"]["outcome"] == "refused"
    assert caller.ear.packets > 50  # "One moment." and "Nobody is there."


async def test_a_trunk_that_bridges_sends_no_refer(tmp_path: Path) -> None:
    async with ladder(tmp_path, transfer="bridge") as line:
        desk = asyncio.create_task(at_the_desk(line.carrier, 1))
        report, caller = await line.transferred(NUMBERS["202+NOTIFY"])
        await desk
    assert caller.referred == []
    assert report["analysis"]["transfer"]["rung"] == "bridge"


# Back with the agent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", ["2", "hangs up", "busy", pytest.param("silence", marks=pytest.mark.nightly("ci"))]
)
async def test_whom_nobody_takes_is_back_with_the_agent(tmp_path: Path, answer: str) -> None:
    refused = {DESK: 486} if answer == "busy" else None
    async with ladder(tmp_path, transfer="bridge", refused=refused) as line:
        asking = asyncio.create_task(line.transferred(NUMBERS["405"], KINDS["warm"]))
        if answer != "busy":
            await until(lambda: DESK in line.carrier.dialled)
            desk = line.carrier.call_to(DESK)
            await until(lambda: desk.ear.packets > 100)
            if answer == "2":
                desk.key("2")
            elif answer == "hangs up":
                desk.bye()
        report, caller = await asyncio.wait_for(asking, 90)
        assert line.carrier.dialled.count(DESK) == 1
        if answer != "busy":
            assert desk.hung_up_by == ("carrier" if answer == "hangs up" else "server")
    outcome = "busy" if answer == "busy" else "declined"
    assert report["analysis"]["transfer"]["outcome"] == outcome
    assert (report["status"], report["analysis"]["disposition"]) == ("COMPLETED", "came_back")
    said = [(line["text"], line["startMs"]) for line in report["transcript"] if line["role"] == "agent"]
    assert [text for text, _ in said] == ["One moment.", "Nobody took it. Goodbye."]
    assert said[0][1] < said[1][1]
    assert [turn["turn"] for turn in report["turns"]] == [1, 2]
    assert caller.ear.longest_gap_s < 1.0


async def test_whoever_may_have_been_called_is_not_called_again(tmp_path: Path) -> None:
    """The person's telephone answers nothing at all, and the agent tries once more."""
    async with ladder(tmp_path, transfer="bridge", refused={DESK: 0}, insists=True) as line:
        report, _ = await asyncio.wait_for(line.transferred(NUMBERS["405"], KINDS["attended"]), 100)
        assert line.carrier.dialled.count(DESK) == 1
    transfer = report["analysis"]["transfer"]
    assert (transfer["outcome"], transfer["reason"]) == (
        "refused",
        "the person was called before in this call",
    )
