"""The transfer ladder against carriers that treat a REFER in eight ways: nobody lost, nobody called twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.node.node import KEY, Client, Node, Site, bearer, running, until_final
from tests.support.sip.referring_carrier import (
    BEHAVIOURS,
    ReferringCarrier,
    Telephone,
    notified_end,
    referring_carrier,
)
from tests.support.sip.transfers import DESK, HANDS_ON, write_transfer_site
from tests.support.waiting import until

CALLERS = {f"+1415555{1000 + place}": treat for place, treat in enumerate(BEHAVIOURS.values())}
NUMBERS = dict(zip(BEHAVIOURS, CALLERS, strict=True))


def ladder_site(directory: Path, *, transfer: str = "auto", more: str = "") -> Site:
    site = write_transfer_site(directory)
    site.change("transfer_ring_s = 20", "transfer_ring_s = 5")
    return site.add('[[trunk]]\nid = "carrier"', f'transfer = "{transfer}"\n{more}')


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
    site = ladder_site(directory, **options)
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


async def hang_up_desk(carrier: ReferringCarrier, count: int) -> None:
    """Lets the people who were called by the server talk for a moment, and hang up."""
    done = 0
    while done < count:
        for call in list(carrier.calls.values()):
            if call.number == DESK and not call.hung_up_by and call.ear.packets > 50:
                call.bye()
                done += 1
        await asyncio.sleep(0.05)


BLIND = {
    "202+NOTIFY": ("answered", "refer", [("refer", "answered", 200)]),
    "603": ("answered", "bridge", [("refer", "refused", 603), ("refer_replaces", "refused", 603)]),
    "405": ("answered", "bridge", [("refer", "refused", 405)]),
    "no NOTIFY": ("unknown", None, [("refer", "unknown", 202)]),
    "early BYE": ("answered", "refer", [("refer", "answered", 200)]),
    "tel:": ("answered", "refer", [("refer", "answered", 200)]),
    "BYE on 202": ("referred", "refer", [("refer", "referred", 202)]),
    "3xx": ("answered", "bridge", [("refer", "refused", 302), ("refer_replaces", "refused", 302)]),
}
"""Outcome, rung that served, and what was tried, by the carrier's behaviour."""


async def test_a_blind_transfer_goes_by_the_rung_that_the_carrier_takes(tmp_path: Path) -> None:
    async with ladder(tmp_path) as line:
        desk = asyncio.create_task(hang_up_desk(line.carrier, 3))
        reports = await asyncio.gather(*(line.transferred(number) for number in NUMBERS.values()))
        await asyncio.wait_for(desk, 30)
        assert line.node.server.endpoint.stats.rtp_ports_used == 0
        assert line.carrier.dialled.count(DESK) == 3
    for name, (report, caller) in zip(BEHAVIOURS, reports, strict=True):
        transfer = report["analysis"]["transfer"]
        tried = [(each["rung"], each["outcome"], each["status"]) for each in transfer["tried"]]
        assert (transfer["outcome"], transfer.get("rung"), tried) == BLIND[name], name
        assert report["status"] == "COMPLETED", name
        assert set(caller.answers) <= {200}, name
        assert caller.ear.longest_gap_s < 1.0, name
        accepted = [each for each in tried if each[1] not in ("refused", "not_allowed")]
        assert len(accepted) + (transfer.get("rung") == "bridge") == 1, name


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
        desk = asyncio.create_task(hang_up_desk(line.carrier, dials))
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
        desk = asyncio.create_task(hang_up_desk(line.carrier, 1))
        report, caller = await line.transferred(NUMBERS["202+NOTIFY"])
        await desk
    assert caller.referred == []
    assert report["analysis"]["transfer"]["rung"] == "bridge"
