"""A configuration on free ports, its database, and its server in this process or in one of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer

from api.app import build
from mediaserver.db.database import open_database
from mediaserver.server import Server
from mediaserver.settings import load
from pipeline import registry
from tests.support.http.models import fake_models
from tests.support.node import postgres
from tests.support.node.forked import Forked
from tests.support.node.store import rows_in
from tests.support.ports import free_port, free_rtp_ports

OUTBOUND = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"
INBOUND = "7b0f7e7e-4f5a-4b8e-9f43-5f0f2c3f9f22"
NO_TRUNK = "b3a9e2a0-93a8-4a55-8f6c-9f5f3f5f1a01"
OTHER_COMPANYS = "c4b8e2a0-93a8-4a55-8f6c-9f5f3f5f1a02"
MODELLED = "d5c7e2a0-93a8-4a55-8f6c-9f5f3f5f1a03"

KEY = "acme-calls-key"
SPEECH_KEY = "acme-speech-key"
OTHER_KEY = "other-calls-key"

NUMBER = "+14155550123"

GOODBYE = """
[agent.script]
start = "bye"
[[agent.script.step]]
id = "bye"
say = "Goodbye."
action = "hang_up"
"""
"""What an agent says and does that only has to end its call."""

CONFIG = """
[server]
http = "127.0.0.1:{http}"
public_url = "http://127.0.0.1:{http}"
data_dir = "{data_dir}"
database = "{database}"
log_format = "plain"
drain_s = 5

[sip]
udp = "127.0.0.1:{sip}"
tcp = "127.0.0.1:{sip}"
rtp_ports = "{rtp}"
max_calls = 20

# Whatever else the machine does: overload has tests of its own.
[overload]
lag_ms = 0
backlog_ms = 0
set_up_ms = 0

[[company]]
id = "acme"
name = "Acme"
dial_prefixes = ["1415"]
country = "US"
[[company.key]]
key = "acme-calls-key"
scopes = ["calls"]
[[company.key]]
key = "acme-speech-key"
scopes = ["speech"]

[[company]]
id = "other"
name = "Other"
dial_prefixes = ["1415"]
country = "US"
[[company.key]]
key = "other-calls-key"
scopes = ["calls"]

[[trunk]]
id = "carrier"
company = "acme"
uri = "sip:127.0.0.1:{carrier};transport={transport}"
caller_id = "+14155550100"
accepts = "^\\\\+1415555\\\\d{{4}}$"
allow_from = ["127.0.0.1/32"]
ring_timeout_s = 20

[[agent]]
id = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"
company = "acme"
name = "Reminder"
trunk = "carrier"
phone_number = "+14155550100"
greeting = "Hello."
{engines}
[agent.script]
start = "who"
[[agent.script.step]]
id = "who"
say = "Is this {{{{name}}}}?"
expect = {{ kinds = ["yes_no"] }}
collect = "known"
next = "done"
[[agent.script.step]]
id = "done"
say = "Goodbye."
action = "hang_up"
disposition = "confirmed"
goal = true

[[agent]]
id = "7b0f7e7e-4f5a-4b8e-9f43-5f0f2c3f9f22"
company = "acme"
name = "Front desk"
direction = "inbound"
trunk = "carrier"
phone_number = "+14155550101"
greeting = "Welcome."
{engines}
{goodbye}
disposition = "greeted"

[[agent]]
id = "b3a9e2a0-93a8-4a55-8f6c-9f5f3f5f1a01"
company = "acme"
name = "No trunk"
{engines}
{goodbye}

