"""Batches, repeated requests, dry runs and cancellations over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.schemas.calls import BatchResponse, CancelResponse, TrialResponse
from tests.support.http.api_site import SAUDI_AGENT, SAUDI_KEY, SERVER_KEY, write_api_site
from tests.support.node.node import (
    INBOUND,
    KEY,
    NO_TRUNK,
    OTHER_COMPANYS,
    OUTBOUND,
    Client,
    bearer,
    clients_of_module,
    until_final,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLACE = "/api/v1/calls/outbound"
CANCEL = "/api/v1/calls/queue/cancel/"
NAMED = {"promptVariables": {"name": "Bo"}}


client = clients_of_module(write_api_site)


async def post(
    client: Client, body: Any, key: str = KEY, *, path: str = PLACE, idempotency: str = ""
) -> tuple[int, dict[str, Any]]:
    headers = bearer(key) | ({"Idempotency-Key": idempotency} if idempotency else {})
    async with client.post(path, json=body, headers=headers) as answer:
        return answer.status, await answer.json()


def to(*numbers: str, agent: str = OUTBOUND, **more: Any) -> dict[str, Any]:
    return {"agentId": agent, "calls": [{"phoneNumber": number, **NAMED} for number in numbers], **more}


async def count_of_calls(client: Client, key: str = KEY) -> int:
    async with client.get("/api/v1/calls?limit=100", headers=bearer(key)) as answer:
        return len((await answer.json())["calls"])


async def test_duplicates_are_found_however_they_are_written_and_the_counts_add_up(client: Client) -> None:
    numbers = ["+14155550201", "14155550201", "(415) 555-0202", "nobody", "+14155650203", "0014155550202"]
    status, body = await post(client, to(*numbers))
    assert status == 200
    data = BatchResponse.model_validate(body).data
    actions = [item["action"] for item in body["data"]["items"]]
    assert actions == ["queued_now", "deduped", "queued_now", "failed", "failed", "deduped"]
    assert [item["phoneNumber"] for item in body["data"]["items"]] == numbers
    assert data.policy.mode == "DEDUPE"
    assert data.policy.spacingMinutes == 10
    assert (data.summary.received, data.summary.queuedNow, data.summary.queuedLater) == (6, 2, 0)
    assert (data.summary.deduped, data.summary.failed) == (2, 2)
    assert (data.total, data.queued, data.failed, data.duplicatesRemoved) == (6, 2, 2, 2)
    items = body["data"]["items"]
    assert items[3]["reason"] == "Invalid phone number format"
    assert items[4]["reason"] == "Phone number format does not match SIP trunk configuration"
    assert all(item["reason"] for item in items if item["action"] == "deduped")
    assert all("reason" not in item for item in items if item["action"] == "queued_now")
    assert not any("scheduledFor" in item for item in items)


async def test_spaced_duplicates_are_ten_minutes_apart_and_share_a_webhook_id(client: Client) -> None:
    before = datetime.now(UTC)
    status, body = await post(client, to("0500000001", "+966500000001", agent=SAUDI_AGENT), SAUDI_KEY)
    assert status == 200
    data = body["data"]
    assert data["policy"]["mode"] == "SPACED"
    assert [item["action"] for item in data["items"]] == ["queued_now", "queued_later"]
    later = datetime.fromisoformat(data["items"][1]["scheduledFor"])
    assert timedelta(minutes=9) < later - before < timedelta(minutes=11)
    for item in data["items"]:
        async with client.get(f"/api/v1/calls/{item['callTaskId']}", headers=bearer(SAUDI_KEY)) as answer:
            call = await answer.json()
        assert (call["webhookId"], call["batchId"]) == (data["webhookId"], data["batchId"])


async def test_a_batch_with_nothing_to_queue_is_an_honest_failure(client: Client) -> None:
    status, body = await post(client, to("nobody"))
    assert (status, body["success"], body["data"]["queued"]) == (200, False, 0)


async def test_the_contact_limit_is_a_failure_of_its_own_with_the_time_of_its_end(client: Client) -> None:
    number = "+966500000003"
    for _ in range(3):
        assert (await post(client, {"agentId": SAUDI_AGENT, "phoneNumber": number}, SAUDI_KEY))[0] == 200
    status, body = await post(client, to(number, "+966500000004", agent=SAUDI_AGENT), SAUDI_KEY)
    assert status == 200
    actions = {item["phoneNumber"]: item for item in body["data"]["items"]}
    assert actions["+966500000004"]["action"] == "queued_now"
    assert actions[number]["action"] == "failed"
    ends = [word for word in actions[number]["reason"].split() if word[:2] == "20"]
    assert datetime.fromisoformat(ends[-1].rstrip(".")) > datetime.now(UTC)


async def test_a_single_call_over_the_contact_limit_is_told_when_to_ask_again(client: Client) -> None:
    call = {"agentId": SAUDI_AGENT, "phoneNumber": "+966500000005"}
    for _ in range(3):
        assert (await post(client, call, SAUDI_KEY))[0] == 200
    async with client.post(PLACE, json=call, headers=bearer(SAUDI_KEY)) as answer:
        assert answer.status == 429
        wait_s = int(answer.headers["Retry-After"])
        message = (await answer.json())["error"]
    resets = datetime.fromisoformat(message.rpartition(" ")[2])
    assert message.startswith("Contact was called too recently")
    assert abs(resets - datetime.now(UTC) - timedelta(seconds=wait_s)) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (to(agent=OUTBOUND), 400, '"calls" must have 1 to 100 items'),
        (to(*["+14155550201"] * 101), 400, '"calls" must have 1 to 100 items'),
        (to("+14155550201", agent=INBOUND), 400, "Agent is not configured for outbound calls"),
        (to("+14155550201", agent=NO_TRUNK), 400, "No SIP trunk configured for this agent"),
        (
            to("+14155550201", agent=OTHER_COMPANYS),
            404,
            "Agent not found or does not belong to your company",
        ),
        (
            to("+14155550201", metadata={}),
            400,
            "promptVariables/metadata must be per-call for batch requests",
        ),
        (to("+14155550201", phoneNumber="+14155550201"), 400, "not both"),
        ({"agentId": OUTBOUND, "calls": [{}]}, 400, "calls[0].phoneNumber: required"),
        ({"agentId": OUTBOUND, "calls": [{"phoneNumber": "1", "name": "Bo"}]}, 400, "calls[0].name: unknown"),
    ],
)
async def test_what_is_wrong_with_the_whole(client: Client, body: Any, status: int, message: str) -> None:
    before = await count_of_calls(client)
    answered, answer = await post(client, body)
    assert answered == status
    assert message in answer["error"]
    assert await count_of_calls(client) == before


@pytest.mark.parametrize(
    "body", [{"agentId": OUTBOUND, "phoneNumber": "+14155550210", **NAMED}, to("+14155550211", "bad")]
)
async def test_a_repeated_request_has_the_same_answer_and_one_call(client: Client, body: Any) -> None:
    key = f"once-{len(body)}-{'calls' in body}"
    first = await post(client, body, idempotency=key)
    count = await count_of_calls(client)
    assert first[0] == 200
    assert await post(client, dict(reversed(body.items())), idempotency=key) == first
    assert await count_of_calls(client) == count
    status, answer = await post(client, body | {"agentId": NO_TRUNK}, idempotency=key)
    assert (status, set(answer)) == (409, {"error"})


async def test_an_idempotency_key_that_is_none(client: Client) -> None:
    status, answer = await post(client, to("+14155550212"), idempotency="x" * 256)
    assert status == 400
    assert "Idempotency-Key" in answer["error"]


async def test_a_dry_run_says_what_would_happen_and_queues_nothing(client: Client) -> None:
    before = await count_of_calls(client)
    status, body = await post(client, to("+14155550220", "4155550220", "bad", dryRun=True))
    assert status == 200
    assert [item["action"] for item in body["data"]["items"]] == ["queued_now", "deduped", "failed"]
    assert body["data"]["dryRun"] is True
    assert "batchId" not in body["data"]
    single = {"agentId": OUTBOUND, "phoneNumber": "+14155550220", "dryRun": True, **NAMED}
    status, body = await post(client, single)
    assert status == 200
    trial = TrialResponse.model_validate(body)
    assert (trial.success, trial.data.action) == (True, "queued_now")
    assert await count_of_calls(client) == before


@pytest.mark.parametrize("written", ["+966500000010", "966500000011", "0500000012", "500000013"])
async def test_a_waiting_call_is_cancelled_by_every_way_to_write_its_number(
    client: Client, written: str
) -> None:
    number = f"+966{written[-9:]}"
    placed = await post(client, to(number, number, agent=SAUDI_AGENT), SAUDI_KEY)
    now, waiting = placed[1]["data"]["items"]
    assert (now["action"], waiting["action"]) == ("queued_now", "queued_later")
    await until_final(client, now["callTaskId"], key=SAUDI_KEY)  # else it may be the one that is cancelled
    status, body = await post(client, {"agentId": SAUDI_AGENT}, SAUDI_KEY, path=CANCEL + written)
    assert status == 200
    told = CancelResponse.model_validate(body)
    assert told.data.cancelled is True
    assert told.data.phoneNumber == number
    assert body["data"]["previousStatus"] == "PENDING"
    assert body["data"]["status"] == "CANCELLED"
    assert body["data"]["batchId"] == placed[1]["data"]["batchId"]
    assert "message" not in body
    async with client.get(f"/api/v1/calls/{waiting['callTaskId']}", headers=bearer(SAUDI_KEY)) as answer:
        assert (await answer.json())["status"] == "CANCELLED"


async def test_a_cancel_says_how_many_calls_it_ended(client: Client) -> None:
    number = "+966500000017"
    _, placed = await post(client, to(number, number, number, agent=SAUDI_AGENT), SAUDI_KEY)
    first, *waiting = [item["callTaskId"] for item in placed["data"]["items"]]
    await until_final(client, first, key=SAUDI_KEY)
    _, body = await post(client, {"agentId": SAUDI_AGENT}, SAUDI_KEY, path=CANCEL + number)
    assert body["data"]["cancelledCount"] == 2
    assert body["data"]["callQueueId"] == waiting[0]  # the one that was due first
    for call_id in waiting:
        async with client.get(f"/api/v1/calls/{call_id}", headers=bearer(SAUDI_KEY)) as answer:
            assert (await answer.json())["status"] == "CANCELLED"


async def test_nothing_to_cancel_is_no_error_and_the_body_may_be_empty(client: Client) -> None:
    async with client.post(CANCEL + "14155550299", headers=bearer(KEY)) as answer:
        body = await answer.json()
        assert answer.status == 200
    assert body["success"] is True
    assert body["message"]
    assert body["data"] == {"cancelled": False, "phoneNumber": "+14155550299"}


@pytest.mark.parametrize(
    ("path", "body", "key", "status", "message"),
    [
        ("nobody", {}, KEY, 400, "Invalid phone number format"),
        (
            "14155550123",
            {"agentId": OTHER_COMPANYS},
            KEY,
            404,
            "Agent not found or does not belong to your company",
        ),
        ("14155550123", {}, SERVER_KEY, 400, "API key missing company information"),
    ],
)
async def test_a_cancellation_that_is_refused(  # noqa: PLR0917
    client: Client, path: str, body: Any, key: str, status: int, message: str
) -> None:
    assert await post(client, body, key, path=CANCEL + path) == (status, {"error": message})
