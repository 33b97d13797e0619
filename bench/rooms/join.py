"""Measures the time from `web-calls/connect` to the agent's first sound, with LiveKit's Python SDK on
loopback."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import aiohttp

from mediaserver.local_node import free_port

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


def measure() -> list[dict[str, float]]:
    """Runs a server and one client process; returns the times of each join."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        port = free_port()
        path = Path(directory) / "server.toml"
        path.write_text(CONFIG.format(http=port, sip=free_port(), directory=directory))
        serve = [sys.executable, "-m", "mediaserver", "serve", "--config", str(path)]
        with subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                url = f"http://127.0.0.1:{port}"
                asyncio.run(ready(url))
                client = [sys.executable, "-m", "bench.rooms.join_client", url, AGENT, KEY]
                done = subprocess.run(client, check=True, capture_output=True, text=True, timeout=120)
            finally:
                server.terminate()
    joins: list[dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return joins


async def ready(url: str) -> None:
    """Returns when the server at `url` is ready."""
    async with aiohttp.ClientSession() as http, asyncio.timeout(60):
        while True:
            try:
                async with http.get(f"{url}/readyz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
