"""Starts the processes of `bench call`: a server on free ports with a scratch data directory. Reads their CPU
time and memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import Request, urlopen

import click

from bench.support.processes import Usage, command_of, module_of, tree, usage_of
from mediaserver.local_node import free_port
from pipeline import kernel_cache

KEY: Final = "bench-calls-key"
SCRIPT_NUMBER: Final = "+14155550101"
MONOLOGUE_NUMBER: Final = "+14155550102"
ENDPOINT_MS: Final = 500
BARGE_IN_MS: Final = 240

SERVER: Final = (sys.executable, "-m", "bench.call.server")

_TICK_MS: Final = 1000 / os.sysconf("SC_CLK_TCK")
_READY_TIMEOUT_S: Final = 120.0
_BEFORE_OTHERS: Final = -15

_CONFIG: Final = """
[server]
http = "127.0.0.1:{http}"
public_url = "http://127.0.0.1:{http}"
data_dir = "{directory}/data"
drain_s = 1
{server}

[sip]
udp = "127.0.0.1:{sip}"
tcp = ""
rtp_ports = "{rtp}"
max_calls = 4000

[[company]]
id = "bench"
country = "US"
max_concurrent_calls = 4000
[[company.key]]
key = "{key}"
scopes = ["calls"]

[[trunk]]
id = "generator"
company = "bench"
uri = "sip:127.0.0.1:{sip};transport=udp"
allow_from = ["127.0.0.1/32"]
codecs = {codecs}
srtp = "optional"
"""


def agent_table(
    agent_id: str, number: str, *, trunk: str = "generator", direction: str = "inbound",
    script: str = "monologue = false", stt: str = 'engine = "bench"', tts: str = 'engine = "bench"',
    session: str = "",
) -> str:  # fmt: skip
    """Returns the settings of an agent with the stub models unless others are given."""
    return f"""
[[agent]]
id = "{agent_id}"
company = "bench"
direction = "{direction}"
trunk = "{trunk}"
phone_number = "{number}"
[agent.script]
{script}
[agent.stt]
{stt}
[agent.tts]
{tts}
{session}"""


def session_table(endpoint_ms: int) -> str:
    """Returns the settings of turns that end after `endpoint_ms`, whatever the judge thinks of the callers'
    buzz."""
    keys = ("endpoint_ms", "eot_action_delay_ms", "eot_timeout_ms")
    return "\n".join(["[agent.session]", *(f"{key} = {endpoint_ms}" for key in keys), ""])


_AGENTS: Final = agent_table(
    "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11",
    SCRIPT_NUMBER,
    session=f"{session_table(ENDPOINT_MS)}barge_in_ms = {BARGE_IN_MS}\n",
) + agent_table("7b0f7e7e-4f5a-4b8e-9f43-5f0f2c3f9f22", MONOLOGUE_NUMBER, script="monologue = true")


class Target:
    """A process that answers calls at `address`; ended by `close`."""

    def __init__(self, command: list[str], address: tuple[str, int], log: Path, **environment: str) -> None:
        self.address = address
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | environment
            )

    def usage(self) -> Usage:
        """Returns the usage of the whole process tree."""
        return usage_of(self.process.pid)

    def close(self) -> None:
        """Sends SIGTERM, and SIGKILL after 10 s."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)


class MediaServer(Target):
    """A target with the server's API, at `http`: started by the command `launch` on free ports, of which
    `configure` makes the configuration. `started_s`: seconds from its start to the first 200 of /readyz."""

    def __init__(
        self,
        directory: Path,
        configure: Callable[[int, int], str],
        launch: Sequence[str],
        **environment: str,
    ) -> None:
        self.http, sip = free_port(), free_port()
        config = directory / "server.toml"
        config.write_text(configure(self.http, sip), encoding="utf-8")
        command, log = [*launch, "serve", "--config", str(config)], directory / "server.log"
        began = time.monotonic()
        super().__init__(command, ("127.0.0.1", sip), log, **environment)
        self.url = f"http://127.0.0.1:{self.http}"
        wait_ready(self, f"{self.url}/readyz")
        self.started_s = time.monotonic() - began

    def get(self, path: str) -> Any:
        """Returns the body of a GET as JSON, or as text for /metrics. Raises URLError."""
        request = Request(self.url + path, headers={"Authorization": f"Bearer {KEY}"})
        with urlopen(request, timeout=10) as answer:
            text = answer.read().decode()
        return text if path == "/metrics" else json.loads(text)

    def reports(self, count: int) -> Iterator[dict[str, Any]]:
        """Yields the API's reports on the newest `count` calls."""
        cursor = ""
        while count > 0:
            page = self.get(f"/api/v1/calls?limit=100&cursor={cursor}")
            for summary in page["calls"][:count]:
                yield self.get(f"/api/v1/calls/{summary['callTaskId']}")
            count -= len(page["calls"])
            cursor = page["cursor"] or ""
            if not cursor:
                return


