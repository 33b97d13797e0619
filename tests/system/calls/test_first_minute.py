"""What somebody sees who starts the server for the first time: how far it is, and where to talk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mediaserver.compile_kernels import COMPILATIONS
from mediaserver.demo.run import AGENT, FRONT_DESK_AGENT
from mediaserver.demo.speech import Speech
from mediaserver.demo.stage import Ports, demo_config, write_config
from tests.support.node.node import Site, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def test_serve_prints_a_link_for_each_agent_that_a_visitor_can_talk_to(tmp_path: Path) -> None:
    """The agent that calls needs the name of whom it calls, and has no link."""
    ports = Ports.choose()
    path = write_config(tmp_path, ports, Speech.EMBEDDED)
    site = Site(path, ports.http, ports.sip, ports.callee, tmp_path / "var")
    link = f"http://127.0.0.1:{ports.http}/talk/{FRONT_DESK_AGENT}"
    with serving(site) as server:
        server.wait_ready(200)
        while link not in server.log.read_text():  # until the test's limit
            time.sleep(0.1)
        assert AGENT not in server.log.read_text()
        assert server.get(f"/talk/{FRONT_DESK_AGENT}")[0] == 200


@pytest.mark.nightly("ci")
def test_whoever_waits_at_a_terminal_sees_how_far_the_kernels_are(tmp_path: Path) -> None:
    """Once: the second time there is nothing to compile."""
    first, second = (at_a_terminal(tmp_path / "kernels") for _ in range(2))
    assert re.search(rf"compiling, once on this machine: \d+ of {COMPILATIONS}\b", first)
    assert f"\r{'━' * 32} compiling" in first
    assert "compiling" not in second


def at_a_terminal(kernels: Path) -> str:
    """What `mediaserver check` writes to a terminal that is its standard error."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(kernels)}
    command = [sys.executable, "-m", "mediaserver", "check", "--config", str(demo_config())]
    with open(ours, "rb", buffering=0) as terminal:
        try:
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment, check=True)
            os.set_blocking(ours, False)
            return (terminal.read() or b"").decode()
        finally:
            os.close(theirs)
