"""Do two telephones on one link hear each other by link-local addresses, whose interface no SDP can name?"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

_IN_A_NAMESPACE = ("unshare", "--user", "--map-root-user", "--net", "sh", "-c")
_LINK = "ip link set lo up && ip -6 addr add fe80::1/64 dev lo nodad"
_CALL = """
import asyncio, sys
from pipeline.plane.drive.plane import Plane
from sip.rtp.media_stream import MediaStream
from sip.rtp.ports import PortRange
from sip.sdp.media_plan import PCMU, MediaPlan
from tests.support.speech.media import RecordingListener

async def main(bound, signalled_by):
    loop = asyncio.get_running_loop()
    plane, ports = Plane(loop), PortRange(24000, 24100)
    streams = [MediaStream.open(ports, plane, host=bound, loop=loop) for _ in range(2)]
    listeners = [RecordingListener() for _ in streams]
    for stream, far, listener in zip(streams, reversed(streams), listeners):
        stream.signalled_by = signalled_by
        stream.configure(
            MediaPlan("fe80::1", far.local_port, PCMU, rtcp_port=far.local_port + 1, receive={0: PCMU},
                      dtmf_send=None, dtmf_receive=None, send_payload_type=0),
            symmetric=False, media_timeout_s=30.0, inband_dtmf=False)
        stream.attach(listener, None)
    async with asyncio.timeout(10):
        while not all(len(each.frames) > 5 for each in listeners):
            await asyncio.sleep(0.01)
    print([(each.stats.strange_address, each.stats.send_errors) for each in streams])
    for each in streams:
        each.close()
    plane.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(("bound", "signalled_by"), [("fe80::1%lo", "fe80::1"), ("::", "fe80::1%lo")])
def test_media_goes_over_the_link_of_the_signalling(bound: str, signalled_by: str) -> None:
    if subprocess.run([*_IN_A_NAMESPACE, _LINK], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets a user make no network namespace")
    call = f'{_LINK} && exec "$0" -c "$1" "$2" "$3"'
    command = [*_IN_A_NAMESPACE, call, sys.executable, _CALL, bound, signalled_by]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "[(0, 0), (0, 0)]\n"), done.stderr
