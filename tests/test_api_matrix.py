"""Every route, asked without a key, with a bad one, with another company's and with the wrong scope."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient

from api.openapi import operations
from api.operations import Operation, Scope
from tests.support.api_site import (
    ADMIN_KEY,
    OTHER_ADMIN_KEY,
    SERVER_KEY,
    WEB_KEY,
    write_api_site,
)
from tests.support.models import fake_models
from tests.support.server import KEY, NUMBER, OTHER_KEY, OUTBOUND, SPEECH_KEY, bearer, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

Client = TestClient[Any, Any]

KEYS = {
    Scope.CALLS: KEY,
    Scope.WEB_CALLS: WEB_KEY,
    Scope.SPEECH: SPEECH_KEY,
    Scope.ADMIN: ADMIN_KEY,
}
BODIES: dict[str, Any] = {
    "/api/v1/calls/outbound": {"agentId": OUTBOUND, "phoneNumber": NUMBER, "promptVariables": {"name": "x"}},
    "/api/v1/web-calls/connect": {"agentId": OUTBOUND},
    "/api/v1/trunks/{trunkId}": {"callerId": "+1"},
    "/api/v1/agents/{agentId}": {"name": "theirs"},
    "/api/v1/webhooks/{webhook}": {"events": ["call.*"]},
    "/api/v1/rooms/{roomName}/participants": {"phoneNumber": NUMBER},
    "/api/v1/rooms/{roomName}/tokens": {"identity": "boss"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    with fake_models():
        async with running(write_api_site(tmp_path_factory.mktemp("matrix"))) as (_, client):
            yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def things(client: Client) -> dict[str, str]:
    """One of everything that acme has, by the name of its path parameter."""
    made: dict[str, str] = {"companyId": "acme", "trunkId": "carrier", "agentId": OUTBOUND, "delivery": "1"}
    for path, body, part, name in (
        ("webhooks", {"url": "http://127.0.0.1:9/x"}, "webhook", "id"),
        ("keys", {"scopes": ["calls"]}, "key", "id"),
    ):
        async with client.post(f"/api/v1/{path}", json=body, headers=bearer(ADMIN_KEY)) as answer:
            made[part] = (await answer.json())[name]
    batch = {
        "agentId": OUTBOUND,
        "calls": [{"phoneNumber": NUMBER, "promptVariables": {"name": "Bo"}}],
    }
    async with client.post("/api/v1/calls/outbound", json=batch, headers=bearer(KEY)) as answer:
        data = (await answer.json())["data"]
    made["batchId"], made["callTaskId"] = data["batchId"], data["items"][0]["callTaskId"]
    made["phoneNumber"] = NUMBER.removeprefix("+")
    call = {"agentId": OUTBOUND, "metadata": {"promptVariables": {"name": "Bo"}}}
    async with client.post("/api/v1/web-calls/connect", json=call, headers=bearer(WEB_KEY)) as answer:
        session = await answer.json()
    made["roomName"], made["identity"] = session["roomName"], session["participantName"]
    return made


def guarded(client: Client) -> list[tuple[str, str, Operation]]:
    app = client.app
    assert isinstance(app, web.Application)
    found = [each for each in operations(app) if each[2].scopes]
    assert len(found) > 40
    return found


async def ask(
    client: Client, path: str, method: str, things: dict[str, str], key: str
) -> tuple[int, str, str]:
    filled = re.sub(r"\{(\w+)\}", lambda match: things[match[1]], path)
    headers = bearer(key) if key else {}
    async with client.request(method, filled, json=BODIES.get(path), headers=headers) as answer:
        return answer.status, await answer.text(), filled


@pytest.mark.parametrize(("key", "message"), [("", "Missing API key"), ("nobodys-key", "Invalid API key")])
async def test_without_a_key_that_is_known(
    client: Client, things: dict[str, str], key: str, message: str
) -> None:
    for path, method, _ in guarded(client):
        status, body, filled = await ask(client, path, method, things, key)
        assert (status, body) == (401, f'{{"error": "{message}"}}'), (method, filled)


async def test_with_a_key_of_every_wrong_scope(client: Client, things: dict[str, str]) -> None:
    for path, method, operation in guarded(client):
        for scope, key in KEYS.items():
            if scope in operation.scopes:
                continue
            status, body, filled = await ask(client, path, method, things, key)
            assert status == 403, (method, filled, scope)
            assert body.startswith('{"error": "This API key does not have the scope: ')


async def test_with_another_companys_key_nothing_is_there(client: Client, things: dict[str, str]) -> None:
    """What is made of an id is 404, the same as for one that nobody has; lists are empty of acme's."""
    for path, method, operation in guarded(client):
        key = OTHER_ADMIN_KEY if Scope.ADMIN in operation.scopes else OTHER_KEY
        if set(operation.scopes) & {Scope.WEB_CALLS, Scope.SPEECH}:
            continue  # the other company has no such key
        status, body, filled = await ask(client, path, method, things, key)
        for mine in ("acme", *(things[part] for part in ("callTaskId", "batchId", "webhook", "key"))):
            assert mine not in body, (method, filled)
        parts = re.findall(r"\{(\w+)\}", path)
        if parts and parts != ["phoneNumber"]:
            assert status == 404, (method, filled, body)
            nobodys = dict.fromkeys(things, "00000000-0000-0000-0000-000000000000") | {"delivery": "999999"}
            assert (await ask(client, path, method, nobodys, key))[:2] == (status, body)


async def test_nothing_of_acmes_was_changed_by_all_this(client: Client, things: dict[str, str]) -> None:
    async with client.get(f"/api/v1/webhooks/{things['webhook']}", headers=bearer(ADMIN_KEY)) as answer:
        assert (await answer.json())["events"] == ["*"]
    async with client.get(f"/api/v1/keys/{things['key']}", headers=bearer(ADMIN_KEY)) as answer:
        assert (await answer.json())["expiresAt"] is None


async def test_the_servers_key_manages_a_named_company_and_places_no_calls(
    client: Client, things: dict[str, str]
) -> None:
    for path, method, operation in guarded(client):
        if method != "get":
            continue
        status, body, filled = await ask(client, path, method, things, SERVER_KEY)
        if operation.of_company:
            assert status == 400, (filled, body)
            assert "API key missing company information" in body
        else:
            assert status == 200, (filled, body)
    async with client.get("/api/v1/agents?company=acme", headers=bearer(SERVER_KEY)) as answer:
        agents = await answer.json()
    assert OUTBOUND in {agent["id"] for agent in agents["agents"]}
    async with client.get("/api/v1/agents?company=nobody", headers=bearer(SERVER_KEY)) as answer:
        assert answer.status == 404
    async with client.get("/api/v1/agents?company=acme", headers=bearer(OTHER_ADMIN_KEY)) as answer:
        assert (answer.status, await answer.json()) == (404, {"error": "Company not found"})
    status, body, _ = await ask(client, "/api/v1/calls/outbound", "post", things, SERVER_KEY)
    assert (status, body) == (400, '{"error": "API key missing company information"}')
