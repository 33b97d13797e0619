"""Calls over HTTP: what a client of the API sends, and what it is told."""

from __future__ import annotations

import io
from typing import Any

import pytest

from api.schemas.base import CallPage, CallReport
from api.schemas.calls import OutboundResponse
from tests.support.node.node import (
    INBOUND,
    KEY,
    MODEL_AGENT,
    MODELLED,
    NO_TRUNK,
    NUMBER,
    OTHER_COMPANYS,
    OTHER_KEY,
    OUTBOUND,
    Client,
    bearer,
    clients_of_module,
    until_final,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACE = "/api/v1/calls/outbound"
JSON = {**bearer(KEY), "Content-Type": "application/json"}
GOOD: dict[str, Any] = {
    "agentId": OUTBOUND,
    "phoneNumber": NUMBER,
    "promptVariables": {"name": "Bo"},
    "metadata": {"row": 7},
}


client = clients_of_module(more=MODEL_AGENT, transport="tcp")


async def place(client: Client, body: Any, key: str = KEY) -> tuple[int, dict[str, Any]]:
    async with client.post(PLACE, json=body, headers=bearer(key)) as answer:
        return answer.status, await answer.json()


async def test_a_placed_call_is_told_back_with_its_ids(client: Client) -> None:
    status, body = await place(client, GOOD)
    assert status == 200
    told = OutboundResponse.model_validate(body)
    assert told.data.phoneNumber == NUMBER
    assert told.data.agentId == OUTBOUND
    assert told.data.companyId == "acme"
    assert told.data.isTest is False
    assert told.data.callTaskId
    assert told.data.webhookId


@pytest.mark.parametrize("spelling", ["14155550123", "+1 415 555 0123", "0014155550123", "(415) 555-0123"])
async def test_a_number_may_be_spelt_as_people_do(client: Client, spelling: str) -> None:
    status, body = await place(client, GOOD | {"phoneNumber": spelling})
    assert (status, body["data"]["phoneNumber"]) == (200, NUMBER)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phoneNumber": "nobody"}, "Invalid phone number format"),
        ({"phoneNumber": "+1415\r\nVia: x"}, "Invalid phone number format"),
        ({"phoneNumber": 14155550123}, "Invalid phone number format"),
        ({"phoneNumber": "+" + "1" * 64}, "Invalid phone number format"),
        ({"agentId": INBOUND}, "Agent is not configured for outbound calls"),
        ({"agentId": NO_TRUNK}, "No SIP trunk configured for this agent"),
        ({"phoneNumber": "+14155650123"}, "Phone number format does not match SIP trunk configuration"),
        ({"calls": [{"phoneNumber": NUMBER}]}, '"phoneNumber" or "calls" must be provided, not both'),
        ({"phoneNumber": None}, '"phoneNumber" or "calls" must be provided'),
        (
            {"phoneNumber": None, "calls": [{"phoneNumber": NUMBER}]},
            "promptVariables/metadata must be per-call for batch requests",
        ),
    ],
)
async def test_what_is_refused_and_in_which_words(client: Client, change: Any, message: str) -> None:
    assert await place(client, GOOD | change) == (400, {"error": message})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"agentId": None}, "agentId"),
        ({"promptVariables": ["name"]}, "promptVariables"),
        ({"promptVariables": {"name": {"first": "Bo"}}}, "promptVariables.name"),
        ({"metadata": "seven"}, "metadata"),
        ({"prompt_variables": {}}, "prompt_variables"),
    ],
)
async def test_a_wrong_field_is_named(client: Client, change: Any, field: str) -> None:
    status, body = await place(client, GOOD | change)
    assert status == 400
    assert body["error"].startswith(field)


async def newest(client: Client) -> list[str]:
    async with client.get("/api/v1/calls", headers=bearer(KEY)) as answer:
        return [call["callTaskId"] for call in (await answer.json())["calls"]]


async def test_a_missing_prompt_variable_is_said_before_anybody_is_called(client: Client) -> None:
    before = await newest(client)
    status, body = await place(client, GOOD | {"promptVariables": {}})
    assert status == 400
    assert "name" in body["error"]
    assert await newest(client) == before


async def test_an_agent_without_its_engine_is_refused_with_the_reason(client: Client) -> None:
    status, body = await place(client, GOOD | {"agentId": MODELLED})
    assert status == 400
    assert body["error"].startswith("Agent's engine is not available: faster-whisper")


@pytest.mark.parametrize("agent_id", [OTHER_COMPANYS, "00000000-0000-0000-0000-000000000000", "not-a-uuid"])
async def test_an_agent_of_others_is_like_one_that_does_not_exist(client: Client, agent_id: str) -> None:
    message = "Agent not found or does not belong to your company"
    assert await place(client, GOOD | {"agentId": agent_id}) == (404, {"error": message})


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'"x"', b"\xff\xfe", b'{"agentId": NaN}', b"[" * 20_000]
)
async def test_a_body_that_is_not_a_json_object(client: Client, content: bytes) -> None:
    async with client.post(PLACE, data=content, headers=JSON) as answer:
        assert answer.status == 400
        assert await answer.json() == {"error": "Request body must be a JSON object"}


async def test_a_body_above_a_mebibyte(client: Client) -> None:
    async with client.post(PLACE, data=io.BytesIO(b" " * (1024 * 1024 + 1)), headers=JSON) as answer:
        assert answer.status == 413
        assert await answer.json() == {"error": "Request body is larger than 1 MiB"}


