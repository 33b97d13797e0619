"""Sends the spans of calls to an OpenTelemetry collector, by OTLP over HTTP, with OpenTelemetry's own SDK.

The SDK queues spans and sends them from a thread of its own: a collector that is slow or away costs calls
nothing, and what does not fit the queue is dropped. Needs the extra `otel`; imported where tracing is on."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from mediaserver.tracing.call_spans import Span, TracedCall, call_spans
from pipeline.net.trace_context import trace_id_of

SERVICE: Final = "openline-mediaserver"
"""The resource's `service.name`."""

_NS_PER_MS: Final = 1_000_000
_TIMEOUT_S: Final = 5.0
_CLOSING_MS: Final = 3000


class _GivenIds(IdGenerator):
    """The ids of the span that is made next."""

    def __init__(self) -> None:
        self.trace_id = ""
        self.span_id = ""

    def generate_trace_id(self) -> int:
        """Returns the call's id."""
        return int(self.trace_id, 16)

    def generate_span_id(self) -> int:
        """Returns the given id, else a random one."""
        return int(self.span_id, 16) if self.span_id else secrets.randbits(64) or 1


class OtlpTracer:
    """Sends what is known of calls that are over to the collector at `endpoint`, a URL as
    `https://collector:4318/v1/traces`, with `headers`. `node` names this process among others."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], *, node: str) -> None:
        exporter = OTLPSpanExporter(
            endpoint, headers=dict(headers), timeout=_TIMEOUT_S, compression=Compression.Gzip
        )
        self._ids = _GivenIds()
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create({SERVICE_NAME: SERVICE, SERVICE_INSTANCE_ID: node}),
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(SERVICE)
        self._thread = ThreadPoolExecutor(1, "spans")
        self._closed = False

    def add(self, call: TracedCall) -> None:
        """Queues the spans of `call`; returns at once: a long call has hundreds, 30 microseconds each.
        Drops the spans of a call that ends after `close`."""
        if not self._closed:
            self._thread.submit(self._add_all, call)

    def _add_all(self, call: TracedCall) -> None:
        self._ids.trace_id = trace_id_of(call.claim.call_id)
        made: dict[int, trace.Span] = {}
        for span in call_spans(call):
            made[id(span)] = self._add(span, made)

    def _add(self, span: Span, made: Mapping[int, trace.Span]) -> trace.Span:
        self._ids.span_id = span.span_id
        parent = made[id(span.parent)] if span.parent is not None else trace.INVALID_SPAN
        added = self._tracer.start_span(
            span.name,
            trace.set_span_in_context(parent),
            kind=trace.SpanKind.INTERNAL if span.parent is not None else trace.SpanKind.SERVER,
            attributes=span.attributes,
            start_time=round(span.start_ms * _NS_PER_MS),
        )
        for at_ms, attributes in span.faults:
            added.add_event("engine fault", attributes, round(at_ms * _NS_PER_MS))
        if span.failed:
            added.set_status(trace.StatusCode.ERROR)
        added.end(round(span.end_ms * _NS_PER_MS))
        return added

    async def close(self) -> None:
        """Sends what is queued, for some seconds at most."""
        self._closed = True
        await asyncio.to_thread(self._thread.shutdown)
        await asyncio.to_thread(self._provider.force_flush, _CLOSING_MS)
        await asyncio.to_thread(self._provider.shutdown)