[[agent]]
id = "c4b8e2a0-93a8-4a55-8f6c-9f5f3f5f1a02"
company = "other"
name = "Somebody else's"
{engines}
{goodbye}
"""

MODEL_AGENT = """
[[agent]]
id = "d5c7e2a0-93a8-4a55-8f6c-9f5f3f5f1a03"
company = "acme"
name = "Modelled"
trunk = "carrier"
phone_number = "+14155550100"
[agent.stt]
engine = "faster-whisper"
model = "no-such-model"
[agent.tts]
engine = "test-voice"
[agent.llm]
base_url = "http://127.0.0.1:9/v1"
model = "any"
prompt = "You are kind."
"""

FAKE_ENGINES = """
[agent.stt]
engine = "test-ears"
fallback = []
[agent.tts]
engine = "test-voice"
fallback = []
"""

REAL_ENGINES = """
[agent.stt]
engine = "pocketsphinx"
[agent.tts]
engine = "espeak-ng"
"""

ASKING_NUMBER = "+14155550108"

_ASKING = """
[[agent]]
id = "7b0f7e7e-4f5a-4b8e-9f43-5f0f2c3f9f88"
company = "acme"
name = "Asks"
direction = "inbound"
trunk = "carrier"
phone_number = "+14155550108"
ENGINES
[agent.script]
start = "ask"
[[agent.script.step]]
id = "ask"
say = "QUESTION"
expect = {{ kinds = ["yes_no"] }}
next = "bye"
[[agent.script.step]]
id = "bye"
say = "Goodbye."
action = "hang_up"
"""


def asking_agent(question: str, *, engines: str = "{engines}") -> str:
    """More of a site: an agent at `ASKING_NUMBER` that asks one question and says goodbye."""
    return _ASKING.replace("QUESTION", question).replace("ENGINES", engines)


@dataclass(frozen=True)
class Site:
    """A configuration file and the ports in it; `carrier` is where the trunk sends its INVITEs. `database` is
    as the file names it, "" for SQLite in `data_dir`."""

    path: Path
    http: int
    sip: int
    carrier: int
    data_dir: Path
    database: str = ""

    def change(self, old: str, new: str) -> Site:
        """Replaces `old`, which is there, wherever it is."""
        text = self.path.read_text()
        assert old in text, old
        self.path.write_text(text.replace(old, new))
        return self

    def add(self, table: str, lines: str) -> Site:
        """Adds lines to a table, "[server]" for one."""
        return self.change(f"{table}\n", f"{table}\n{lines}\n")

    def reach_this_machine(self) -> Site:
        """Lets the server ask models, tools and webhooks on the loopback."""
        return self.add("[server]", 'allow_networks = ["127.0.0.0/8"]')

    def send_to(self, carrier: int) -> Site:
        """Sends the trunk's calls to another port."""
        return self.change(f":{self.carrier};", f":{carrier};")

    def limit(self, company: str, calls: int) -> Site:
        """Lets a company have so many calls at a time."""
        return self.add(f'[[company]]\nid = "{company}"', f"max_concurrent_calls = {calls}")


def write_site(
    directory: Path,
    *,
    engines: str = FAKE_ENGINES,
    more: str = "",
    transport: str = "udp",
    database: str = "",
    **values: object,
) -> Site:
    """A configuration on free ports in `directory`, `more` appended; both name `values` in braces, and the
    ports. Over "tcp" a carrier that is not there refuses at once, over "udp" it is waited for."""
    site = Site(
        directory / "server.toml", free_port(), free_port(), free_port(), directory / "data", database
    )
    text = (CONFIG + more).format(
        database=database,
        transport=transport,
        http=site.http,
        sip=site.sip,
        carrier=site.carrier,
        rtp=free_rtp_ports(),
        data_dir=site.data_dir,
        engines=engines,
        goodbye=GOODBYE.strip(),
        **values,
    )
    site.path.write_text(text)
    return site


# The engines of databases ----------------------------------------------------------------------------------

DATABASES = ("sqlite", "postgresql")


@contextmanager
def database_on(engine: str) -> Iterator[str]:
    """What `write_site` takes as its `database`: "" for SQLite's own, else a new one on the shared server."""
    if engine == "sqlite":
        yield ""
        return
    with postgres.database() as url:
        yield url


async def rows_of(site: Site, sql: str, **values: Any) -> list[dict[str, Any]]:
    """Rows of the site's database, past the server."""
    return await rows_in(open_database(site.database, Path(site.data_dir)), sql, **values)


# A server in this process ---------------------------------------------------------------------------------

Client: TypeAlias = TestClient[Any, Any]


class Node(NamedTuple):
    """A started server and a client of its API."""

    server: Server
    client: Client


@asynccontextmanager
async def running(site: Site) -> AsyncIterator[Node]:
    """The site's node, which ends with the block. Where the test has opened no `fake_models` of its own,
    those that the site's agents name are there."""
    with nullcontext() if "test-ears" in registry.known("stt") else fake_models():
        server = Server(load(site.path))
        try:
            await server.start()
            async with TestClient(TestServer(build(server))) as client:
                yield Node(server, client)
        finally:
            await server.close()


def node_of_module(write: Callable[..., Site] = write_site, **options: Any) -> Any:
    """A fixture: one node for all tests of a module, of the site that `write` makes."""

    @pytest_asyncio.fixture(scope="module", loop_scope="module")
    async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Node]:
        async with running(write(tmp_path_factory.mktemp("node"), **options)) as made:
            yield made

    return node


