"""The API's document as tools read it: names, tags, examples, and every event that webhooks get."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from api.http.catalogue import listed
from mediaserver.queue.outbox import EVENTS
from tests.support.http.api_site import write_api_site
from tests.support.http.api_walk import CASES
from tests.support.http.webhooks import receiver
from tests.support.node.node import (
    KEY,
    NUMBER,
    OUTBOUND,
    bearer,
    node_of_module,
    place_call,
    running,
    until_final,
)
from tests.support.node.node import Node as RunningNode
from tests.support.paths import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

node = node_of_module(write_api_site)

VIEWER = ROOT / "api" / "static" / "docs"
Document = dict[str, Any]


@pytest_asyncio.fixture(loop_scope="module")
async def document(node: RunningNode) -> Document:
    async with node.client.get("/openapi.json") as answer:
        described: Document = await answer.json()
    return described


def operations(document: Document) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for part in ("paths", "webhooks"):
        for path, methods in document[part].items():
            for method, operation in methods.items():
                yield method, path, operation


async def test_every_operation_has_a_name_of_its_own_and_a_tag_that_is_described(document: Document) -> None:
    found = list(operations(document))
    names = [operation["operationId"] for _, _, operation in found]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z][A-Za-z]+", name) for name in names)
    assert {tag for _, _, operation in found for tag in operation["tags"]} == {
        tag["name"] for tag in document["tags"]
    }
    assert not [name for name in document["components"]["schemas"] if "__" in name], "two models of one name"
    assert listed() == CASES.keys(), (
        "an operation without a name for clients, or a name without its operation"
    )


async def test_every_body_and_answer_has_an_example_that_its_schema_allows(document: Document) -> None:
    checked = 0
    for method, path, operation in operations(document):
        contents = [operation.get("requestBody", {}).get("content", {})]
        contents += [
            answer.get("content", {}) for code, answer in operation["responses"].items() if code[0] == "2"
        ]
        for content in contents:
            for kind, media in content.items():
                if "$ref" not in json.dumps(media.get("schema", {})):
                    continue  # audio, pages
                examples = [each["value"] for each in media.get("examples", {}).values()]
                examples += [media["example"]] if "example" in media else []
                assert examples, (method, path, kind)
                for example in examples:
                    check(document, media["schema"], example)
                    checked += 1
    assert checked > 80


async def test_the_headers_of_answers_are_described(document: Document) -> None:
    answer = document["paths"]["/api/v1/calls"]["get"]["responses"]["200"]
    assert {"X-Request-Id", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} == set(
        answer["headers"]
    )
    assert set(answer["headers"]) == set(document["components"]["headers"])


async def test_every_event_is_a_webhook(document: Document) -> None:
    assert set(document["webhooks"]) == EVENTS


async def test_what_a_receiver_gets_is_what_the_document_says(tmp_path: Path) -> None:
    async with receiver() as hook:
        site = write_api_site(tmp_path, more="")
        secret = '[[company.webhook]]\nurl = "URL"\nsecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"\n'
        site.change(
            '[[company]]\nid = "other"', secret.replace("URL", hook.url) + '\n[[company]]\nid = "other"'
        )
        async with running(site) as (_, client):
            async with client.get("/openapi.json") as answer:
                document = await answer.json()
            await until_final(client, await place_call(client))
            batch = {
                "agentId": OUTBOUND,
                "calls": [{"phoneNumber": NUMBER, "promptVariables": {"name": "Bo"}}],
            }
            async with client.post("/api/v1/calls/outbound", json=batch, headers=bearer(KEY)) as answer:
                assert answer.status == 200
            await until(lambda: "batch.completed" in {kind for kind, _ in received(hook.requests)})
    kinds = {kind for kind, _ in received(hook.requests)}
    assert {"call.queued", "call.dialing", "call.failed", "batch.completed"} <= kinds
    for kind, body in received(hook.requests):
        check(document, _schema(document, kind), body)


def received(requests: list[tuple[dict[str, str], str]]) -> list[tuple[str, Any]]:
    bodies = [json.loads(text) for _, text in requests]
    return [(body["type"], body) for body in bodies]


def _schema(document: Document, kind: str) -> Any:
    return document["webhooks"][kind]["post"]["requestBody"]["content"]["application/json"]["schema"]


def check(document: Document, schema: Any, value: Any) -> None:
    """Raises where a value is not what its schema in the document says."""
    Draft202012Validator({**schema, "components": document["components"]}).validate(value)


async def test_the_viewer_is_what_its_makers_distribute() -> None:
    for line in (VIEWER / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((VIEWER / name).read_bytes()).hexdigest() == digest, name
    assert "Apache License" in (VIEWER / "LICENSE").read_text()
