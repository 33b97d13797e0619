"""Measures what keeping the messages of calls costs: `python -m bench trace`.

Two pairs of endpoints in this process call each other over loopback, one pair with traces and one without, in
turn: INVITE, 180, 200, ACK, BYE. Compared are medians of the CPU time a call, of both of its ends."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import click

from bench import report
from sip.endpoint import Endpoint, EndpointSettings
from sip.trunk import Trunk
from sip.trunk_settings import TrunkSettings

CALLS = 20
"""Calls of a round, one after the other."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A caller's trunk and the endpoint that is called."""

    trunk: Trunk
    called: Endpoint


@asynccontextmanager
async def pair(*, trace: bool, port: int) -> AsyncIterator[Pair]:
    """Two endpoints, both with or both without traces."""
    async with AsyncExitStack() as opened:
        settings = EndpointSettings(udp="127.0.0.1:0", rtp_ports=(port, port + 199), trace=trace)
        ours = await opened.enter_async_context(Endpoint(settings))
        there = replace(settings, rtp_ports=(port + 200, port + 399))
        theirs = await opened.enter_async_context(Endpoint(there))
        bound = theirs.udp_address
        assert bound is not None
        theirs.add_trunk(TrunkSettings(id="in", uri="sip:127.0.0.1:9", allow_from=("127.0.0.0/8",)))
        yield Pair(ours.add_trunk(TrunkSettings(id="out", uri=f"sip:127.0.0.1:{bound[1]}")), theirs)


async def round_of(line: Pair) -> float:
    """Places `CALLS` calls; returns milliseconds of CPU a call."""
    incoming = line.called.incoming()
    before = time.process_time()
    for _ in range(CALLS):
        call = await line.trunk.call("+15551234")
        offered = await anext(incoming)
        await offered.ring()
        await offered.answer()
        await call.answered()
        await call.hang_up()
        await asyncio.gather(call.ended(), offered.ended())
    return (time.process_time() - before) * 1000 / CALLS


async def measure(rounds: int) -> dict[str, list[float]]:
    """Milliseconds of CPU a call by round, with and without traces."""
    found: dict[str, list[float]] = {"kept": [], "not kept": []}
    async with pair(trace=True, port=34000) as kept, pair(trace=False, port=34400) as bare:
        for line in (kept, bare):
            await round_of(line)  # warm
        for place in range(rounds):
            order = [("kept", kept), ("not kept", bare)]
            for name, line in order if place % 2 else order[::-1]:
                found[name].append(await round_of(line))
    return found


@click.command()
@click.option("--rounds", default=40, show_default=True, help=f"Of {CALLS} calls each, on either pair.")
def main(rounds: int) -> None:
    """CPU of a call's signalling with and without its trace."""
    found = asyncio.run(measure(rounds))
    medians = {name: statistics.median(times) for name, times in found.items()}
    ratios = [kept / bare for kept, bare in zip(found["kept"], found["not kept"], strict=True)]
    ratio = statistics.median(ratios)
    rows = [(f"messages {name}", f"{value:.2f}") for name, value in medians.items()]
    report.show("Signalling of a call, both ends", ("", "ms CPU"), [*rows, ("ratio", f"{ratio:.3f}")])
    report.save("trace", {"ms_cpu_a_call": medians, "ratio": ratio, "rounds": rounds, "calls": CALLS})