async def test_a_call_nobody_answers_is_reported_to_its_end(client: Client) -> None:
    """Nothing listens at the carrier's address: the call fails, and says why."""
    _, placed = await place(client, GOOD)
    report = await until_final(client, placed["data"]["callTaskId"], timeout_s=45)
    CallReport.model_validate(report)
    assert (report["status"], report["hangupCause"]) == ("FAILED", "unreachable")
    assert report["metadata"] == {"row": 7}
    assert report["promptVariables"] == {"name": "Bo"}
    assert report["transcript"] == []
    assert report["createdAt"] <= report["dialedAt"] <= report["endedAt"]


async def test_another_company_sees_nothing_of_a_call(client: Client) -> None:
    _, placed = await place(client, GOOD)
    call_id = placed["data"]["callTaskId"]
    for method, path in (("GET", ""), ("POST", "/hangup"), ("GET", "/recording")):
        async with client.request(
            method, f"/api/v1/calls/{call_id}{path}", headers=bearer(OTHER_KEY)
        ) as answer:
            assert answer.status == 404
            assert await answer.json() == {"error": "Call not found"}
    async with client.get("/api/v1/calls", headers=bearer(OTHER_KEY)) as answer:
        assert await answer.json() == {"calls": [], "cursor": None}


async def test_calls_are_listed_newest_first_and_by_pages(client: Client) -> None:
    placed = [(await place(client, GOOD))[1]["data"]["callTaskId"] for _ in range(3)]
    seen: list[str] = []
    cursor = ""
    for _ in range(3):
        async with client.get(f"/api/v1/calls?limit=1&cursor={cursor}", headers=bearer(KEY)) as answer:
            page = await answer.json()
        seen += [call["callTaskId"] for call in page["calls"]]
        cursor = page["cursor"] or ""
    assert seen == placed[::-1]


@pytest.mark.parametrize("query", ["status=RUNNING", "limit=0", "limit=101", "limit=x", "cursor=%00"])
async def test_a_list_that_makes_no_sense(client: Client, query: str) -> None:
    async with client.get(f"/api/v1/calls?{query}", headers=bearer(KEY)) as answer:
        assert answer.status == 400
        assert "error" in await answer.json()


async def listed(client: Client, query: str, key: str = KEY) -> list[dict[str, Any]]:
    async with client.get(f"/api/v1/calls?{query}", headers=bearer(key)) as answer:
        page = await answer.json()
        assert answer.status == 200, page
    CallPage.model_validate(page)
    calls: list[dict[str, Any]] = page["calls"]
    return calls


async def test_a_call_is_found_by_its_number_however_written_and_by_its_name(client: Client) -> None:
    body = GOOD | {"phoneNumber": "+14155550177", "promptVariables": {"name": "Zoë O'Hara"}}
    call_id = (await place(client, body))[1]["data"]["callTaskId"]
    await until_final(client, call_id, timeout_s=45)
    queries = (
        *("phoneNumber=%2B14155550177", "phoneNumber=(415)+555-0177", "phoneNumber=0177"),
        *(
            "name=zoë",
            "name=O%27HARA",
            f"name=zoë&agentId={OUTBOUND.upper()}&direction=outbound&status=FAILED",
        ),
        *("name=hara&hangupCause=unreachable", "name=hara&since=2020-01-01T00:00:00Z"),
    )
    for query in queries:
        [found] = await listed(client, query)
        assert (found["callTaskId"], found["name"]) == (call_id, "Zoë O'Hara"), query
    for query in (
        *("name=zoë&direction=inbound", "name=zoë&hangupCause=busy", "name=zoë&until=2020-01-01T00:00:00Z"),
        *("name=zoë&minDurationMs=1", "name=zoë&minLatencyMs=1", "name=zoë&words=hello", "disposition=x"),
        *(f"name=zoë&agentId={INBOUND}", "name=zoë&batchId=none"),
    ):
        assert await listed(client, query) == [], query
    assert await listed(client, "name=zoë", OTHER_KEY) == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("phoneNumber=nobody", "Invalid phone number format"),
        ("direction=sideways", "direction: "),
        ("since=yesterday", 'since: must be a time such as "2026-01-31T12:00:00Z"'),
        ("until=2026-01-31T12:00:00", "until: must be a time"),  # no zone
        ("since=2026-02-01T00:00:00Z&until=2026-01-01T00:00:00Z", "until: must not lie before"),
        ("minDurationMs=-1", "minDurationMs: "),
        ("minDurationMs=9&maxDurationMs=8", "maxDurationMs: must not be less than"),
        ("maxLatencyMs=0", "maxLatencyMs: "),
        ("words=%25_", "words: must have a letter or a digit"),
        ("words=" + "x" * 201, "words: "),
        ("name=%22", "name: must have a letter or a digit"),
        ("phone=1", "phone: unknown field"),
        ("cursor=12", "Invalid cursor"),
    ],
)
async def test_a_filter_that_makes_no_sense_is_named(client: Client, query: str, message: str) -> None:
    async with client.get(f"/api/v1/calls?{query}", headers=bearer(KEY)) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"].startswith(message)


async def test_a_call_without_a_recording(client: Client) -> None:
    _, placed = await place(client, GOOD)
    path = f"/api/v1/calls/{placed['data']['callTaskId']}/recording"
    async with client.get(path, headers=bearer(KEY)) as answer:
        assert (answer.status, await answer.json()) == (404, {"error": "This call has no recording"})
