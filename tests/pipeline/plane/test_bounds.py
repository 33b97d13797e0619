"""Does any kernel of the media plane leave its arrays, whatever comes?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hostile.damaged_rtp import survive, survive_port
from tests.support.paths import ROOT


def test_damaged_packets_are_counted_and_the_others_heard() -> None:
    line = survive(1, 1500).line
    assert line["frames"] > 500
    assert all(line[name] > 0 for name in ("bad", "lost", "concealed", "packets_sent"))


def test_damaged_datagrams_of_a_shared_port_are_counted_and_the_others_heard() -> None:
    port = survive_port(1, 1500)
    assert all(line["frames"] > 200 for line in port.lines)
    assert all(line["recovered"] > 0 for line in port.lines)
    assert port.lines[1]["forged"] > 0
    assert all(port.port[name] > 0 for name in ("strays", "dropped", "sources", "head"))


@pytest.mark.nightly("ci", "fuzz")
@pytest.mark.timeout(1800)
def test_no_kernel_leaves_its_arrays(tmp_path: Path) -> None:
    """The kernels are compiled with checked bounds, into a cache of their own."""
    checked = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    for seed in range(5):
        command = [sys.executable, "-m", "tests.support.hostile.damaged_rtp", str(seed), "20000"]
        done = subprocess.run(
            command, cwd=ROOT, env=checked, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, (seed, done.stderr)
        is_checked, frames, *counts = done.stdout.split()
        assert is_checked == "True"
        assert int(frames) > 1000
        assert all(int(each) for each in counts)
