"""Metrics and log lines: what can be counted, and what must never be written."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mediaserver.telemetry import logging as logs
from mediaserver.telemetry.metrics import GcPauses, LoopLag, Metrics
from tests.support.kept_logging import kept_logging


@dataclass(frozen=True)
class Stats:
    packets_received: int = 500
    packets_sent: int = 480
    lost: int = 3
    late: int = 1
    strange_address: int = 7
    bad_packets: int = 2
    concealed: int = 3


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_the_media_of_calls_adds_up() -> None:
    metrics = Metrics()
    metrics.count_rtp(Stats())
    metrics.count_rtp(Stats())
    assert value(metrics, "mediaserver_rtp_packets_total", kind="lost") == 6
    assert value(metrics, "mediaserver_rtp_packets_total", kind="strange_address") == 14


def test_two_servers_in_a_process_do_not_share_figures() -> None:
    first, second = Metrics(), Metrics()
    first.calls.labels("outbound", "COMPLETED", "normal").inc()
    labels = {"direction": "outbound", "state": "COMPLETED", "cause": "normal"}
    assert value(first, "mediaserver_calls_total", **labels) == 1
    assert value(second, "mediaserver_calls_total", **labels) is None


def test_a_state_without_calls_disappears_from_the_ledgers_gauge() -> None:
    metrics = Metrics()
    metrics.show_ledger({"QUEUED": 2, "ARMED": 1})
    metrics.show_ledger({"QUEUED": 1})
    assert value(metrics, "mediaserver_ledger_calls", stage="QUEUED") == 1
    assert value(metrics, "mediaserver_ledger_calls", stage="ARMED") is None


async def test_a_blocked_loop_shows_in_the_lag() -> None:
    seen: list[float] = []
    lag = LoopLag(seen.append, interval_s=0.01)
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0.03)
    loop.call_soon(_spin, loop, 0.1)
    await asyncio.sleep(0.03)
    lag.close()
    assert max(seen) > 0.05
    assert min(seen) >= 0


def _spin(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    until = loop.time() + seconds
    while loop.time() < until:
        pass


def test_collections_are_timed_until_closed() -> None:
    seen: list[float] = []
    pauses = GcPauses(seen.append)
    gc.collect()
    pauses.flush()
    assert seen
    assert all(pause > 0 for pause in seen)
    pauses.close()
    counted = len(seen)
    gc.collect()
    pauses.flush()
    assert len(seen) == counted


class Written:
    """The log of this process, in a file."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("wb")
        self.configure(as_json=True)

    def configure(self, *, as_json: bool) -> None:
        self.writer = logs.configure(level="info", as_json=as_json, fd=self._file.fileno())

    def text(self) -> str:
        """Everything; nothing is written any more."""
        assert self.writer.close()
        return self._path.read_text()

    def close(self) -> None:
        self.writer.close()
        self._file.close()


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    with kept_logging():
        written = Written(tmp_path / "log")
        yield written
        written.close()


def test_a_line_is_json_with_its_fields(written: Written) -> None:
    logging.getLogger("sip").info("call ended", extra={"call_id": "17", "cause": "busy"})
    line = json.loads(written.text())
    assert (line["message"], line["level"], line["logger"]) == ("call ended", "info", "sip")
    assert (line["call_id"], line["cause"]) == ("17", "busy")


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("phone_number", "+14155550123"),
        ("remote_number", "14155550123"),
        ("text", "my account is four two"),
        ("password", "hunter2"),
        ("key", "acme-calls-key"),
    ],
)
def test_what_was_said_and_who_was_called_is_not_written(written: Written, name: str, secret: str) -> None:
    logging.getLogger("sip").warning("odd", extra={name: secret})
    text = written.text()
    assert secret not in text
    assert name in text


@pytest.mark.parametrize("as_json", [True, False])
def test_a_number_in_a_traceback_is_masked(as_json: bool, written: Written) -> None:
    written.configure(as_json=as_json)
    try:
        raise ValueError("no route to sip:+14155550123@carrier")
    except ValueError:
        logging.getLogger("sip").exception("call failed", extra={"call_id": "17"})
    text = written.text()
    assert "4155550123" not in text
    assert "no route to sip:" in text
    assert "17" in text
