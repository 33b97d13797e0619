"""Who may use the API: keys, scopes, and answers that give nothing away."""

from __future__ import annotations

import pytest

from tests.support.node.node import KEY, SPEECH_KEY, Client, Node, bearer, node_of_module

PROTECTED = [
    ("POST", "/api/v1/calls/outbound"),
    ("GET", "/api/v1/calls"),
    ("GET", "/api/v1/calls/1"),
    ("POST", "/api/v1/calls/1/hangup"),
    ("GET", "/api/v1/calls/1/recording"),
]


pytestmark = pytest.mark.asyncio(loop_scope="module")

node = node_of_module()


@pytest.fixture
def client(node: Node) -> Client:
    return node.client


@pytest.mark.parametrize(("method", "path"), PROTECTED)
async def test_without_a_key(client: Client, method: str, path: str) -> None:
    async with client.request(method, path) as answer:
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert await answer.json() == {"error": "Missing API key"}


@pytest.mark.parametrize(("method", "path"), PROTECTED)
async def test_with_a_key_of_another_scope(client: Client, method: str, path: str) -> None:
    async with client.request(method, path, headers=bearer(SPEECH_KEY)) as answer:
        assert answer.status == 403
        assert (await answer.json())["error"].startswith("This API key does not have the scope: calls")


@pytest.mark.parametrize(
    "header",
    ["Bearer wrong-key", f"Basic {KEY}", "Bearer", f"Bearer {KEY} {KEY}", "Bearer " + "x" * 5000, KEY],
)
async def test_a_header_that_opens_nothing(client: Client, header: str) -> None:
    async with client.get("/api/v1/calls", headers={"Authorization": header}) as answer:
        assert answer.status == 401
        assert set(await answer.json()) == {"error"}


async def test_the_scheme_is_case_insensitive(client: Client) -> None:
    async with client.get("/api/v1/calls", headers={"Authorization": f"bearer {KEY}"}) as answer:
        assert answer.status == 200


async def test_an_unknown_path_and_a_wrong_method_are_json_too(client: Client) -> None:
    async with client.get("/api/v2/calls") as answer:
        assert (answer.status, await answer.json()) == (404, {"error": "Not Found"})
    async with client.put("/api/v1/calls/outbound") as answer:
        assert (answer.status, await answer.json()) == (405, {"error": "Method Not Allowed"})
        assert "POST" in answer.headers["Allow"]
