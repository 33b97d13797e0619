"""Everything that a company has, and every operation of the API as somebody asks it who may not."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import FormData

from tests.support.http.api_site import ADMIN_KEY, SERVER_KEY, WEB_KEY
from tests.support.node.node import INBOUND, KEY, NUMBER, Client, bearer

API = "/api/v1"
NEVER = "+14155550199"
"""On acme's list of numbers that are never dialled."""

ROOM = f"{API}/rooms/{{roomName}}"
TWO = {"phoneNumber": NUMBER, "promptVariables": {"name": "Bo"}}

Body = dict[str, Any] | Callable[[Mapping[str, str]], dict[str, Any]] | None


def with_agent(body: dict[str, Any]) -> Callable[[Mapping[str, str]], dict[str, Any]]:
    """A body about acme's agent."""
    return lambda things: {"agentId": things["agentId"], **body}


SCRIPT = {"start": "bye", "step": [{"id": "bye", "say": "Goodbye.", "action": "hang_up"}]}
AGENT = {"script": SCRIPT, "stt": {"engine": "test-ears"}, "tts": {"engine": "test-voice"}}
TRUNK = {"uri": "sip:127.0.0.1:9;transport=tcp"}


@dataclass(frozen=True)
class Case:
    """How an operation is asked, and what it answers: `other`, a key of another company with every scope;
    `agent`, a key of the company with every scope that such a key may have, for another of its agents.

    `body` is of JSON, made of acme's things where it is a function.
    """

    other: int
    agent: int
    body: Body = None


GONE = Case(other=404, agent=404)
"""A call, batch or room by its id: as if nobody had it."""

MANAGED = Case(other=404, agent=403)
"""A thing of the company as a whole, by its id: keys for certain agents cannot have the scope."""

LISTED = Case(other=200, agent=200)
OPEN = Case(other=200, agent=200)

CASES: dict[tuple[str, str], Case] = {
    ("post", f"{API}/calls/outbound"): Case(404, 403, with_agent(TWO)),
    ("post", f"{API}/calls/queue/cancel/{{phoneNumber}}"): Case(200, 200, {}),
    ("get", f"{API}/calls"): LISTED,
    ("get", f"{API}/calls/{{callTaskId}}"): GONE,
    ("post", f"{API}/calls/{{callTaskId}}/hangup"): GONE,
    ("get", f"{API}/calls/{{callTaskId}}/recording"): GONE,
    ("get", f"{API}/calls/{{callTaskId}}/trace"): GONE,
    ("get", f"{API}/calls/{{callTaskId}}/trace.pcap"): GONE,
    ("get", f"{API}/calls/{{callTaskId}}.pcap"): GONE,
    ("get", f"{API}/events"): LISTED,
    ("post", f"{API}/web-calls/connect"): Case(404, 403, with_agent({})),
    ("get", f"{API}/companies"): Case(200, 403),
    ("post", f"{API}/companies"): Case(403, 403, {"id": "third"}),
    ("get", f"{API}/companies/{{companyId}}"): MANAGED,
    ("patch", f"{API}/companies/{{companyId}}"): Case(404, 403, {"name": "theirs"}),
    ("delete", f"{API}/companies/{{companyId}}"): MANAGED,
    ("get", f"{API}/sip/bans"): Case(403, 403),
    ("delete", f"{API}/sip/bans/{{address}}"): Case(403, 403),
    ("get", f"{API}/trunks"): Case(200, 403),
    ("post", f"{API}/trunks"): Case(201, 403, TRUNK),
    ("get", f"{API}/trunks/{{trunkId}}"): MANAGED,
    ("patch", f"{API}/trunks/{{trunkId}}"): Case(404, 403, {"callerId": "+1"}),
    ("delete", f"{API}/trunks/{{trunkId}}"): MANAGED,
    ("get", f"{API}/agents"): Case(200, 403),
    ("post", f"{API}/agents"): Case(201, 403, AGENT),
    ("get", f"{API}/agents/{{agentId}}"): MANAGED,
    ("patch", f"{API}/agents/{{agentId}}"): Case(404, 403, {"name": "theirs"}),
    ("delete", f"{API}/agents/{{agentId}}"): MANAGED,
    ("get", f"{API}/keys"): Case(200, 403),
    ("post", f"{API}/keys"): Case(
        400, 403, lambda things: {"scopes": ["calls"], "agentIds": [things["agentId"]]}
    ),
    ("get", f"{API}/keys/{{key}}"): MANAGED,
    ("post", f"{API}/keys/{{key}}/rotate"): Case(404, 403, {"overlapS": 0}),
    ("delete", f"{API}/keys/{{key}}"): MANAGED,
    ("get", f"{API}/webhooks"): Case(200, 403),
    ("post", f"{API}/webhooks"): Case(201, 403, {"url": "http://127.0.0.1:9/theirs"}),
    ("get", f"{API}/webhooks/{{webhook}}"): MANAGED,
    ("patch", f"{API}/webhooks/{{webhook}}"): Case(404, 403, {"events": ["call.*"]}),
    ("post", f"{API}/webhooks/{{webhook}}/rotate"): MANAGED,
    ("delete", f"{API}/webhooks/{{webhook}}"): MANAGED,
    ("get", f"{API}/deliveries"): Case(200, 403),
    ("get", f"{API}/deliveries/{{delivery}}"): MANAGED,
    ("post", f"{API}/deliveries/replay"): Case(200, 403, lambda things: {"callTaskId": things["callTaskId"]}),
    ("get", f"{API}/batches"): LISTED,
    ("get", f"{API}/batches/{{batchId}}"): GONE,
    ("post", f"{API}/batches/{{batchId}}/pause"): GONE,
    ("post", f"{API}/batches/{{batchId}}/resume"): GONE,
    ("post", f"{API}/batches/{{batchId}}/cancel"): GONE,
    ("get", f"{API}/do-not-call"): Case(200, 403),
    ("post", f"{API}/do-not-call"): Case(200, 403, {"phoneNumbers": [NUMBER]}),
    ("delete", f"{API}/do-not-call/{{phoneNumber}}"): Case(404, 403),
    ("get", f"{ROOM}/participants"): GONE,
    ("post", f"{ROOM}/participants"): Case(404, 404, {"phoneNumber": NUMBER}),
    ("delete", f"{ROOM}/participants/{{identity}}"): GONE,
    ("post", f"{ROOM}/tokens"): Case(404, 404, {"identity": "boss", "canPublish": False, "hidden": True}),
    ("get", f"{API}/livekit-key"): Case(200, 200),  # tells each key its own pair
    ("post", f"{API}/erasures"): Case(404, 403, lambda things: {"callTaskId": things["callTaskId"]}),
    ("get", f"{API}/erasures"): Case(200, 403),
    ("get", f"{API}/erasures/{{erasureId}}"): MANAGED,
    ("post", f"{API}/erasures/search"): Case(200, 403, {"phoneNumber": NUMBER}),
    ("post", f"{API}/exports"): Case(200, 403, {"phoneNumber": NUMBER}),
    ("post", f"{API}/holds"): Case(
        404, 403, lambda things: {"callTaskId": things["callTaskId"], "reason": "Case 17"}
    ),
    ("get", f"{API}/holds"): Case(200, 403),
    ("delete", f"{API}/holds/{{holdId}}"): MANAGED,
    ("get", f"{API}/audit"): Case(200, 403),
    ("post", "/v1/text-to-speech/generate"): Case(
        200, 200, {"text": "Hi.", "format": "wav", "chunk_size": 128}
    ),
    ("post", "/transcribe"): Case(400, 400),  # no file
    ("get", "/healthz"): OPEN,
    ("get", "/readyz"): OPEN,
    ("get", "/metrics"): OPEN,
    ("get", "/openapi.json"): OPEN,
    ("get", "/docs"): OPEN,
}
"""Every operation. What stands here and not in the API, or there and not here, fails the walk."""

