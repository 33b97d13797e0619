"""The transfer ladder against carriers that treat a REFER in eight ways: nobody lost, nobody called twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.node.node import KEY, Client, Node, bearer, running, until_final
from tests.support.sip.referring_carrier import (
    BEHAVIOURS,
    ReferringCarrier,
    Telephone,
    notified_end,
    referring_carrier,
)
from tests.support.sip.transfers import DESK, HANDS_ON, KINDS, write_ladder_site
from tests.support.waiting import until

CALLERS = {f"+1415555{1000 + place}": treat for place, treat in enumerate(BEHAVIOURS.values())}
NUMBERS = dict(zip(BEHAVIOURS, CALLERS, strict=True))


class Ladder(NamedTuple):
    """A server whose carrier is a script."""

    node: Node
    carrier: ReferringCarrier

    async def transferred(self, number: str, agent: str = HANDS_ON) -> tuple[dict[str, Any], Telephone]:
        """The report of a call to `number` that its agent transferred, and the caller's telephone."""
        report = await until_final(self.node.client, await called(self.node.client, number, agent))
        caller = self.carrier.call_to(number)
        await until(lambda: caller.hung_up_by != "")
        return report, caller


@asynccontextmanager
async def ladder(
    directory: Path, *, refused: Mapping[str, int] | None = None, **options: Any
) -> AsyncIterator[Ladder]:
    site = write_ladder_site(directory, **options)
    ends = {"+14155552486": notified_end(486), "+14155552302": notified_end(302)}
    async with (
        referring_carrier(site.carrier, {**CALLERS, **ends}, refused=refused) as carrier,
        running(site) as node,
    ):
        yield Ladder(node, carrier)


async def called(client: Client, number: str, agent: str) -> str:
    body = {"agentId": agent, "phoneNumber": number, "promptVariables": {"name": "Bo"}}
    async with client.post("/api/v1/calls/outbound", json=body, headers=bearer(KEY)) as answer:
        assert answer.status == 200, await answer.text()
        return str((await answer.json())["data"]["callTaskId"])


async def at_the_desk(carrier: ReferringCarrier, bridged: int) -> None:
    """Presses 1 at each call to the desk, lets people talk for a moment, and hangs up `bridged` calls."""
    done, taking = 0, set[str]()
    while done < bridged:
        for call in list(carrier.calls.values()):
            if call.number != DESK or call.hung_up_by:
                continue
            if call.ear.packets > 100 and call.invite.call_id not in taking:
                taking.add(call.invite.call_id)
                call.key("1")
            if call.ear.packets > 300:
                call.bye()
                done += 1
        await asyncio.sleep(0.05)


REFUSED: dict[str, list[tuple[str, str, int]]] = {
    "603": [("refer_replaces", "refused", 603)],
    "405": [("refer_replaces", "refused", 405)],
    "3xx": [("refer_replaces", "refused", 302)],
}
Tried = list[tuple[str, str, int]]
EXPECTED: dict[str, dict[str, tuple[str, str | None, Tried | None]]] = {
    "blind": {
        "202+NOTIFY": ("answered", "refer", [("refer", "answered", 200)]),
        "603": ("answered", "bridge", [("refer", "refused", 603), ("refer_replaces", "refused", 603)]),
        "405": ("answered", "bridge", [("refer", "refused", 405)]),
        "no NOTIFY": ("unknown", None, [("refer", "unknown", 202)]),
        "early BYE": ("answered", "refer", [("refer", "answered", 200)]),
        "tel:": ("answered", "refer", [("refer", "answered", 200)]),
        "BYE on 202": ("referred", "refer", [("refer", "referred", 202)]),
        "3xx": ("answered", "bridge", [("refer", "refused", 302), ("refer_replaces", "refused", 302)]),
    },
    "attended": {
        name: (
            "answered",
            "bridge" if name in REFUSED or name == "no NOTIFY" else "refer_replaces",
            REFUSED.get(name),
        )
        for name in BEHAVIOURS
    },
}
EXPECTED["warm"] = EXPECTED["attended"]
"""Outcome, rung that served, and what was tried (None: as it comes), by kind and the carrier's behaviour."""


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


@pytest.mark.parametrize("answer", ["2", "hangs up", "busy", "silence"])
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
        "whether the person was called before is not known",
    )
