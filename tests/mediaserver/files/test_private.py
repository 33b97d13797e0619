"""What a server leaves on its disk and in its log: closed to others, and without anybody's address."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from mediaserver.files import private
from mediaserver.telemetry import logging as logs
from tests.support.kept_logging import kept_logging
from tests.support.node.node import FAKE_ENGINES, REAL_ENGINES, ServerProcess, Site, serving
from tests.support.webrtc.rooms import AGENT, bearing, write_web_site
from tests.support.webrtc.rtc import rtc_client


@pytest.fixture
def careless(tmp_path: Path) -> Iterator[Site]:
    """A site whose data directory an earlier version left open, started with a umask that hides nothing."""
    site = write_web_site(tmp_path, engines=REAL_ENGINES, public=True)
    site.change(FAKE_ENGINES, REAL_ENGINES)
    old = site.data_dir / "recordings" / "2025"
    before = os.umask(0)
    old.mkdir(parents=True)
    (old / "call.wav").write_bytes(b"RIFF")
    for name in ("mediaserver.db", "mediaserver.db-wal"):
        (site.data_dir / name).touch()
    (site.data_dir / "secret.key").write_text("a-key-that-seals-what-is-managed")
    try:
        yield site
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """What in `folder`, itself included, others may do anything with."""
    return [str(path) for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]


async def talk(site: Site, server: ServerProcess) -> str:
    """A visitor calls and hangs up; the id of the call."""
    await asyncio.to_thread(server.wait_ready, 180)  # it compiles its kernels
    async with ClientSession(f"http://127.0.0.1:{site.http}") as client, rtc_client() as rtc:
        async with client.post(f"/talk/{AGENT}/session") as answer:
            ticket = await answer.json()
        offer = (await rtc.line())["offer"]
        headers = bearing(ticket["participantToken"])
        async with client.post("/rtc/whip", data=offer, headers=headers) as answer:
            rtc.tell(answer=await answer.text())
            url = answer.headers["Location"]
        rtc.follow()
        await rtc.event("sound")
        async with client.delete(url) as answer:
            assert answer.status == 200
    return str(ticket["roomName"])


async def test_what_a_call_leaves_is_for_nobody_elses_eyes_and_without_addresses(careless: Site) -> None:
    with serving(careless) as server:
        call_id = await talk(careless, server)
        recording = careless.data_dir / "recordings" / f"{call_id}.wav"
        assert recording.is_file()
        assert (careless.data_dir / "mediaserver.db-wal").is_file()
        assert open_to_others(careless.data_dir) == []
        server.stop(signal_number=15)
        log = server.log.read_text()
    own = [
        line
        for line in log.splitlines()
        if not any(ours in line for ours in ("listening", "talk from a browser"))
    ]
    assert [line for line in own if re.search(r"\d+\.\d+\.\d+\.\d+|Candidate|Connection\(", line)] == []
    assert "server stopped" in log


def test_a_data_directory_that_others_share_on_purpose_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_in, sticky = tmp_path / "checkout", tmp_path / "tmp"
    started_in.mkdir(mode=0o755)
    sticky.mkdir()
    sticky.chmod(0o1777)
    monkeypatch.chdir(started_in)
    for folder, mode in ((started_in, 0o755), (sticky, 0o1777)):
        recordings = private.prepare(folder)
        assert folder.stat().st_mode & 0o7777 == mode
        assert recordings.stat().st_mode & 0o7777 == 0o700


def test_a_link_among_the_recordings_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (elsewhere / "theirs.wav").touch(mode=0o644)
    data = tmp_path / "data"
    (data / "recordings").mkdir(parents=True)
    (data / "recordings").chmod(0o755)
    (data / "recordings" / "link").symlink_to(elsewhere)
    private.prepare(data)
    assert (data / "recordings").stat().st_mode & 0o777 == 0o700
    assert elsewhere.stat().st_mode & 0o777 == 0o755
    assert (elsewhere / "theirs.wav").stat().st_mode & 0o777 == 0o644


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Gives, once, what is logged by a server that was told to log at `info`."""
    path = tmp_path / "log"
    with kept_logging(), path.open("wb") as file:
        writer = logs.configure(level="info", fd=file.fileno())
        yield lambda: path.read_text() if writer.close() else ""
        writer.close()


@pytest.mark.parametrize(
    "library", ["aioice.ice", "aioice.turn", "aiortc.rtcpeerconnection", "livekit", "mcp"]
)
def test_a_library_is_heard_from_warnings_on_and_tells_nobodys_address(
    written: Callable[[], str], library: str
) -> None:
    said = "Check ('%s', 5060) -> ('%s', 9) for %s at 12:34:56"
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        logging.getLogger(library).log(level, said, "203.0.113.9", "2001:db8::7", "+14155550123")
    logging.getLogger("mediaserver.serve").info("server stopped")
    warning, own = (json.loads(line) for line in written().splitlines())
    masked = "Check ('(address)', 5060) -> ('(address)', 9) for …23 at 12:34:56"
    assert (warning["level"], warning["message"]) == ("warning", masked)
    assert own["message"] == "server stopped"
