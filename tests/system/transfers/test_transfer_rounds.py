"""A thousand transfers against eight kinds of carriers: no caller is lost, nobody is called twice."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sip.rtp.packet import RtpPacket
from tests.support.sip.ladder import ALL_NUMBERS, EXPECTED, Ladder, at_the_desk, ladder
from tests.support.sip.referring_carrier import Ear
from tests.support.sip.transfers import DESK, KINDS
from tests.support.waiting import until

ROUNDS = int(os.environ.get("TRANSFER_ROUNDS", "14"))
"""Of 24 calls each: 14 rounds of three kinds are 1,008."""


@pytest.mark.nightly("ci")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
async def test_no_caller_is_lost_in_many_rounds(tmp_path: Path, kind: str) -> None:
    seen: Counter[tuple[str, str, str | None]] = Counter()
    async with ladder(tmp_path, wide=True) as line:
        for number in range(ROUNDS):
            seen += await one_round(line, kind)
            line.carrier.calls.clear()
            line.carrier.dialled.clear()
            print(f"{kind}, {number + 1} rounds: {sorted(seen.items())}", flush=True)
    assert seen.total() == ROUNDS * len(ALL_NUMBERS)


@pytest.mark.parametrize(
    ("heard", "gap_s", "lost"),
    [
        (range(100), 0.02, 0),
        ([*range(50), *range(120, 200)], 0.02, 70),  # dropped on its way, or by the ear's own socket
        ([*range(50), 49, 48, *range(50, 60)], 0.02, 0),
    ],
)
def test_a_packet_that_is_lost_is_no_pause_of_the_sender(heard: list[int], gap_s: float, lost: int) -> None:
    ear = Ear()
    for number in heard:
        ear.datagram_received(packet(number, number * 160), ("127.0.0.1", 9))
    assert (ear.longest_gap_s, ear.lost) == (gap_s, lost)


def test_a_pause_of_the_sender_is_one_whatever_is_lost() -> None:
    ear = Ear()
    for number in (*range(50), *range(60, 100)):
        ear.datagram_received(
            packet(number, number * 160 + (12_000 if number >= 55 else 0)), ("127.0.0.1", 9)
        )
    assert (ear.longest_gap_s, ear.lost) == (1.52, 10)


def packet(sequence: int, timestamp: int) -> bytes:
    return RtpPacket(0, sequence, timestamp, 1, b"").to_bytes()


def how(report: dict[str, Any]) -> tuple[str, str | None]:
    """Outcome and rung of a call's transfer; the call's own outcome where it had none."""
    transfer = (report["analysis"] or {}).get("transfer")
    if transfer is None:
        return f"{report['status']} {report['hangupCause']}", None
    return transfer["outcome"], transfer.get("rung")


async def one_round(line: Ladder, kind: str) -> Counter[tuple[str, str, str | None]]:
    """Transfers a caller of each number at once; returns how the calls went."""
    bridged = sum(EXPECTED[kind][name][1] == "bridge" for name, _ in ALL_NUMBERS)
    desk = asyncio.create_task(at_the_desk(line.carrier, bridged))
    reports = await asyncio.gather(
        *(line.transferred(number, KINDS[kind], patience_s=120) for _, number in ALL_NUMBERS)
    )
    went = Counter((name, *how(report)) for (name, _), (report, _) in zip(ALL_NUMBERS, reports, strict=True))
    assert set(went) == {(name, *EXPECTED[kind][name][:2]) for name in EXPECTED[kind]}
    await asyncio.wait_for(desk, 30)
    await until(lambda: line.node.server.endpoint.stats.rtp_ports_used == 0)
    assert line.carrier.dialled.count(DESK) == (bridged if kind == "blind" else len(ALL_NUMBERS))
    assert {report["status"] for report, _ in reports} == {"COMPLETED"}
    assert max(caller.ear.longest_gap_s for _, caller in reports) < 1.0
    return went
