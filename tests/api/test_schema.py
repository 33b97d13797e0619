"""The API against its own document: whatever the document allows, and much that it does not, is answered as
the document says, and never with a fault of the server's."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from aiohttp import web
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from api import batches, calls, health, personal_data, rooms, speech, supervisors, traces, twirp, web_calls
from api.http.operation import operation_of
from api.manage import bans, keys, resources, webhooks
from tests.support.http.api_site import SERVER_KEY, WEB_KEY, write_api_site
from tests.support.http.models import fake_models
from tests.support.node.node import KEY, SPEECH_KEY, Site, database_on, running

CHECKED = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
]

load_all_checks()

KEYS = {"calls": KEY, "web-calls": WEB_KEY, "speech": SPEECH_KEY, "admin": SERVER_KEY}

EXAMPLES = int(os.environ.get("SCHEMA_EXAMPLES", "6"))
"""Requests for each operation; a night's run sets more."""


class InAThread:
    """A server on a loop of its own: schemathesis asks synchronously."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self.url = ""

    async def _serve(self) -> None:
        async with running(self._site) as (_, client):
            self.url = str(client.make_url("/"))
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> InAThread:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._loop.close()


@pytest.fixture(
    scope="module", params=[pytest.param("sqlite", marks=pytest.mark.nightly("ci")), "postgresql"]
)
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    limit = "requests_per_minute = 1000000\n"
    with fake_models(), database_on(request.param) as database:
        site = write_api_site(tmp_path_factory.mktemp("schema"), more=limit, database=database)
        with InAThread(site) as server:
            loaded = schemathesis.openapi.from_url(f"{server.url}openapi.json")
            loaded.config.update(base_url=server.url)
            yield loaded


OPERATIONS = [
    (route.method.lower(), route.path)
    for module in (
        bans,
        calls,
        traces,
        health,
        resources,
        keys,
        webhooks,
        batches,
        rooms,
        supervisors,
        speech,
        twirp,
        web_calls,
        personal_data,
    )
    for route in module.routes
    if isinstance(route, web.RouteDef) and operation_of(route.handler) is not None
]


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda part: part)
def test_every_operation_answers_as_its_document_says(api: Any, method: str, path: str) -> None:
    operation = api[path][method.upper()]
    scopes = operation.definition.raw.get("description", "").removeprefix("Scope: ").split(" or ")
    key = KEYS.get(scopes[-1], KEY)
    named = key == SERVER_KEY and not path.startswith("/api/v1/companies")
    cases = operation.as_strategy() | operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def ask(case: Any) -> None:
        if named and "company" not in case.query:
            case.query["company"] = "acme"
        case.call_and_validate(
            headers={"Authorization": f"Bearer {key}"}, checks=CHECKS.get_by_names(CHECKED)
        )

    ask()


def test_the_document_has_every_operation_of_these(api: Any) -> None:
    described = {(each.ok().method.lower(), each.ok().path) for each in api.get_all_operations()}
    endless = {("get", "/api/v1/events")}  # see test_events.py
    assert described == (set(OPERATIONS) | endless) - {("get", "/openapi.json")}  # its source is left out
