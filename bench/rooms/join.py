"""Measures the time from `web-calls/connect` to the agent's first sound, with LiveKit's Python SDK on
loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from bench.call.processes import MediaServer

AGENT: Final = "3a1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a31"
KEY: Final = "bench-joins-key"
CONFIG: Final = """
[server]
http = "127.0.0.1:{http}"
public_url = "http://127.0.0.1:{http}"
data_dir = "{directory}"
[sip]
udp = "127.0.0.1:{sip}"
[rooms]
udp_ports = "31000-31999"
addresses = ["127.0.0.1"]
api_secret = "a-secret-of-thirty-two-characters"
[[company]]
id = "bench"
web_calls = true
[[company.key]]
key = "bench-joins-key"
scopes = ["web-calls"]
[[agent]]
id = "3a1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a31"
company = "bench"
[agent.stt]
engine = "pocketsphinx"
[agent.tts]
engine = "espeak-ng"
[agent.script]
start = "ask"
[[agent.script.step]]
id = "ask"
say = "Good morning."
expect = {{ kinds = ["yes_no"] }}
on = {{ yes = "ask", no = "ask" }}
"""


def told_by(module: str, *arguments: str, directory: Path, edit: Callable[[str], str] = str) -> Any:
    """Runs a server in `directory` and one client process, a module of the bench that gets the server's URL,
    the agent, its key and `arguments`; returns the JSON of the client's last line. `edit`: changes the
    configuration."""

    def configure(http: int, sip: int) -> str:
        return edit(CONFIG.format(http=http, sip=sip, directory=directory))

    with closing(MediaServer(directory, configure, (sys.executable, "-m", "mediaserver"))) as server:
        client = [sys.executable, "-m", module, server.url, AGENT, KEY, *arguments]
        done = subprocess.run(client, check=True, capture_output=True, text=True, timeout=180)
    return json.loads(done.stdout.splitlines()[-1])


def measure() -> list[dict[str, float]]:
    """Runs a server and one client process; returns the times of each join."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        joins: list[dict[str, float]] = told_by("bench.rooms.join_client", directory=Path(directory))
    return joins
