"""What operators and machines ask without a key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from api import health
from api.app import build
from mediaserver.server import Server
from mediaserver.settings import load
from tests.support.http.models import Recognizer, fake_models
from tests.support.node.node import Client, Node, bearer, node_of_module, running, write_site

ELSEWHERE = ("/dashboard", "/rtc", "/sip", "/static", "/talk", "/twirp", "/widget.js")
"""Routes that speak protocols of their own (WHIP, LiveKit, SIP over WebSocket) or are pages for people."""

pytestmark = pytest.mark.asyncio(loop_scope="module")

node = node_of_module()


@pytest.fixture
def client(node: Node) -> Client:
    return node.client


async def test_a_running_server_is_alive_and_ready(client: Client) -> None:
    async with client.get("/healthz") as answer:
        assert answer.status == 200
    async with client.get("/readyz") as answer:
        assert (answer.status, await answer.json()) == (200, {"ready": True, "missing": []})


async def test_before_its_start_a_server_is_alive_and_says_what_it_waits_for(tmp_path: Path) -> None:
    server = Server(load(write_site(tmp_path).path))
    async with TestClient(TestServer(build(server))) as client:
        async with client.get("/healthz") as answer:
            assert answer.status == 200
        async with client.get("/readyz") as answer:
            missing = (await answer.json())["missing"]
            assert answer.status == 503
        assert missing == ["kernels", "sip", "database", "engines: still loading"]
        async with client.get("/api/v1/calls", headers=bearer("any-key")) as answer:
            assert answer.status == 503
            assert answer.headers["Retry-After"] == "1"
    await server.close()


async def test_an_engine_that_is_missing_is_told_with_its_reason(tmp_path: Path) -> None:
    with fake_models(Recognizer(missing="no model in /models: put one there")):
        async with running(write_site(tmp_path)) as (_, client), client.get("/readyz") as answer:
            assert answer.status == 503
            missing = (await answer.json())["missing"]
    assert len(missing) == 4
    assert all(line.endswith("test-ears: no model in /models: put one there") for line in missing)


async def test_a_draining_server_is_not_ready(tmp_path: Path) -> None:
    async with running(write_site(tmp_path)) as (server, client):
        assert await server.drain() is True
        async with client.get("/readyz") as answer:
            assert (answer.status, (await answer.json())["missing"]) == (503, ["draining"])
        async with client.get("/healthz") as answer:
            assert answer.status == 200


async def test_metrics_can_be_scraped(client: Client) -> None:
    async with client.get("/metrics") as answer:
        assert answer.content_type == "text/plain"
        names = {family.name for family in text_string_to_metric_families(await answer.text())}
    assert {
        "mediaserver_calls",
        "mediaserver_active_calls",
        "mediaserver_turn_latency_seconds",
        "mediaserver_loop_lag_seconds",
        "mediaserver_gc_pause_seconds",
        "mediaserver_rtp_packets",
        "mediaserver_engine_errors",
        "mediaserver_webhook_attempts",
        "mediaserver_ledger_calls",
        "mediaserver_journal_backlog",
    } <= names


async def test_the_description_names_every_route_and_resolves(client: Client) -> None:
    async with client.get("/openapi.json") as answer:
        document = await answer.json()
    server = client.app
    assert server is not None
    served = {route.resource.canonical for route in server.router.routes() if route.resource is not None}
    elsewhere = {path for path in served if path.startswith(ELSEWHERE)}
    assert set(document["paths"]) == served - elsewhere
    components = document["components"]
    assert _references(document) <= {name for part in ("schemas", "headers") for name in components[part]}


async def test_a_description_that_could_not_be_made_is_made_for_the_next_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(load(write_site(tmp_path).path))
    async with TestClient(TestServer(build(server))) as client:
        with monkeypatch.context() as patched:
            patched.setattr(health, "document", _broken)
            async with client.get("/openapi.json") as answer:
                assert answer.status == 500
        async with client.get("/openapi.json") as answer:
            assert answer.status == 200
    await server.close()


def _broken(*arguments: Any) -> dict[str, Any]:
    raise MemoryError


def _references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"].rpartition("/")[2]} if "$ref" in node else set()
        return own.union(*(_references(child) for child in node.values()))
    if isinstance(node, list):
        return set().union(*(_references(child) for child in node))
    return set()