def configuration(
    directory: Path, ports: tuple[int, int], more: str, *, rtp: str = "10000-17999",
    codecs: Sequence[str] = ("pcmu",), server: str = "",
) -> str:  # fmt: skip
    """Returns the settings of a server with one company, which the load calls, and `more` tables. `ports`:
    HTTP's and SIP's; `server`: further keys of its own table."""
    http, sip = ports
    names = {"http": http, "sip": sip, "rtp": rtp, "key": KEY, "codecs": list(codecs), "server": server}
    return _CONFIG.format(directory=directory, **names) + more


class ServerUnderTest(MediaServer):
    """The unmodified server with stub engines, started by the command `launch`. `kernels`: where compiled
    ones are kept."""

    def __init__(self, directory: Path, more: str, kernels: Path, launch: Sequence[str]) -> None:
        def configure(http: int, sip: int) -> str:
            return configuration(directory, (http, sip), _AGENTS + more)

        super().__init__(directory, configure, launch, NUMBA_CACHE_DIR=str(kernels))


def wait_ready(target: Target, url: str) -> None:
    """Returns when `url` answers 200. Raises RuntimeError with the end of the server's log when it does
    not."""
    end = time.monotonic() + _READY_TIMEOUT_S
    while time.monotonic() < end:
        if target.process.poll() is not None:
            raise RuntimeError(f"the server ended: {target.log.read_text()[-2000:]}")
        try:
            urlopen(url, timeout=10).close()
        except (URLError, OSError):
            time.sleep(0.01)
        else:
            return
    target.close()
    raise RuntimeError(f"the server is not ready: {target.log.read_text()[-2000:]}")


@contextmanager
def serving(
    directory: Path, more: str = "", *, kernels: Path | None = None, launch: Sequence[str] = SERVER
) -> Iterator[ServerUnderTest]:
    """Runs the unmodified server for the length of the block; `more` is added to its configuration.
    `kernels`: where compiled ones are kept, this process's place for them unless given. `launch`: the command
    line before `serve`."""
    server = ServerUnderTest(directory, more, kernels or kernel_cache.place(), launch)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def floors(directory: Path) -> Iterator[dict[str, Target]]:
    """Runs both floors for the length of the block: the bare agent on asyncio's own loop, and on uvloop."""
    with bare(directory) as plain, bare(directory, module="bench.call.bare_uvloop") as on_uvloop:
        yield {"bare": plain, "bare_uvloop": on_uvloop}


@contextmanager
def bare(directory: Path, *, module: str = "bench.call.bare") -> Iterator[Target]:
    """Runs the bare agent of `module` for the length of the block."""
    port = free_port()
    command = [sys.executable, "-m", module, str(port)]
    target = Target(command, ("127.0.0.1", port), directory / f"{module}.log")
    try:
        time.sleep(1.0)
        yield target
    finally:
        target.close()


@contextmanager
def nicer_to_us(*, wanted: bool) -> Iterator[None]:
    """Raises the priority, by niceness, of processes that leave SCHED_RR for ordinary scheduling, such as a
    server's helpers; that of the session too where the kernel groups by sessions, since all SCHED_RR
    processes together get at most 95 %. Does nothing unless `wanted`."""
    if not wanted:
        yield
        return
    group, before = Path("/proc/self/autogroup"), os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, _BEFORE_OTHERS)
        if group.exists():
            group.write_text(str(_BEFORE_OTHERS))
    except PermissionError:
        raise click.ClickException("--realtime needs root (CAP_SYS_NICE)") from None
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)
        if group.exists():
            group.write_text("0")


@contextmanager
def before_others(*, wanted: bool) -> Iterator[None]:
    """Runs this process and those that it starts meanwhile before ordinary programs (SCHED_RR), so that a
    shared machine measures like an exclusive one; does nothing unless `wanted`. Raises ClickException where
    it is not permitted."""
    if not wanted:
        yield
        return
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        raise click.ClickException("--realtime needs root (CAP_SYS_NICE)") from None
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def usage_by_module(pid: int) -> dict[str, Usage]:
    """Returns the usage by the module that each process runs: the last two parts of the name after `-m`."""
    found: dict[str, Usage] = {}
    for each in tree(pid):
        if not (words := command_of(each)):
            continue
        name = ".".join(module_of(each).split(".")[-2:]) or words[0]
        own, before = usage_of(each, whole_tree=False), found.get(name, Usage(0.0, 0))
        found[name] = Usage(before.cpu_ms + own.cpu_ms, before.rss + own.rss)
    return found


def machine_busy_ms() -> float:
    """Returns the CPU time that the machine has spent on all programs, over all cores; stolen time counts."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) * _TICK_MS