BY_TOKEN = {
    "/rtc",
    "/rtc/v1",
    "/rtc/validate",
    "/rtc/v1/validate",
    "/rtc/whip",
    "/rtc/whip/{id}",
    "/twirp/{service}/{method}",
    "/talk/{agent}",
    "/talk/{agent}/session",
    "/static/talk/{name}",
    "/widget.js",
    "/static/docs/{name}",
    "/sip",
    "/dashboard",
    "/dashboard/calls/{callTaskId}",
    "/static/dashboard/{name}",
}
"""Routes that no key opens and the document leaves out: participant tokens, server tokens, and the pages for
people."""


def uncovered(document: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Operations of an OpenAPI document that `CASES` lacks, and the other way round."""
    there = {(method, path) for path, methods in document["paths"].items() for method in methods}
    return there ^ CASES.keys()


TELLS_ITS_OWN = ("post", f"{API}/web-calls/connect")
"""To a key for another agent: 403 for one of the same company's, 404 for one that is not there (7.3)."""


def takes_company(operation: Mapping[str, Any]) -> bool:
    """Whether the server's own key names a company there."""
    return any(each["name"] == "company" for each in operation.get("parameters", ()))


def scopes_of(operation: Mapping[str, Any]) -> set[str]:
    """The scopes that open an operation, as the document tells them; none: it is open."""
    _, found, scopes = str(operation.get("description", "")).partition("Scope: ")
    return set(scopes.split(" or ")) if found else set()


@dataclass(frozen=True)
class Answer:
    """What somebody was told."""

    status: int
    text: str


async def ask(
    client: Client, operation: tuple[str, str], things: Mapping[str, str], key: str, *, query: str = ""
) -> Answer:
    """Asks an operation, as its case says, about `things`."""
    method, path = operation
    case = CASES[operation]
    body = case.body(things) if callable(case.body) else case.body
    about = {**things, "phoneNumber": NEVER if "do-not-call" in path else things["phoneNumber"]}
    filled = re.sub(r"\{(\w+)\}", lambda match: about[match[1]], path)
    headers = bearer(key) if key else {}
    data = FormData({"job_id": "job"}, default_to_multipart=True) if path == "/transcribe" else None
    async with client.request(method, filled + query, json=body, data=data, headers=headers) as answer:
        stream = answer.content_type == "text/event-stream"  # has no end
        told = await (answer.content.readany() if stream else answer.read())
        return Answer(answer.status, told.decode(errors="replace"))


async def told(client: Client, method: str, path: str, key: str, body: Any = None) -> Any:
    """The answer to a request that succeeds."""
    async with client.request(method, API + path, json=body, headers=bearer(key)) as answer:
        assert answer.status < 300, (path, await answer.text())
        return await answer.json()


def never_now() -> str:
    """A calling window that is far away, anywhere on earth."""
    days = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    return f"{days[(datetime.now(UTC) + timedelta(days=3)).weekday()]} 00:00-00:01"


async def acmes_things(client: Client, hook: str) -> dict[str, str]:
    """One of everything that acme has, by the name of its path parameter; nothing of it changes by itself.
    `hook` is where its webhooks are received."""
    agent = {**AGENT, "trunk": "carrier", "phoneNumber": "+14155550100", "callingWindows": [never_now()]}
    trunk = await told(client, "POST", "/trunks?company=acme", SERVER_KEY, TRUNK)
    agent_id = (await told(client, "POST", "/agents?company=acme", SERVER_KEY, agent))["id"]
    webhook = await told(client, "POST", "/webhooks", ADMIN_KEY, {"url": hook, "events": ["call.queued"]})
    key = await told(client, "POST", "/keys", ADMIN_KEY, {"scopes": ["calls"]})
    await told(client, "POST", "/do-not-call", KEY, {"phoneNumbers": [NEVER]})
    hold = await told(client, "POST", "/holds", ADMIN_KEY, {"phoneNumber": NEVER, "reason": "Case 17"})
    erasure = await told(client, "POST", "/erasures", ADMIN_KEY, {"phoneNumber": "+14155550198"})
    batch = {"agentId": agent_id, "calls": [TWO]}
    placed = (await told(client, "POST", "/calls/outbound", KEY, batch))["data"]
    session = await told(client, "POST", "/web-calls/connect", WEB_KEY, {"agentId": agent_id})
    return {
        "companyId": "acme",
        "agentId": agent_id,
        "trunkId": trunk["id"],
        "webhook": webhook["id"],
        "key": key["id"],
        "delivery": str(await _delivered(client)),
        "batchId": placed["batchId"],
        "callTaskId": placed["items"][0]["callTaskId"],
        "phoneNumber": NUMBER.removeprefix("+"),
        "roomName": session["roomName"],
        "identity": session["participantName"],
        "holdId": hold["id"],
        "erasureId": erasure["id"],
        "address": "192.0.2.7",
    }


async def _delivered(client: Client) -> int:
    """The first delivery, once it is over."""
    async with asyncio.timeout(20):
        while True:
            rows = (await told(client, "GET", "/deliveries?state=DELIVERED", ADMIN_KEY))["deliveries"]
            if rows:
                return int(rows[0]["id"])
            await asyncio.sleep(0.05)


NOBODYS: dict[str, str] = {
    "companyId": "nobody",
    "delivery": "999999",
    "phoneNumber": "14155550111",
    "identity": "nobody",
    "address": "192.0.2.8",
}
"""Ids that nobody has; every other is the UUID of nothing."""


def nobodys(things: Mapping[str, str]) -> dict[str, str]:
    """As many things as `things`, none of which is there."""
    return dict.fromkeys(things, "00000000-0000-0000-0000-000000000000") | NOBODYS


async def everything(client: Client, things: Mapping[str, str]) -> str:
    """All that acme can see of itself, but for when its keys were used."""
    paths: Sequence[tuple[str, str]] = (
        *((f"/{each}", ADMIN_KEY) for each in ("companies", "trunks", "agents", "webhooks", "keys")),
        *((f"/{each}", ADMIN_KEY) for each in ("deliveries", "calls", "batches", "do-not-call")),
        *((f"/{each}", ADMIN_KEY) for each in ("holds", "erasures")),
        (f"/deliveries/{things['delivery']}", ADMIN_KEY),
        (f"/calls/{things['callTaskId']}", KEY),
        (f"/rooms/{things['roomName']}/participants", WEB_KEY),
    )
    seen = {path: await told(client, "GET", path, key) for path, key in paths}
    return re.sub(r'"lastUsedAt": (null|"[^"]*")', "", json.dumps(seen))


async def intruders(client: Client, other_admin_key: str) -> dict[str, str]:
    """A key with every scope of another company, and one of acme's for another of its agents."""
    scopes = ["calls", "web-calls", "speech"]
    theirs = await told(client, "POST", "/keys", other_admin_key, {"scopes": [*scopes, "admin"]})
    limited = {"scopes": scopes, "agentIds": [INBOUND]}
    return {
        "other": theirs["key"],
        "agent": (await told(client, "POST", "/keys", ADMIN_KEY, limited))["key"],
    }
