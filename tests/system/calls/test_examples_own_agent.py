"""An agent of one's own, on a real call: real SIP and RTP, a real voice, a real recogniser."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import numpy as np

from pipeline.audio import Pcm
from sip.call import Call
from sip.endpoint import Endpoint, EndpointSettings
from sip.states import HangupCause
from sip.trunk_settings import TrunkSettings
from tests.support.paths import ROOT
from tests.support.speech.engines import flite

EXAMPLE = ROOT / "examples" / "own_agent.py"
PATIENCE = 40  # frames of silence until the caller takes the question for over


class Caller:
    """Hears the question out, then gives one answer."""

    def __init__(self, call: Call, answer: Pcm) -> None:
        self.answered: asyncio.Task[None] | None = None
        self._call = call
        self._answer = answer
        self._loudest = 0
        self._quiet = 0

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        level = int(np.abs(frame.astype(np.int32)).max())
        self._loudest = max(self._loudest, level)
        self._quiet = 0 if level > 300 else self._quiet + 1
        if self.answered is None and self._loudest > 3000 and self._quiet == PATIENCE:
            self.answered = asyncio.create_task(self._call.play(self._answer, 16000))

    def digit_received(self, digit: str, now: float) -> None: ...

    def leg_ended(self, reason: str, now: float) -> None: ...


async def test_the_barista_asks_understands_and_hangs_up(tmp_path: Path) -> None:
    answer = await flite("orange juice", tmp_path)
    process = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLE, "127.0.0.1:0", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        port = int("".join(filter(str.isdigit, line.rpartition(",")[2])))
        async with Endpoint(EndpointSettings(udp="127.0.0.1:0", rtp_ports=(42000, 42099))) as phone:
            carrier = phone.add_trunk(TrunkSettings(id="cafe", uri=f"sip:127.0.0.1:{port}"))
            call = await carrier.call("+15551234")
            await call.answered()
            call.attach(Caller(call, answer), None)
            cause = await asyncio.wait_for(call.ended(), 30)
        said = [(await asyncio.wait_for(process.stdout.readline(), 10)).decode().strip() for _ in range(3)]
    finally:
        process.terminate()
        await process.communicate()
    assert (cause, call.ended_by) == (HangupCause.NORMAL, "remote")
    assert said == [
        "agent: Coffee, tea or orange juice?",
        "caller: orange juice",
        "agent: One orange juice, coming up. Goodbye!",
    ]
