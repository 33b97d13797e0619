"""The bench of one core's calls has calls and measures them: its shape, never its speed."""

from __future__ import annotations

import os
import socket
import time
from contextlib import closing
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from bench.call.caller import SO_TIMESTAMPNS
from bench.capacity import far_end, report
from bench.capacity.__main__ import ORDINARY, STALLING, Bench
from bench.capacity.far_end import CALLER, Clock, Floor
from bench.capacity.load import TALK_FRAMES, sentence
from bench.capacity.stalling import stalls
from tests.support.paths import ROOT

LOUD, SILENT = (bytes(12) + octet * 160 for octet in (b"\x80", b"\xff"))


class FarEnd:
    """One caller of the load's, whose packets come to `socket`."""

    def __init__(self) -> None:
        self.socket, self._bound = (socket.socket(type=socket.SOCK_DGRAM) for _ in range(2))
        for each in (self.socket, self._bound):
            each.bind(("127.0.0.1", 0))
        self.socket.settimeout(10)
        self._bound.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._bound.connect(self.socket.getsockname())
        self.socket.connect(self._bound.getsockname())
        self.callers, self.records = np.zeros(1, CALLER), np.zeros((1, 3, 1000), np.int64)
        self.caller = self.callers[0]
        self.caller["fd"] = self._bound.fileno()
        self._clock = np.zeros(len(Clock), np.int64)
        self._clock[Clock.CALLS] = self._clock[Clock.RECORDING] = 1
        memory = self.callers, sentence(), self.records, self._clock
        self._thread = Thread(target=far_end.run, args=memory)
        self._thread.start()

    def close(self) -> None:
        self._clock[Clock.STOP] = 1
        self._thread.join()
        for each in (self.socket, self._bound):
            each.close()

    def until(self, floor: Floor) -> None:
        end = time.monotonic() + 20
        while self.caller["floor"] != floor:
            assert time.monotonic() < end
            self.socket.recv(2048)


def test_a_caller_hears_the_agent_out_talks_and_waits() -> None:
    with closing(FarEnd()) as end:
        first = end.socket.recv(2048)
        assert len(first) == 172
        assert set(first[12:]) == {0xFF}
        end.socket.send(LOUD)
        end.until(Floor.WAITING)
        assert end.caller["spoken"] == TALK_FRAMES
        end.socket.send(SILENT)
        end.socket.send(LOUD)
        end.until(Floor.LISTENING)
        arrivals, _, latencies = end.records[0]
        assert (end.caller["heard"], end.caller["loud"], end.caller["answered"]) == (3, 2, 1)
        assert 0 < latencies[0] == arrivals[2] - end.caller["voiced_ns"]


def test_packets_are_numbered_and_their_clock_is_regular() -> None:
    with closing(FarEnd()) as end:
        packets = [end.socket.recv(2048) for _ in range(10)]
    assert [int.from_bytes(packet[2:4], "big") for packet in packets] == list(range(10))
    assert [int.from_bytes(packet[4:8], "big") for packet in packets] == list(range(0, 1600, 160))


@pytest.mark.nightly("ci")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_calls_are_had_also_while_python_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    core = min(os.sched_getaffinity(0))
    bench = Bench(core, core, seconds=8.0, rate_per_s=10.0)
    with bench.server() as server:
        plain = bench.step(server, 3)
    with bench.server((*ORDINARY, *STALLING)) as server:
        stalled = bench.step(server, 3, beside=stalls(server.process.pid))
    for step in (plain, stalled):
        assert step["up_at_end"] == 3
        assert step["packets"] > 100
        assert sum(step["shares_of_core"].values()) > 0
    assert plain["voice_to_voice_ms"]["count"] >= 2
    assert plain["callers_speak"] > 0.2
    assert plain["agents_speak"] > 0.2
    assert stalled["plane"].startswith("nice")
    assert stalled["loop_lag_p99_ms"] > 100
    report.show("capacity", {"steps": [plain, stalled]})
