"""`mediaserver serve` from outside: a process, its ports, its signals; real engines."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mediaserver.settings import load
from tests.support.node.node import (
    KEY,
    NUMBER,
    OUTBOUND,
    REAL_ENGINES,
    ServerProcess,
    serving,
    write_site,
)

CALL = {"agentId": OUTBOUND, "phoneNumber": NUMBER, "promptVariables": {"name": "Bo"}}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(write_site(tmp_path, engines=REAL_ENGINES), is_cold=True) as server:
        server.wait_ready()
        yield server


def test_a_server_lives_works_and_leaves_with_status_0(server: ServerProcess) -> None:
    assert server.get("/healthz")[0] == 200
    status, body = server.ask("POST", "/api/v1/calls/outbound", CALL, KEY)
    assert status == 200
    call_id = body["data"]["callTaskId"]
    assert server.get(f"/api/v1/calls/{call_id}", KEY)[1]["status"] in ("PENDING", "DIALING")
    assert "mediaserver_active_calls" in server.get("/metrics")[1]
    assert server.stop(signal_number=signal.SIGTERM) == 0
    assert server.get("/healthz")[0] == 0


def test_a_call_that_was_dialled_when_the_server_was_killed_is_unknown_and_not_dialled_again(
    tmp_path: Path,
) -> None:
    """The carrier is a bare socket that counts INVITEs with different branches."""
    site = write_site(tmp_path, engines=REAL_ENGINES)
    with socket.socket(type=socket.SOCK_DGRAM) as carrier:
        carrier.bind(("127.0.0.1", site.carrier))
        carrier.settimeout(10)
        with serving(site) as server:
            server.wait_ready()
            _, body = server.ask("POST", "/api/v1/calls/outbound", CALL, KEY)
            call_id = body["data"]["callTaskId"]
            first = carrier.recv(65_536)
            assert first.startswith(b"INVITE ")
            server.kill()
        with serving(site) as server:
            server.wait_ready()
            # Its lease still runs: nobody touches the call, and above all nobody dials it.
            assert server.get(f"/api/v1/calls/{call_id}", KEY)[1]["status"] == "DIALING"
            carrier.settimeout(3)
            branches = {branch_of(first)}
            try:
                while True:
                    branches.add(branch_of(carrier.recv(65_536)))
            except TimeoutError:
                assert branches == {branch_of(first)}


def branch_of(message: bytes) -> bytes:
    via = next(line for line in message.split(b"\r\n") if line.lower().startswith(b"via:"))
    return via.partition(b"branch=")[2].partition(b";")[0]


def test_a_file_that_cannot_be_used_ends_with_status_2_and_says_why(tmp_path: Path) -> None:
    site = write_site(tmp_path, engines=REAL_ENGINES)
    site.change('next = "done"', 'next = "nowhere"')
    server = ServerProcess(site, is_cold=True)
    assert server.process.wait(60) == 2
    lines = server.log.read_text().splitlines()
    assert lines
    assert all(line.startswith(f"{site.path}: agent[0].script") for line in lines)
    assert any("nowhere" in line for line in lines)


@pytest.mark.parametrize("which", ["http", "sip"])
def test_an_address_in_use_ends_with_status_1_and_a_reason(tmp_path: Path, which: str) -> None:
    site = write_site(tmp_path, engines=REAL_ENGINES)
    kind = socket.SOCK_STREAM if which == "http" else socket.SOCK_DGRAM
    with socket.socket(type=kind) as taken:
        taken.bind(("127.0.0.1", getattr(site, which)))
        if kind is socket.SOCK_STREAM:
            taken.listen()
        server = ServerProcess(site)
        assert server.process.wait(60) == 1
    log = server.log.read_text()
    assert "server cannot run" in log
    assert "in use" in log
    assert "Traceback" not in log


def test_a_signal_during_the_start_ends_it_too(tmp_path: Path) -> None:
    with serving(write_site(tmp_path, engines=REAL_ENGINES), is_cold=True) as server:
        deadline = time.monotonic() + 60
        while server.get("/healthz")[0] != 200 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.stop(signal_number=signal.SIGTERM) == 0


def test_another_data_directory_on_the_command_line(tmp_path: Path) -> None:
    site, elsewhere = write_site(tmp_path, engines=REAL_ENGINES), tmp_path / "elsewhere"
    with serving(site, "--data", str(elsewhere), is_cold=True) as server:
        server.wait_ready()
        assert server.stop(signal_number=signal.SIGINT) == 0
    assert (elsewhere / "mediaserver.db").is_file()
    assert not site.data_dir.exists()


def test_the_configuration_of_these_tests_is_a_good_one(tmp_path: Path) -> None:
    settings = load(write_site(tmp_path, engines=REAL_ENGINES).path)
    assert [str(agent.direction) for agent in settings.agents] == [
        "outbound",
        "inbound",
        "outbound",
        "outbound",
    ]
