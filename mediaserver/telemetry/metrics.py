"""The server's metrics, in Prometheus' text format.

One `Metrics` per server, on a registry of its own: two servers in one process (tests) do not collide. No
metric is touched per audio frame: a call's media figures are added once, when it ends."""

from __future__ import annotations

import asyncio
import collections
import gc
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from mediaserver.telemetry.trunk_metrics import TrunkFigures
from pipeline.engines.breaker import BreakerState
from pipeline.engines.guard import EngineHealth
from pipeline.latency import WAIT_BOUNDS_S, DecoderWaits
from sip.endpoint import EndpointStats

LAG_PROBE_S = 0.05
"""How often the loop's lateness is sampled."""

_LATENCY_BUCKETS_S = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 4.0)
_MOS_BUCKETS = (1.5, 2.0, 2.6, 3.1, 3.6, 4.0, 4.2, 4.3, 4.5)
"""Grades of G.107 Annex B between them: below 2.6 nearly nobody is satisfied, above 4.3 everybody is."""

_LAG_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_PAUSE_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25)

RTP_COUNTS: Mapping[str, str] = {
    "packets_received": "received",
    "packets_sent": "sent",
    "lost": "lost",
    "late": "late",
    "strange_address": "strange_address",
    "bad_packets": "bad",
    "concealed": "concealed",
    "forged": "forged",
    "replayed": "replayed",
}
"""Field of a call's media statistics -> value of the label `kind` of `mediaserver_rtp_packets_total`."""

_OPEN: Mapping[BreakerState, float] = {
    BreakerState.CLOSED: 0.0,
    BreakerState.HALF_OPEN: 0.5,
    BreakerState.OPEN: 1.0,
}


class _Scraped(Collector):
    """Metrics that `made` makes anew for every scrape."""

    def __init__(self, made: Callable[[], Iterable[Metric]]) -> None:
        self._made = made

    def collect(self) -> Iterable[Metric]:
        """Returns the metrics of this moment."""
        return self._made()


def _engine_figures(health: Iterable[EngineHealth]) -> Iterator[Metric]:
    """Yields requests, failures and breakers of the engines; engines of one name together."""
    labels = ("kind", "engine")
    requests = CounterMetricFamily("mediaserver_engine_requests", "Sent to an engine", labels=labels)
    failures = CounterMetricFamily("mediaserver_engine_failures", "Failed requests", labels=labels)
    breakers = GaugeMetricFamily(
        "mediaserver_engine_breaker_open", "1: left alone after failures; 0.5: being tried", labels=labels
    )
    total: dict[tuple[str, str], list[EngineHealth]] = {}
    for each in health:
        total.setdefault((each.kind, each.name), []).append(each)
    for name, those in total.items():
        requests.add_metric(name, sum(each.requests for each in those))
        failures.add_metric(name, sum(each.errors for each in those))
        breakers.add_metric(name, max(_OPEN[each.state] for each in those))
    yield from (requests, failures, breakers)


def _decoder_waits(waits: Iterable[tuple[str, DecoderWaits]]) -> Iterator[Metric]:
    """Yields how long callers wait for a busy recogniser; engines of one name together."""
    text = "From the end of an utterance until a decoder has it"
    family = HistogramMetricFamily("mediaserver_decoder_wait_seconds", text, labels=("engine",))
    total: dict[str, list[DecoderWaits]] = {}
    for name, each in waits:
        total.setdefault(name, []).append(each)
    bounds = [*map(floatToGoString, WAIT_BOUNDS_S), "+Inf"]
    for name, those in total.items():
        counts = accumulate(map(sum, zip(*(each.counts for each in those), strict=True)))
        buckets = list(zip(bounds, counts, strict=True))
        family.add_metric((name,), buckets, sum(each.sum_s for each in those))
    yield family


def _trunk_servers(servers: Iterable[tuple[str, str]]) -> Iterator[Metric]:
    """Yields a count of servers for each trunk and health."""
    said = "Servers of a trunk by what OPTIONS found"
    family = GaugeMetricFamily("mediaserver_trunk_servers", said, labels=("trunk", "health"))
    counts = collections.Counter(servers)
    for trunk in sorted({trunk for trunk, _ in counts}):
        for health in ("unknown", "up", "down"):
            family.add_metric((trunk, health), counts[trunk, health])
    yield family


