"""Measures orders over the API while calls are up, and those calls: `python -m bench post`.

The server and the load of `bench call`: 30 calls that talk, measured in turns without and with a client that
orders one more call at a time over the API. Each order is queued, claimed, armed and dialled, to a carrier
that is busy at once: the whole path of an outbound call except its media."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from bench import report
from bench.call.figures import pacing, surroundings
from bench.call.generator import Job
from bench.call.phases import measured
from bench.call.processes import KEY, SCRIPT_NUMBER, ServerUnderTest, agent_table, serving
from mediaserver.benchmark.figures import Figures, percentiles

POST_TARGET_MS: Final = 50.0
GAP_TARGET_MS: Final = 22.0

RATE: Final = click.FloatRange(0.1, 20)
"""Orders per second: at most the default limit of a key (1200 a minute)."""

AGENT: Final = "5d6c6a1e-1f0f-4c1a-8a55-6b1de26a3d33"
CARRIER: Final = """
[[trunk]]
id = "busy"
company = "bench"
uri = "sip:127.0.0.1:{port};transport=udp"
codecs = ["pcmu"]
"""

_COPIED: Final = re.compile(r"^(?:Via|From|Call-ID|CSeq):[^\r\n]*", re.MULTILINE | re.IGNORECASE)
_TO: Final = re.compile(r"^To:[^\r\n]*", re.MULTILINE | re.IGNORECASE)


class BusyCarrier:
    """Answers every INVITE with 486 Busy Here, on a thread of its own until `close`. `invited` counts the
    Call-IDs received."""

    def __init__(self) -> None:
        self._socket = socket.socket(type=socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.2)
        self.port: int = self._socket.getsockname()[1]
        self._invited: set[str] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._answer, name="carrier")
        self._thread.start()

    @property
    def invited(self) -> int:
        """Number of calls received."""
        return len(self._invited)

    def close(self) -> None:
        """Stops answering and closes the socket."""
        self._closing.set()
        self._thread.join()
        self._socket.close()

    def _answer(self) -> None:
        while not self._closing.is_set():
            try:
                data, sender = self._socket.recvfrom(65_536)
            except TimeoutError:
                continue
            reply = self._reply(data.decode())
            if reply:
                self._socket.sendto(reply, sender)

    def _reply(self, request: str) -> bytes:
        method = request.partition(" ")[0]
        to = _TO.search(request)
        if method in ("ACK", "SIP/2.0") or to is None:
            return b""
        headers = _COPIED.findall(request)
        if method == "INVITE":
            self._invited.update(each for each in headers if each.lower().startswith("call-id"))
        status = "486 Busy Here" if method == "INVITE" else "200 OK"
        lines = [f"SIP/2.0 {status}", *headers, f"{to[0]};tag=busy", "Content-Length: 0", "", ""]
        return "\r\n".join(lines).encode()


class Orders:
    """Orders a call `rate_per_s` times a second. `answers_ms` counts from the time that an order was due to
    the last byte of its response, so that the wait of an order for the one before counts too."""

    def __init__(self, server: ServerUnderTest, rate_per_s: float) -> None:
        self._http = server.http
        self._pause_s = 1 / rate_per_s
        self._number = 14_152_000_000
        self.answers_ms: list[float] = []
        self.refused: list[str] = []

    @contextmanager
    def coming_in(self) -> Iterator[None]:
        """Orders calls on a thread of its own for the length of the block."""
        closing = threading.Event()
        thread = threading.Thread(target=self._order, args=(closing,), name="orders")
        thread.start()
        try:
            yield
        finally:
            closing.set()
            thread.join()

    def _order(self, closing: threading.Event) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._http, timeout=10)
        due = time.perf_counter()
        while not closing.wait(max(0.0, due - time.perf_counter())):
            self._post(connection, due)
            due += self._pause_s
        connection.close()

    def _post(self, connection: http.client.HTTPConnection, due: float) -> None:
        self._number += 1
        body = json.dumps({"agentId": AGENT, "phoneNumber": f"+{self._number}"})
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        connection.request("POST", "/api/v1/calls/outbound", body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        self.answers_ms.append((time.perf_counter() - due) * 1000)
        if answer.status >= 300:
            self.refused.append(f"{answer.status} {text[:200]}")


def measure(*, calls: int, seconds: float, rate_per_s: float, rounds: int) -> dict[str, Any]:
    """Returns all figures, as in results/post.json."""
    load_before = os.getloadavg()
    carrier = BusyCarrier()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            agent = agent_table(AGENT, "+14155550103", trunk="busy", direction="outbound")
            more = CARRIER.format(port=carrier.port) + agent
            with serving(Path(scratch), more) as server:
                orders = Orders(server, rate_per_s)
                phases = _phases(server, orders, rounds, calls=calls, seconds=seconds)
    finally:
        carrier.close()
    return {
        "load_average": (load_before, os.getloadavg()),
        "calls": calls,
        "rate_per_s": rate_per_s,
        "post_ms": percentiles(orders.answers_ms, 50, 95, 99, 100),
        "refused": len(orders.refused),
        "first_refused": orders.refused[:1],
        "dialled": carrier.invited,
        **phases,
    }


def _phases(
    server: ServerUnderTest, orders: Orders, rounds: int, *, calls: int, seconds: float
) -> dict[str, Figures]:
    """Measures without and with orders in turns, so that other programs disturb both alike."""
    heard: dict[str, list[Figures]] = {"without": [], "with": []}
    last: dict[str, Figures] = {}
    for number in range(2 * rounds):
        name = ("without", "with")[number % 2]
        click.echo(f"measuring: {calls} calls {name} orders", err=True)
        first = 14_155_560_000 + 10_000 * number
        job = Job(
            server=server.address, called=SCRIPT_NUMBER, first_number=first, calls=calls, seconds=seconds
        )
        result, window = measured(server, job, beside=orders.coming_in() if name == "with" else None)
        heard[name] += result["calls"]
        last[name] = {"up_at_end": result["up"], **surroundings(result["calls"], window)}
    return {name: pacing(each) | last[name] for name, each in heard.items()}


def rows(figures: Figures) -> list[tuple[str, str, str, str]]:
    """Returns name, target, measured value, and whether the target is met."""
    post, quiet, busy = figures["post_ms"]["p99"], figures["without"], figures["with"]
    gap = busy["gap_ms"]["p99"]
    told = [
        (f"POST of one call, {figures['calls']} calls up, p99 ms", POST_TARGET_MS, post),
        (f"gap between packets, {figures['calls']} calls, orders coming in, p99 ms", GAP_TARGET_MS, gap),
    ]
    found = [
        (name, f"≤ {target:g}", f"{value:.2f}", "met" if value <= target else "missed")
        for name, target, value in told
    ]
    return [*found, ("the same without orders", "", f"{quiet['gap_ms']['p99']:.2f}", "")]


@click.command()
@click.option(
    "--calls", default=30, show_default=True, type=click.IntRange(1, 1000), help="Concurrent calls."
)
@click.option("--rate", default=15.0, show_default=True, type=RATE, help="Orders a second.")
@click.option("--short", is_flag=True, help="Measure for about a minute.")
def main(calls: int, rate: float, short: bool) -> None:
    """Orders over the API while calls are up: how long each takes, and what the calls notice."""
    figures = measure(calls=calls, seconds=10.0 if short else 25.0, rate_per_s=rate, rounds=1 if short else 2)
    report.show("Orders while calls are up", ("what", "target", "reached", ""), rows(figures))
    report.save("post", {"short": short} | figures)
