"""A thousand transfers against eight kinds of carriers: no caller is lost, nobody is called twice."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.support.sip.ladder import ALL_NUMBERS, EXPECTED, Ladder, at_the_desk, ladder
from tests.support.sip.transfers import DESK, KINDS

ROUNDS = int(os.environ.get("TRANSFER_ROUNDS", "7"))
"""Of 48 calls each: 7 rounds of three kinds are 1,008."""


@pytest.mark.nightly("ci")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
async def test_no_caller_is_lost_in_many_rounds(tmp_path: Path, kind: str) -> None:
    seen: Counter[tuple[str, str, str | None]] = Counter()
    for number in range(ROUNDS):
        directory = tmp_path / str(number)
        directory.mkdir()
        async with ladder(directory, wide=True) as line:
            seen += await one_round(line, kind)
    print(sorted(seen.items()))
    assert seen.total() == ROUNDS * len(ALL_NUMBERS)
    assert set(seen) == {(name, *EXPECTED[kind][name][:2]) for name in EXPECTED[kind]}


async def one_round(line: Ladder, kind: str) -> Counter[tuple[str, str, str | None]]:
    """Transfers a caller of each number at once; returns how the calls went."""
    bridged = sum(EXPECTED[kind][name][1] == "bridge" for name, _ in ALL_NUMBERS)
    desk = asyncio.create_task(at_the_desk(line.carrier, bridged))
    reports = await asyncio.gather(
        *(line.transferred(number, KINDS[kind], patience_s=120) for _, number in ALL_NUMBERS)
    )
    await asyncio.wait_for(desk, 30)
    assert line.node.server.endpoint.stats.rtp_ports_used == 0
    assert line.carrier.dialled.count(DESK) == (bridged if kind == "blind" else len(ALL_NUMBERS))
    assert {report["status"] for report, _ in reports} == {"COMPLETED"}
    assert max(caller.ear.longest_gap_s for _, caller in reports) < 3.0
    return Counter(
        (name, report["analysis"]["transfer"]["outcome"], report["analysis"]["transfer"].get("rung"))
        for (name, _), (report, _) in zip(ALL_NUMBERS, reports, strict=True)
    )
