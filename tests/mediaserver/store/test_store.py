"""The store as the server uses it: keys, configuration, calls and what is told about them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mediaserver.errors import LocalError, StoreUnavailable
from mediaserver.queue.records import CallStatus, Outcome, Stage, Stopping
from mediaserver.queue.search import CallFilter
from mediaserver.store.store import Store
from tests.support.node.store import (
    AGENT,
    SECRET,
    TTL_MS,
    Clock,
    company,
    everything,
    new_call,
    opened,
    query,
    queued,
    record_of,
    settings,
)

# Keys and configuration -------------------------------------------------------------------------------------


async def test_a_key_of_the_file_tells_its_company(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme"), company("zenith"))) as store:
        key = await store.find_key("zenith-calls-key")
        assert key is not None
        assert (key.company_id, sorted(key.scopes)) == ("zenith", ["calls", "speech"])
        assert await store.find_key("zenith-calls-kez") is None
        assert await store.find_key("") is None


async def test_a_created_key_works_and_is_not_stored(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as store:
        key = await store.create_key("acme", ["calls"])
        found = await store.find_key(key)
        assert found is not None
        assert found.scopes == {"calls"}
        await store.sync_file(settings())
        assert await store.find_key(key) is not None
        assert await store.create_key("acme", ["calls"]) != key
        content = await everything(tmp_path)
    for secret in (key, "acme-calls-key", SECRET, SECRET.removeprefix("whsec_")):
        assert secret.encode() not in content
    assert b"acme" in content


@pytest.mark.parametrize(
    ("company_id", "scopes"), [("nobody", ["calls"]), ("acme", ["everything"]), ("acme", [])]
)
async def test_a_key_for_nobody_or_for_nothing_is_refused(
    store: Store, company_id: str, scopes: list[str]
) -> None:
    with pytest.raises(LocalError):
        await store.create_key(company_id, scopes)


async def test_text_that_no_database_takes_is_written_all_the_same(tmp_path: Path, clock: Clock) -> None:
    odd, stored = "told \0 me \ud83d", "told \ufffd me \ufffd"
    async with opened(tmp_path, clock) as store:
        assert await store.opt_out("acme", "+966500000001", reason=odd)
        row = await store.enqueue(
            new_call("+966500000002", variables={"name": odd}, metadata={"note": [odd]})
        )
        listed = await query(tmp_path, "SELECT reason FROM do_not_call")
        found = await store.call("acme", row.id)
    assert listed == [{"reason": stored}]
    assert found is not None
    assert json.dumps([found.variables, found.metadata], ensure_ascii=False).encode()


async def test_what_left_the_file_loses_its_keys_and_webhooks(tmp_path: Path, clock: Clock) -> None:
    before = settings(company("acme", webhooks=("https://a.example/1",)), company("zenith"))
    async with opened(tmp_path, clock, before) as store:
        assert len(await store.subscriptions()) == 1
        made = await store.create_key("zenith", ["calls"])
        await store.sync_file(settings(company("acme")))
        assert await store.subscriptions() == []
        assert await store.find_key("acme-calls-key") is not None
        assert await store.find_key("zenith-calls-key") is None
        assert await store.find_key(made) is None
        await store.sync_file(before)
        assert await store.find_key(made) is not None


async def test_the_whole_file_is_written_and_marked(tmp_path: Path, clock: Clock) -> None:
    configured = settings(
        company("acme", webhooks=("https://a.example/1",)),
        trunk=[
            {
                "id": "carrier",
                "company": "acme",
                "uri": "sip:127.0.0.1",
                "username": "u",
                "password": "canary",
            }
        ],
        agent=[{"id": AGENT, "company": "acme", "script": {"start": "a"}}],
    )
    async with opened(tmp_path, clock, configured) as store:
        await store.sync_file(configured)
    for table in ("companies", "trunks", "agents", "subscriptions", "api_keys"):
        rows = await query(tmp_path, f"SELECT * FROM {table}")
        assert [row["from_file"] for row in rows] == [1], table
        assert "canary" not in json.dumps(rows)


# Calls ------------------------------------------------------------------------------------------------------


async def test_the_queue_is_woken_by_what_lets_a_call_go_and_by_nothing_else(
    store: Store, clock: Clock
) -> None:
    assert (await store.hold_place("acme", "room")).rule is None
    assert await store.leave_leg("another") is False
    assert (await store.reap_expired()).requeued == ()
    assert not store.queue_filled.is_set()
    assert await store.leave_leg("room")
    assert store.queue_filled.is_set()
    await store.enqueue(new_call())
    (claim,) = await store.claim("node", 1, TTL_MS)
    store.queue_filled.clear()
    clock.now_ms += 10 * TTL_MS
    assert (await store.reap_expired()).requeued == (claim.call_id,)
    assert store.queue_filled.is_set()


async def test_a_queued_call_is_pending_and_told(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as store:
        row = await store.enqueue(new_call(variables={"name": "Zoë"}, metadata={"crm": [1, 2]}, is_test=True))
        assert (row.status, row.stage, row.is_test) == (CallStatus.PENDING, Stage.QUEUED, True)
        assert store.queue_filled.is_set()
        assert store.outbox_filled.is_set()
        record = await store.call("acme", row.id)
    assert record is not None
    assert (record.phone_number, record.created_at_ms) == ("+966500000001", clock.now_ms)
    assert (record.variables, record.metadata) == ({"name": "Zoë"}, {"crm": [1, 2]})
    assert (record.transcript, record.attempts) == ([], ())
    (event,) = await query(tmp_path, "SELECT kind, body FROM outbox")
    assert event["kind"] == "call.queued"
    assert json.loads(event["body"]) == {
        "type": "call.queued",
        "timestamp": "2027-01-15T08:00:00.000Z",
        "webhookId": "wh-1",
        "sequence": 1,
        "data": {
            "callTaskId": row.id,
            "agentId": AGENT,
            "companyId": "acme",
            "phoneNumber": "+966500000001",
            "metadata": {"crm": [1, 2]},
        },
    }


async def test_another_company_sees_nothing(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme"), company("zenith"))) as store:
        row = await store.enqueue(new_call())
        assert await store.call("zenith", row.id) is None
        assert await store.call("acme", "no-such-call") is None
        assert await store.request_hangup("zenith", row.id) is None
        assert (await store.calls("zenith")).items == ()
        record = await record_of(store, row.id)
        assert record.status is CallStatus.PENDING


async def test_a_call_of_an_unknown_company_is_refused(store: Store) -> None:
    with pytest.raises(LocalError):
        await store.enqueue(new_call(company_id="nobody"))
    assert sum((await store.counts()).stages.values()) == 0


async def test_pages_are_newest_first_and_complete(store: Store) -> None:
    ids = [row.id for row in await queued(store, 7)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = await store.calls("acme", cursor=cursor, limit=3)
        seen += [call.id for call in page.items]
        cursor = page.cursor
        if not cursor:
            break
    assert seen == ids[::-1]
    await store.request_hangup("acme", ids[2])
    page = await store.calls("acme", wanted=CallFilter(status=CallStatus.CANCELLED))
    assert [call.id for call in page.items] == [ids[2]]


@pytest.mark.parametrize("cursor", ["x", "-1", "1e9", "9" * 30, "١٢"])
async def test_a_cursor_that_is_not_ours_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(LocalError, match="cursor"):
        await store.calls("acme", cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 201])
async def test_a_page_has_a_sensible_size(store: Store, limit: int) -> None:
    with pytest.raises(LocalError, match="limit"):
        await store.calls("acme", limit=limit)


async def test_a_call_from_start_to_end_tells_everything(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as store:
        row = await store.enqueue(new_call())
        (claim,) = await store.claim("node", 5, TTL_MS)
        assert (claim.dial_number, claim.variables) == ("+966500000001", {})
        assert await store.arm(claim, TTL_MS, sip_call_id="abc@here")
        for status in (CallStatus.DIALING, CallStatus.RINGING, CallStatus.ANSWERED):
            clock.advance(1000)
            assert await store.progress(claim, status, clock.now_ms)
        await store.event(row.id, "turn.completed", {"turn": 1, "latencyMs": 480})
        clock.advance(60_000)
        outcome = Outcome(
            status=CallStatus.COMPLETED,
            cause="normal",
            sip_status=200,
            ended_by="local",
            ended_at_ms=clock.now_ms,
            transcript=[{"role": "agent", "text": "Hello"}],
            turns=[{"turn": 1}],
            analysis={"disposition": "confirmed"},
            recording_path="recordings/a.wav",
            recording_url="http://here/recording",
        )
        assert await store.finish(claim, outcome)
        record = await store.call("acme", row.id)
    assert record is not None
    assert (record.status, record.cause, record.ended_by) == (CallStatus.COMPLETED, "normal", "local")
    assert record.answered_at_ms - record.ringing_at_ms == 1000
    assert record.ended_at_ms - record.answered_at_ms == 60_000
    assert record.transcript == [{"role": "agent", "text": "Hello"}]
    assert record.analysis == {"disposition": "confirmed"}
    (attempt,) = record.attempts
    assert (attempt.number, attempt.status, attempt.sip_call_id) == (1, CallStatus.COMPLETED, "abc@here")
    bodies = [
        json.loads(row["body"]) for row in await query(tmp_path, "SELECT body FROM outbox ORDER BY position")
    ]
    assert [(body["sequence"], body["type"]) for body in bodies] == [
        (1, "call.queued"),
        (2, "call.dialing"),
        (3, "call.ringing"),
        (4, "call.answered"),
        (5, "turn.completed"),
        (6, "call.completed"),
        (7, "transcript.completed"),
        (8, "analysis.completed"),
        (9, "recording.completed"),
    ]
    assert bodies[5]["data"]["durationMs"] == 60_000
    assert bodies[4]["data"]["latencyMs"] == 480
    assert bodies[6]["data"]["transcript"] == [{"role": "agent", "text": "Hello"}]
    assert bodies[8]["data"]["recordingUrl"] == "http://here/recording"


async def test_an_event_that_does_not_exist_is_a_mistake(store: Store) -> None:
    row = await store.enqueue(new_call())
    with pytest.raises(LocalError, match="no event"):
        await store.event(row.id, "call.exploded", {})
    with pytest.raises(LocalError, match="no call"):
        await store.event("nothing", "turn.completed", {})


async def test_counts_for_the_metrics(tmp_path: Path, clock: Clock) -> None:
    configured = settings(company("acme", webhooks=("https://a.example/1",)))
    async with opened(tmp_path, clock, configured) as store:
        rows = await queued(store, 3)
        await store.claim("node", 1, TTL_MS)
        assert await store.request_hangup("acme", rows[2].id) is Stopping.CANCELLED
        counts = await store.counts()
    assert counts.stages == {"QUEUED": 1, "HELD": 0, "CLAIMED": 1, "ARMED": 0}
    assert counts.statuses == {"PENDING": 2}
    assert counts.deliveries == {"PENDING": 4, "DEAD": 0}


async def test_everything_survives_closing_and_opening(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as store:
        row = await store.enqueue(new_call())
    async with opened(tmp_path, clock) as store:
        await record_of(store, row.id)
        assert [claim.call_id for claim in await store.claim("node", 5, TTL_MS)] == [row.id]


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = await Store.open("", tmp_path)
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.counts()


async def test_an_event_whose_answer_was_lost_is_written_once(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as store:
        row = await store.enqueue(new_call())
        for _ in range(3):
            await store.event(row.id, "turn.completed", {"turn": 1}, event_id="evt_1")
        await store.event(row.id, "turn.completed", {"turn": 2})
    events = await query(tmp_path, "SELECT sequence, kind FROM outbox ORDER BY position")
    assert [event["sequence"] for event in events] == [1, 2, 3]
