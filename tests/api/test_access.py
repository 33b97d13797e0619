"""Every operation of the API, asked by everybody who may not: without a key, with another company's, with one
for another agent, with one of another scope."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from api.http.openapi import operations
from api.http.operation import About
from tests.support.http.api_site import ADMIN_KEY, OTHER_ADMIN_KEY, SERVER_KEY, WEB_KEY, write_api_site
from tests.support.http.api_walk import (
    BY_TOKEN,
    CASES,
    NEVER,
    TELLS_ITS_OWN,
    acmes_things,
    ask,
    everything,
    intruders,
    nobodys,
    scopes_of,
    takes_company,
    uncovered,
)
from tests.support.http.webhooks import receiver
from tests.support.node.node import INBOUND, KEY, OUTBOUND, SPEECH_KEY, Client, bearer, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


KEYS = {"calls": KEY, "web-calls": WEB_KEY, "speech": SPEECH_KEY, "admin": ADMIN_KEY}

MARKS = ("agentId", "trunkId", "webhook", "key", "batchId", "callTaskId", "roomName", "identity")
"""Things of acme's whose ids nobody is told."""


@dataclass
class World:
    """A server, what acme has on it, and who would like to have it."""

    client: Client
    things: dict[str, str]
    keys: dict[str, str]
    document: dict[str, Any]

    @property
    def guarded(self) -> list[tuple[tuple[str, str], set[str]]]:
        """The operations that need a key, with the scopes that open them."""
        found = [
            ((method, path), scopes_of(said))
            for path, methods in self.document["paths"].items()
            for method, said in methods.items()
        ]
        return [each for each in found if each[1]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    site = write_api_site(tmp_path_factory.mktemp("access"))
    site.add('name = "Other"', "web_calls = true")
    async with receiver() as hook, running(site) as (_, client):
        things = await acmes_things(client, hook.url)
        async with client.get("/openapi.json") as answer:
            document = await answer.json()
        yield World(client, things, await intruders(client, OTHER_ADMIN_KEY), document)


async def test_nobody_sees_or_touches_what_their_key_is_not_for(world: World) -> None:
    """The walk: every operation of /openapi.json by a key of another company, one for another agent and those
    of every other scope. What they are told of acme's is what they are told of nothing at all."""
    assert uncovered(world.document) == set()
    before = await everything(world.client, world.things)
    mine = {world.things[name] for name in MARKS} | {NEVER}
    for operation, case in CASES.items():
        for who, expected in (("other", case.other), ("agent", case.agent)):
            answer = await ask(world.client, operation, world.things, world.keys[who])
            assert answer.status == expected, (operation, who, answer)
            assert not [each for each in mine if each in answer.text], (operation, who, answer)
            assert who == "agent" or '"acme"' not in answer.text, (operation, answer)
            if answer.status >= 400 and (who, operation) != ("agent", TELLS_ITS_OWN):
                nothing = await ask(world.client, operation, nobodys(world.things), world.keys[who])
                assert nothing == answer, (operation, who)
        method, path = operation
        if takes_company(world.document["paths"][path][method]):
            answer = await ask(
                world.client, operation, world.things, world.keys["other"], query="?company=acme"
            )
            assert (answer.status, answer.text) == (404, '{"error": "Company not found"}'), operation
    for operation, scopes in world.guarded:
        for scope in KEYS.keys() - scopes:
            answer = await ask(world.client, operation, world.things, KEYS[scope])
            assert answer.status == 403, (operation, scope)
            assert answer.text.startswith('{"error": "This API key does not have the scope: '), operation
    assert await everything(world.client, world.things) == before


async def test_the_walk_misses_no_operation_and_no_route(world: World) -> None:
    grown = {**world.document["paths"], "/api/v1/faxes": {"get": {}}}
    assert uncovered({"paths": grown}) == {("get", "/api/v1/faxes")}
    app = world.client.app
    assert isinstance(app, web.Application)
    described = {path for path, _, _ in operations(app)}
    resources = {route.resource for route in app.router.routes() if route.resource is not None}
    paths = {resource.canonical.partition(":[")[0] for resource in resources}
    others = {path + "}" if "{name" in path and "}" not in path else path for path in paths} - described
    assert others == BY_TOKEN


async def test_an_operation_is_closed_to_keys_for_certain_agents_unless_it_says_whose_it_is(
    world: World,
) -> None:
    app = world.client.app
    assert isinstance(app, web.Application)
    closed = {path for path, _, each in operations(app) if each.scopes and each.about is About.COMPANY}
    assert "/api/v1/do-not-call" in closed
    async with world.client.get("/api/v1/do-not-call", headers=bearer(world.keys["agent"])) as answer:
        assert (answer.status, await answer.json()) == (
            403,
            {"error": "This API key is for certain agents only"},
        )


async def test_the_rooms_of_its_own_agents_are_there_for_a_key(world: World) -> None:
    key = bearer(world.keys["agent"])
    body = {"agentId": INBOUND}
    async with world.client.post("/api/v1/web-calls/connect", json=body, headers=key) as answer:
        room = f"/api/v1/rooms/{(await answer.json())['roomName']}"
    async with world.client.get(f"{room}/participants", headers=key) as answer:
        assert [each["kind"] for each in (await answer.json())["participants"]] == ["agent"]
    async with world.client.post(f"{room}/tokens", json={"identity": "boss"}, headers=key) as answer:
        assert answer.status == 200


async def test_idempotency_keys_of_one_agents_clients_are_not_told_to_anothers(world: World) -> None:
    """With a key for other agents the same Idempotency-Key is a new one: no 409 says that it was used."""
    made = {"scopes": ["calls"], "agentIds": [OUTBOUND]}
    async with world.client.post("/api/v1/keys", json=made, headers=bearer(ADMIN_KEY)) as answer:
        limited = (await answer.json())["key"]
    tasks = []
    for key, agent in ((KEY, world.things["agentId"]), (limited, OUTBOUND), (limited, OUTBOUND)):
        body = {"agentId": agent, "phoneNumber": "+14155550155", "promptVariables": {"name": "Bo"}}
        headers = {"Idempotency-Key": "order-1", **bearer(key)}
        async with world.client.post("/api/v1/calls/outbound", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            tasks.append((await answer.json())["data"]["callTaskId"])
    assert tasks[0] != tasks[1] == tasks[2]


@pytest.mark.parametrize(("key", "message"), [("", "Missing API key"), ("nobodys-key", "Invalid API key")])
async def test_without_a_key_that_is_known(world: World, key: str, message: str) -> None:
    for operation, _ in world.guarded:
        answer = await ask(world.client, operation, world.things, key)
        assert (answer.status, answer.text) == (401, f'{{"error": "{message}"}}'), operation


async def test_the_servers_key_manages_a_named_company_and_places_no_calls(world: World) -> None:
    client = world.client
    for operation, scopes in world.guarded:
        if operation[0] != "get":
            continue
        answer = await ask(client, operation, world.things, SERVER_KEY)
        if "companies" in operation[1] or "/sip/" in operation[1]:
            assert answer.status == 200, (operation, answer)
        else:
            assert answer.status == 400, (operation, answer)
            assert "API key missing company information" in answer.text
            assert ("name one with ?company=" in answer.text) == ("admin" in scopes)
    async with client.get("/api/v1/agents?company=acme", headers=bearer(SERVER_KEY)) as said:
        agents = await said.json()
    assert OUTBOUND in {agent["id"] for agent in agents["agents"]}
    async with client.get("/api/v1/agents?company=nobody", headers=bearer(SERVER_KEY)) as said:
        assert said.status == 404
    async with client.get("/api/v1/agents?company=acme", headers=bearer(OTHER_ADMIN_KEY)) as said:
        assert (said.status, await said.json()) == (404, {"error": "Company not found"})
    answer = await ask(client, ("post", "/api/v1/calls/outbound"), world.things, SERVER_KEY)
    assert (answer.status, json.loads(answer.text)) == (400, {"error": "API key missing company information"})


async def test_a_search_finds_what_the_key_is_for_and_nothing_else(world: World) -> None:
    agent_id, number = world.things["agentId"], world.things["phoneNumber"]
    for query in (
        "",
        f"phoneNumber={number}",
        f"phoneNumber={number[-4:]}",
        f"agentId={agent_id}",
        "name=bo",
    ):
        found = {}
        for who, key in (("acme", KEY), *world.keys.items()):
            async with world.client.get(f"/api/v1/calls?{query}", headers=bearer(key)) as answer:
                assert answer.status == 200
                found[who] = {call["agentId"] for call in (await answer.json())["calls"]}
        assert agent_id in found["acme"], query
        assert agent_id not in found["agent"] | found["other"], query
