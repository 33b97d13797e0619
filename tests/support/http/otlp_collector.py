"""A collector of OpenTelemetry's traces, which reads requests with the published protobuf messages."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.webrtc.web import served


@dataclass
class Collector:
    """`spans` are those that came, `keys` the `Authorization` of each request."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    services: set[str] = field(default_factory=set)

    def named(self, name: str) -> list[Span]:
        """The spans of that name."""
        return [span for span in self.spans if span.name == name]

    async def take(self, request: web.Request) -> web.Response:
        """Takes one export."""
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        self.keys.add(request.headers.get("Authorization", ""))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            known = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.services.add(known["service.name"])
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return web.Response(content_type="application/x-protobuf")


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """One on a port of this machine."""
    here = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", here.take)
    async with served(app) as url:
        here.url = f"{url}/v1/traces"
        yield here