def _trunk_addresses(told: Iterable[tuple[str, bool]]) -> Iterator[Metric]:
    """Yields 1 or 0 for each trunk with a STUN server: whether that answers."""
    said = "1: the trunk's STUN server told its public address when it was asked last"
    family = GaugeMetricFamily("mediaserver_trunk_public_address", said, labels=("trunk",))
    for trunk, answers in sorted(told):
        family.add_metric((trunk,), float(answers))
    yield family


SIP_CURRENT: Mapping[str, str] = {
    "calls": "Calls of the SIP endpoint, offered ones and transfers included",
    "transactions": "SIP transactions",
    "dialogs": "SIP dialogs",
    "rtp_ports_used": "UDP ports of calls' audio in use",
}
"""Counts of the SIP endpoint at this moment: each is a gauge `mediaserver_sip_…`."""

SIP_DROPPED = ("refused", "shed", "malformed", "strays", "foreign", "blocked")
"""Counts of the SIP endpoint of what it did not take or send, the label `kind` of
`mediaserver_sip_dropped_total`."""


def _sip_figures(stats: EndpointStats) -> Iterator[Metric]:
    """Yields the SIP endpoint's counts: gauges of what there is now, and counters of what has been."""
    for field, text in SIP_CURRENT.items():
        yield GaugeMetricFamily(f"mediaserver_sip_{field}", text, value=getattr(stats, field))
    messages = CounterMetricFamily("mediaserver_sip_messages", "SIP messages", labels=("way",))
    messages.add_metric(("received",), stats.received)
    messages.add_metric(("sent",), stats.transmitted)
    dropped = CounterMetricFamily(
        "mediaserver_sip_dropped", "SIP messages not taken, or not sent, by why", labels=("kind",)
    )
    for kind in SIP_DROPPED:
        dropped.add_metric((kind,), getattr(stats, kind))
    wrong = CounterMetricFamily(
        "mediaserver_sip_wrong_passwords", "Requests with wrong credentials", value=stats.wrong_passwords
    )
    yield from (messages, dropped, wrong)


