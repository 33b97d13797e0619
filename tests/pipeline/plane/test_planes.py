"""Are calls spread over the media planes, and does each have its own thread and priority?"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections import Counter

import pytest

from pipeline.plane.drive.plane import PlaneFull
from pipeline.plane.drive.planes import SPARE, Planes
from sip.rtp.media_stream import MediaStream
from sip.rtp.ports import PortRange
from sip.sdp.media_plan import PCMU
from tests.support.paths import ROOT
from tests.support.ports import free_rtp_range
from tests.support.speech.media import RecordingListener, plan
from tests.support.waiting import until

pytestmark = pytest.mark.virtual_clock(and_real=True)


async def test_calls_go_to_the_plane_with_the_fewest() -> None:
    planes = Planes(asyncio.get_running_loop(), capacity=30, threads=3)
    rows = [(plane, plane.reserve()) for plane in (planes.least_loaded() for _ in range(30))]
    assert planes.streams == (10, 10, 10)
    for plane, number in rows[::3]:
        plane.give_back(number)
    emptied = rows[0][0]
    for _ in range(10):
        planes.least_loaded().reserve()
    assert planes.streams == (10, 10, 10)
    assert len(emptied) == 10
    planes.close()


async def test_planes_are_full_together() -> None:
    planes = Planes(asyncio.get_running_loop(), capacity=4, threads=2)
    for _ in range(2 * (2 + SPARE)):
        planes.least_loaded().reserve()
    with pytest.raises(PlaneFull):
        planes.least_loaded().reserve()
    planes.close()


async def test_streams_of_two_planes_hear_each_other() -> None:
    loop = asyncio.get_running_loop()
    planes, ports = Planes(loop, capacity=8, threads=2), PortRange(*free_rtp_range())
    streams = [MediaStream.open(ports, planes.least_loaded(), host="127.0.0.1", loop=loop) for _ in range(4)]
    assert planes.streams == (2, 2)
    heard = [RecordingListener() for _ in streams]
    for stream, far, listener in zip(streams, reversed(streams), heard, strict=True):
        agreed = plan(far.local_port, PCMU)
        stream.configure(agreed, symmetric=False, media_timeout_s=30.0, inband_dtmf=False)
        stream.attach(listener, None)
    await until(lambda: all(len(each.frames) > 10 for each in heard))
    assert all(each.stats.strange_address == 0 for each in streams)
    for stream in streams:
        stream.close()
    assert planes.streams == (0, 0)
    planes.close()


_POLICIES = """
import asyncio, os, threading, time
from pipeline.plane.drive.planes import Planes
async def main():
    planes = Planes(asyncio.get_running_loop(), capacity=4, threads=3)
    time.sleep(0.3)
    threads = [each.native_id for each in threading.enumerate() if each.name == "media plane"]
    print(sorted(os.sched_getscheduler(each) & ~os.SCHED_RESET_ON_FORK for each in threads))
    planes.close()
asyncio.run(main())
"""


@pytest.mark.skipif(
    not hasattr(os, "SCHED_RR") or (os.geteuid() != 0 and resource.getrlimit(resource.RLIMIT_RTPRIO)[0] < 1),
    reason="this user may not have real-time priority",
)
def test_each_thread_asks_for_real_time_priority() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _POLICIES], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Counter(eval(done.stdout)) == {os.SCHED_RR: 3}
