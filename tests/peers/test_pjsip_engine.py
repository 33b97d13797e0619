"""Calls whose INVITE sessions PJSIP has: its processes, and what becomes of calls when one of them dies."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sip.call import Call
from sip.endpoint import Endpoint, EndpointSettings
from sip.pjsip import processes
from sip.states import CallState, HangupCause
from sip.trunk import Trunk
from sip.trunk_settings import TrunkSettings
from tests.support.ports import free_rtp_range
from tests.support.sip.sip_phones import address
from tests.support.speech.leg import Party
from tests.support.speech.tones import tone
from tests.support.waiting import until

pytestmark = pytest.mark.peer


class Line:
    """Two endpoints with a trunk each to the other: `ours` with PJSIP, `theirs` without."""

    def __init__(self, ours: Endpoint, theirs: Endpoint) -> None:
        self.ours, self.theirs = ours, theirs
        self.out = self._trunk(ours, theirs, "pjsua2")
        self.back = self._trunk(theirs, ours, "native")

    @staticmethod
    def _trunk(of: Endpoint, to: Endpoint, engine: str) -> Trunk:
        return of.add_trunk(
            TrunkSettings(
                id="line",
                uri=f"sip:127.0.0.1:{address(to)[1]}",
                caller_id="100",
                allow_from=("127.0.0.1",),
                engine="pjsua2" if engine == "pjsua2" else "native",
            )
        )

    async def call(self) -> tuple[Call, Call]:
        """A call that we place: our end of it and theirs."""
        call = await self.out.call("200")
        theirs = await asyncio.wait_for(anext(self.theirs.incoming()), 20)
        await theirs.answer()
        await call.answered()
        return call, theirs

    async def called(self) -> tuple[Call, Call]:
        """A call that they place: our end of it and theirs."""
        theirs = await self.back.call("300")
        call = await asyncio.wait_for(anext(self.ours.incoming()), 20)
        await call.answer()
        await theirs.answered()
        return call, theirs

    @property
    def pids(self) -> list[int]:
        """The processes that have calls."""
        return [each.pid for each in self.ours.processes.all if each.calls and each.pid is not None]


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    here, there = (EndpointSettings(udp="127.0.0.1:0", rtp_ports=free_rtp_range(200)) for _ in range(2))
    async with Endpoint(here) as ours, Endpoint(there) as theirs:
        yield Line(ours, theirs)


async def test_one_call_each_way(line: Line) -> None:
    for made in (line.call, line.called):
        call, theirs = await made()
        assert re.search(r"NoNewPrivs:\s+1\nSeccomp:\s+2\n", _status(line.pids[0]))
        ear, far = Party(call, tone(700, 0.5, call.rate_hz)), Party(theirs, tone(440, 0.5, theirs.rate_hz))
        for each in (ear, far):
            await until(lambda each=each: len(each.frames) > 20)  # type: ignore[misc]
        await call.hold()
        assert call.held
        assert theirs.held
        await call.resume()
        await theirs.hang_up()
        assert await call.ended() is await theirs.ended() is HangupCause.NORMAL
        assert call.ended_by == "remote"


async def test_calls_go_on_after_a_process_has_had_its_four(line: Line) -> None:
    for place in range(9):
        call, _ = await (line.called() if place % 3 == 2 else line.call())
        await call.hang_up()
        assert await call.ended() is HangupCause.NORMAL
    assert line.ours.processes.crashes == 0


async def test_a_process_that_is_killed_ends_its_calls_and_no_other(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    first = [await line.call() for _ in range(3)] + [await line.called()]
    [killed] = line.pids
    fifth, _ = await line.call()
    assert len(line.pids) == 2
    os.kill(killed, signal.SIGKILL)
    for call, theirs in first:
        assert await call.ended() is HangupCause.ENGINE_FAILED
        assert await theirs.ended() is HangupCause.NORMAL  # the server says BYE itself
        assert [each.cause for each in theirs.reasons] == [41]
    assert "PJSIP process ended, and its calls with it" in caplog.text
    assert fifth.state is CallState.ANSWERED
    again, _ = await line.call()
    assert killed not in line.pids
    for call in (fifth, again):
        await call.hang_up()
        assert await call.ended() is HangupCause.NORMAL


async def test_who_rings_is_cancelled_and_nobody_is_dialled_again(line: Line) -> None:
    call = await line.out.call("200")
    ringing = await asyncio.wait_for(anext(line.theirs.incoming()), 20)
    await ringing.ring()
    await until(lambda: call.state is CallState.RINGING)
    os.kill(line.pids[0], signal.SIGKILL)
    assert await call.ended() is HangupCause.ENGINE_FAILED
    assert not call.definite  # so that the ledger makes no further attempt
    assert await ringing.ended() is HangupCause.CANCELLED
    offered = await line.back.call("300")
    ours = await asyncio.wait_for(anext(line.ours.incoming()), 20)
    os.kill(line.pids[0], signal.SIGKILL)
    assert await ours.ended() is HangupCause.ENGINE_FAILED
    await offered.ended()
    assert offered.status == 500
    assert (line.ours.stats.calls, line.ours.stats.rtp_ports_used) == (0, 0)


async def test_a_process_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch, line: Line) -> None:
    monkeypatch.setattr(processes, "SILENT_S", 3.0)
    call, theirs = await line.call()
    os.kill(line.pids[0], signal.SIGSTOP)
    assert await asyncio.wait_for(call.ended(), 30) is HangupCause.ENGINE_FAILED
    assert await theirs.ended() is HangupCause.NORMAL


async def test_no_process_outlives_the_endpoint() -> None:
    here, there = (EndpointSettings(udp="127.0.0.1:0", rtp_ports=free_rtp_range(200)) for _ in range(2))
    async with Endpoint(there) as theirs:
        async with Endpoint(here) as ours:
            call, far = await Line(ours, theirs).call()
            left = [each.pid for each in ours.processes.all if each.pid is not None]
        assert left
        assert await call.ended() is HangupCause.SHUTDOWN
        assert await far.ended() is HangupCause.NORMAL
    for pid in left:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def _status(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()
