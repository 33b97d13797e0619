"""Browser sessions over HTTP: who gets a token, for what, and how long it is good for."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import pytest_asyncio

from api.schemas.calls import WebCallResponse
from tests.support.http.api_site import ADMIN_KEY, ROOMS_SECRET, WEB_KEY, write_api_site
from tests.support.node.node import (
    DATABASES,
    KEY,
    OTHER_COMPANYS,
    OUTBOUND,
    Client,
    Site,
    bearer,
    database_on,
    rows_of,
    running,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONNECT = "/api/v1/web-calls/connect"
NAMED = {"promptVariables": {"name": "Bo"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=DATABASES)
async def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Client, Site]]:
    with database_on(request.param) as database:
        site = write_api_site(tmp_path_factory.mktemp("web"), database=database)
        async with running(site) as (_, client):
            yield client, site


@pytest.fixture
def client(place: tuple[Client, Site]) -> Client:
    return place[0]


async def connect(client: Client, body: Any, key: str = WEB_KEY) -> tuple[int, dict[str, Any]]:
    async with client.post(CONNECT, json=body, headers=bearer(key)) as answer:
        return answer.status, await answer.json()


async def test_a_token_names_its_room_its_person_and_its_end(place: tuple[Client, Site]) -> None:
    client, site = place
    metadata = {"promptVariables": {"name": "Bo", "age": 7}, "preCallVariables": {"id": 9}, "shop": "north"}
    status, body = await connect(client, {"agentId": OUTBOUND, "userRef": "user 7/ä.b", "metadata": metadata})
    assert status == 200
    told = WebCallResponse.model_validate(body)
    assert told.serverUrl == f"ws://127.0.0.1:{site.http}"
    assert told.participantName == "user7.b"
    claims = jwt.decode(told.participantToken, ROOMS_SECRET, algorithms=["HS256"], issuer="devkey")
    assert jwt.get_unverified_header(told.participantToken)["alg"] == "HS256"
    assert (claims["sub"], claims["video"]["room"]) == (told.participantName, told.roomName)
    assert claims["exp"] - claims["nbf"] == 15 * 60
    rows = await rows_of(
        site,
        "SELECT company_id, agent_id, identity, variables, metadata, expires_at_ms - created_at_ms AS life_ms"
        " FROM web_rooms WHERE name = :name",
        name=told.roomName,
    )
    assert rows == [
        {
            "company_id": "acme",
            "agent_id": OUTBOUND,
            "identity": "user7.b",
            "variables": '{"name":"Bo","age":"7"}',
            "metadata": '{"shop":"north","preCallVariables":{"id":9}}',
            "life_ms": 900_000,
        }
    ]


async def test_everybody_has_a_room_and_a_name_of_their_own(client: Client) -> None:
    body = {"agentId": OUTBOUND.upper(), "metadata": NAMED}
    answers = [(await connect(client, body))[1] for _ in range(3)]
    assert len({answer["roomName"] for answer in answers}) == 3
    assert len({answer["participantName"] for answer in answers}) == 3
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+", answer["participantName"]) for answer in answers)


@pytest.mark.parametrize(
    ("body", "key", "status", "message"),
    [
        ({"agentId": "agent-1"}, WEB_KEY, 400, "Invalid agentId format"),
        ({"agentId": 7}, WEB_KEY, 400, "Invalid agentId format"),
        ({}, WEB_KEY, 400, "Invalid agentId format"),
        ({"agentId": OUTBOUND, "userRef": "x" * 129}, WEB_KEY, 400, "userRef:"),
        (
            {"agentId": OUTBOUND, "metadata": {"promptVariables": []}},
            WEB_KEY,
            400,
            "metadata.promptVariables",
        ),
        ({"agentId": OTHER_COMPANYS}, WEB_KEY, 404, "Agent not found"),
        ({"agentId": "00000000-0000-0000-0000-000000000000"}, WEB_KEY, 404, "Agent not found"),
        ({"agentId": OUTBOUND}, KEY, 403, "This API key does not have the scope: web-calls"),
        ({"agentId": OUTBOUND}, "nobodys-key", 401, "Invalid API key"),
    ],
)
async def test_who_gets_none_and_why(client: Client, body: Any, key: str, status: int, message: str) -> None:
    answered, answer = await connect(client, body, key)
    assert answered == status
    assert answer["error"].startswith(message)


async def test_a_key_that_is_not_for_the_agent(client: Client) -> None:
    other = "d5c7e2a0-93a8-4a55-8f6c-9f5f3f5f1a03"
    script = {"start": "a", "step": [{"id": "a", "say": "Hi.", "action": "hang_up"}]}
    engines = {"stt": {"engine": "test-ears"}, "tts": {"engine": "test-voice"}}
    async with client.post(
        "/api/v1/agents", json={"script": script, **engines}, headers=bearer(ADMIN_KEY)
    ) as answer:
        other = (await answer.json())["id"]
    body = {"scopes": ["web-calls"], "agentIds": [other]}
    async with client.post("/api/v1/keys", json=body, headers=bearer(ADMIN_KEY)) as answer:
        key = (await answer.json())["key"]
    assert (await connect(client, {"agentId": other}, key))[0] == 200
    assert await connect(client, {"agentId": OUTBOUND}, key) == (
        403,
        {"error": "Access denied to this agent"},
    )


async def test_a_company_without_web_calls_and_a_server_without_rooms(tmp_path: Path) -> None:
    site = write_api_site(tmp_path)
    text = site.path.read_text()
    for change, status, message in (
        ("web_calls = true\n", 403, "Web Calls API is not enabled"),
        (f'api_secret = "{ROOMS_SECRET}"\n', 500, "Service not configured"),
    ):
        site.path.write_text(text.replace(change, ""))
        async with running(site) as (_, client):
            answered = await connect(client, {"agentId": OUTBOUND, "metadata": NAMED})
        assert answered == (status, {"error": message})