def clients_of_module(write: Callable[..., Site] = write_site, **options: Any) -> Any:
    """A fixture: the client of one node for all tests of a module, on each engine of databases in turn."""

    @pytest_asyncio.fixture(scope="module", loop_scope="module", params=DATABASES)
    async def client(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> AsyncIterator[Client]:
        with database_on(request.param) as database:
            site = write(tmp_path_factory.mktemp("node"), database=database, **options)
            async with running(site) as (_, client):
                yield client

    return client


async def place_call(client: Client, agent: str = OUTBOUND, *, number: str = NUMBER, **variables: str) -> str:
    """The id of a call that the API has taken; Bo is called where no variables are given."""
    body = {"agentId": agent, "phoneNumber": number, "promptVariables": variables or {"name": "Bo"}}
    async with client.post("/api/v1/calls/outbound", json=body, headers=bearer(KEY)) as answer:
        assert answer.status == 200, await answer.text()
        return str((await answer.json())["data"]["callTaskId"])


def bearer(key: str) -> dict[str, str]:
    """The header that says who asks."""
    return {"Authorization": f"Bearer {key}"}


async def until_final(
    client: Client, call_id: str, *, timeout_s: float = 30.0, key: str = KEY
) -> dict[str, Any]:
    """The call's report once it is over."""
    async with asyncio.timeout(timeout_s):
        while True:
            async with client.get(f"/api/v1/calls/{call_id}", headers=bearer(key)) as answer:
                report: dict[str, Any] = await answer.json()
            if report.get("endedAt"):
                return report
            await asyncio.sleep(0.05)


async def reached(client: Client, call_id: str, status: str) -> None:
    """Returns when the call has that status."""
    async with asyncio.timeout(20):
        while True:
            async with client.get(f"/api/v1/calls/{call_id}", headers=bearer(KEY)) as answer:
                if (await answer.json())["status"] == status:
                    return
            await asyncio.sleep(0.05)


async def only_report(client: Client) -> dict[str, Any]:
    """The report of the only call that there is, or comes, once it is over."""
    async with asyncio.timeout(20):
        while True:
            async with client.get("/api/v1/calls", headers=bearer(KEY)) as answer:
                calls = (await answer.json())["calls"]
            if calls:
                break
            await asyncio.sleep(0.05)
    (call,) = calls
    return await until_final(client, call["callTaskId"])


# A server in a process of its own -------------------------------------------------------------------------


class ServerProcess:
    """`mediaserver serve` in a process of its own, in the folder `cwd`; what it logs is kept in a file, or
    goes to the descriptor `output`. `open_files`: its soft and hard limit. Where neither is given, it is
    forked from a process that has imported the server, unless it `is_cold`: started as a user does."""

    def __init__(
        self,
        site: Site,
        *arguments: str,
        cwd: Path | None = None,
        output: int | None = None,
        open_files: tuple[int, int] | None = None,
        is_cold: bool = False,
    ) -> None:
        self.site = site
        self.log = site.path.with_suffix(".log")
        words = ("serve", "--config", str(site.path), *arguments)
        self.process: subprocess.Popen[bytes] | Forked
        if is_cold or output is not None or open_files is not None:
            self.process = self._started(words, cwd, output, open_files)
        else:
            self.process = Forked(words, self.log, cwd=cwd)

    def _started(
        self,
        words: tuple[str, ...],
        cwd: Path | None,
        output: int | None,
        open_files: tuple[int, int] | None,
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "mediaserver", *words]
        if open_files is not None:
            limit = 'ulimit -Sn "$0" && ulimit -Hn "$1" && shift && exec "$@"'
            command = ["/bin/sh", "-c", limit, *map(str, open_files), *command]
        with self.log.open("wb") as log:
            environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
            return subprocess.Popen(
                command, stdout=output or log, stderr=subprocess.STDOUT, cwd=cwd, env=environment
            )

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Waits until `/readyz` says 200."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended: {self.log.read_text()}")
            if self.get("/readyz")[0] == 200:
                return
            time.sleep(0.05)
        raise AssertionError(f"not ready: {self.get('/readyz')} {self.log.read_text()}")

    def get(self, path: str, key: str = "") -> tuple[int, Any]:
        """Status and body of a GET; status 0 while nobody listens."""
        return self.ask("GET", path, None, key)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None, key: str) -> tuple[int, Any]:
        """Status and body of a request; status 0 while nobody listens."""
        data = None if body is None else json.dumps(body).encode()
        headers = bearer(key) if data is None else {**bearer(key), "Content-Type": "application/json"}
        request = Request(f"http://127.0.0.1:{self.site.http}{path}", data, headers, method=method)
        try:
            with urlopen(request, timeout=5) as answer:
                return answer.status, _body(answer.read())
        except HTTPError as error:
            with error:
                return error.code, _body(error.read())
        except (URLError, OSError):
            return 0, None

    def stop(self, *, signal_number: int, timeout_s: float = 20.0) -> int:
        """Sends a signal and waits for the exit status."""
        self.process.send_signal(signal_number)
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """Ends it without ceremony, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


def _body(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode()


@contextmanager
def serving(site: Site, *arguments: str, **options: Any) -> Iterator[ServerProcess]:
    """A server process that is gone when the block ends; `options` as `ServerProcess` has them."""
    server = ServerProcess(site, *arguments, **options)
    try:
        yield server
    finally:
        server.kill()


@asynccontextmanager
async def server_of(site: Site, **options: Any) -> AsyncIterator[ServerProcess]:
    """As `serving`, once the server is ready: the first one on a machine compiles its kernels."""
    with serving(site, **options) as server:
        await asyncio.to_thread(server.wait_ready, 180.0)
        yield server