class Metrics:
    """Every metric of one server; `exposition()` is the body of `GET /metrics`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.calls = self._counter("calls", "Calls that ended", ("direction", "state", "cause"))
        self.active_calls = self._gauge("active_calls", "Calls in progress on this node")
        self.turn_latency = self._histogram(
            "turn_latency_seconds",
            "Caller's last voiced sample to the agent's first sample on the wire",
            _LATENCY_BUCKETS_S,
        )
        self.interruptions = self._counter("interruptions", "Times a caller spoke over the agent")
        self.loop_lag = self._histogram("loop_lag_seconds", "Lateness of the event loop", _LAG_BUCKETS_S)
        self.gc_pause = self._histogram("gc_pause_seconds", "Garbage collections", _PAUSE_BUCKETS_S)
        self.rtp = self._counter("rtp_packets", "RTP packets of ended calls", ("kind",))
        self.mos = self._histogram("mos", "MOS (G.107) of what the far ends of calls sent", _MOS_BUCKETS)
        self.engine_errors = self._counter("engine_errors", "Failures of engines and agents", ("kind",))
        self.silences = self._counter(
            "silences", "Over 2 s in the agent's turn, by what they are due to", ("cause",)
        )
        self.webhooks = self._gauge("webhook_deliveries", "Webhook deliveries in the outbox", ("state",))
        self.webhook_attempts = self._counter("webhook_attempts", "Webhook requests", ("outcome",))
        self.ledger = self._gauge("ledger_calls", "Calls in the ledger", ("stage",))
        self.journal_backlog = self._gauge("journal_backlog", "Call events not yet in the database")
        self.journal_dropped = self._counter("journal_dropped", "Call events given up for want of a database")
        self.wrong_keys = self._counter(
            "wrong_keys", "Wrong API keys: unknown, or refused without being looked up", ("outcome",)
        )
        self.key_bans = self._counter(
            "key_bans",
            "Times that an address, or the beginning of a key, was slowed or banned",
            ("by", "standing"),
        )
        self.data_removed = self._counter("data_removed", "Calls and events swept or erased", ("kind",))
        self.erasures_waiting = self._gauge("erasures_waiting", "What is still to be erased", ("kind",))
        self.disk_free = self._gauge("disk_free_bytes", "Room in the data directory")
        self._http_refused = self._counter("http_connections_refused", "Not taken", ("reason",))
        self._http_late = self._counter("http_late", "Deadlines that clients missed", ("what",))
        self.overloaded = self._gauge("overloaded", "1: nothing new is begun for want of processor time")
        self.trunks = TrunkFigures(self.registry)

    def exposition(self) -> bytes:
        """Returns the text that Prometheus scrapes."""
        return generate_latest(self.registry)

    def count_rtp(self, stats: object) -> None:
        """Adds the media statistics of a call that ended."""
        for field, kind in RTP_COUNTS.items():
            self.rtp.labels(kind).inc(max(0, getattr(stats, field, 0)))
        score = getattr(stats, "mos", None)
        if score is not None:
            self.mos.observe(score)

    def webhook_attempted(self, outcome: str, duration_ms: int) -> None:
        """Counts one webhook request: "delivered", "retried" or "dead"."""
        self.webhook_attempts.labels(outcome).inc()

    def http_refused(self, reason: str) -> None:
        """Counts a connection that was refused, by the reason "all", "address" or "descriptors"."""
        self._http_refused.labels(reason).inc()

    def http_late(self, what: str) -> None:
        """Counts a missed deadline: a "head", a "body", or an "answer" that was not read."""
        self._http_late.labels(what).inc()

    def watch_sip(self, stats: Callable[[], EndpointStats]) -> None:
        """Shows the SIP endpoint's own counts at every scrape."""
        self._watch(lambda: _sip_figures(stats()))

    def watch_trunks(
        self, servers: Callable[[], Iterable[tuple[str, str]]], told: Callable[[], Iterable[tuple[str, bool]]]
    ) -> None:
        """Shows the health of the trunks' servers at every scrape: `servers` yields a trunk's id and a health
        for each server, `told` the id of each trunk with a STUN server, and whether that answers."""
        self._watch(lambda: _trunk_servers(servers()))
        self._watch(lambda: _trunk_addresses(told()))

    def watch_engines(
        self,
        health: Callable[[], Iterable[EngineHealth]],
        waits: Callable[[], Iterable[tuple[str, DecoderWaits]]] = tuple,
    ) -> None:
        """Shows the health of the engines, and the waits for a busy recogniser, at every scrape."""
        self._watch(lambda: _engine_figures(health()))
        self._watch(lambda: _decoder_waits(waits()))

    def watch_log(self, lost: Callable[[], int]) -> None:
        """Shows how many log lines were lost, at every scrape."""
        name, text = "mediaserver_log_lines_lost", "Log lines lost for want of a reader"
        self._watch(lambda: [CounterMetricFamily(name, text, value=lost())])

    def show_ledger(self, counts: Mapping[str, int]) -> None:
        """Shows how many calls the ledger holds in each stage."""
        _show(self.ledger, counts)

    def show_deliveries(self, counts: Mapping[str, int]) -> None:
        """Shows how many webhook deliveries there are in each state."""
        _show(self.webhooks, counts)

    def _watch(self, made: Callable[[], Iterable[Metric]]) -> None:
        self.registry.register(_Scraped(made))

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"mediaserver_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"mediaserver_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"mediaserver_{name}", text, buckets=buckets, registry=self.registry)


def _show(gauge: Gauge, counts: Mapping[str, int]) -> None:
    gauge.clear()
    for label, count in counts.items():
        gauge.labels(label).set(count)


class LoopLag:
    """Samples every `interval_s` seconds how late the event loop runs its timers, in seconds: a lateness that
    every call of the process shares."""

    def __init__(self, observe: Callable[[float], object], *, interval_s: float = LAG_PROBE_S) -> None:
        self._observe = observe
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + interval_s
        self._timer = self._loop.call_at(self._due, self._probe)

    def _probe(self) -> None:
        now = self._loop.time()
        self._observe(max(0.0, now - self._due))
        self._due = now + self._interval_s
        self._timer = self._loop.call_at(self._due, self._probe)

    def close(self) -> None:
        """Cancels the timer that samples the event loop."""
        self._timer.cancel()


class GcPauses:
    """Times every garbage collection: a full one stalls all calls of the process at once.

    A collection may begin anywhere, also inside a metric's own lock: the callback therefore only notes the
    time, and `flush` (at each scrape) hands the notes on. At most 4096 are kept between two scrapes.
    """

    def __init__(self, observe: Callable[[float], object]) -> None:
        self._observe = observe
        self._began = 0.0
        self._pauses_s: deque[float] = deque(maxlen=4096)
        gc.callbacks.append(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self._pauses_s.append(time.perf_counter() - self._began)

    def flush(self) -> None:
        """Passes on the pauses, in seconds, since the last flush."""
        while self._pauses_s:
            self._observe(self._pauses_s.popleft())

    def close(self) -> None:
        """Removes the callback that times garbage collections."""
        gc.callbacks.remove(self._collected)
