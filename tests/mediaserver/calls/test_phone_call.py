"""Phone calls through the whole server, over loopback SIP, to a second endpoint in the same process.

Only the models are stand-ins: the voice hums, and the ears hear "yes" in whatever the called person says.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.schemas.base import CallReport
from bench.support.cluster import FASTER, Cluster
from mediaserver.db.database import open_database
from mediaserver.node.trunks import set_trunks
from mediaserver.server import Server
from sip.call import Call, CallFailed
from sip.states import CallState
from tests.support.http.models import fake_models
from tests.support.http.webhooks import receiver
from tests.support.node.node import (
    KEY,
    NUMBER,
    OUTBOUND,
    Client,
    Site,
    bearer,
    database_on,
    place_call,
    reached,
    rows_of,
    running,
    until_final,
    write_site,
)
from tests.support.sip.carrier import carrier
from tests.support.speech.media import speech_like
from tests.support.waiting import until

FRONT_DESK = "+14155550101"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly("ci"))])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with database_on(request.param) as database:
        yield write_site(tmp_path, database=database)


async def says_yes(call: Call, picks_up: asyncio.Event | None = None) -> None:
    """Rings, answers (once it `picks_up`), lets the agent speak, says something short, and stays until the
    agent hangs up."""
    await call.ring()
    await (asyncio.sleep(0.05) if picks_up is None else picks_up.wait())
    await call.answer()
    await asyncio.sleep(1.5)
    await call.play(speech_like(8000 * 7 // 10), 8000)
    await call.ended()


async def rings(call: Call) -> None:
    await call.ring()
    await call.ended()


async def stays(call: Call) -> None:
    await call.ring()
    await call.answer()
    await call.ended()


async def report(client: Client, call_id: str) -> dict[str, Any]:
    async with client.get(f"/api/v1/calls/{call_id}", headers=bearer(KEY)) as answer:
        content: dict[str, Any] = await answer.json()
        return content


async def hang_up(client: Client, call_id: str) -> str:
    async with client.post(f"/api/v1/calls/{call_id}/hangup", headers=bearer(KEY)) as answer:
        assert answer.status == 200
        outcome: str = (await answer.json())["data"]["outcome"]
        return outcome


async def test_a_call_is_placed_spoken_recorded_and_analysed(site: Site) -> None:
    with fake_models() as (_, voice):
        async with carrier(site, says_yes) as side, running(site) as (server, client):
            call_id = await place_call(client)
            call = await until_final(client, call_id)
            CallReport.model_validate(call)
            assert (call["status"], call["hangupCause"], call["endedBy"]) == ("COMPLETED", "normal", "local")
            assert call["createdAt"] <= call["dialedAt"] <= call["ringingAt"] <= call["answeredAt"]
            assert [entry["role"] for entry in call["transcript"]] == ["agent", "agent", "caller", "agent"]
            assert call["transcript"][2]["text"] == "yes"
            assert call["analysis"]["disposition"] == "confirmed"
            assert call["analysis"]["reachedGoal"] is True
            assert call["analysis"]["answers"] == {"known": "yes"}
            answered = [turn for turn in call["turns"] if turn["userText"] == "yes"]
            assert answered[0]["latency"]["voiceToVoiceMs"] > 0
            assert "Is this Bo?" in voice.said
            assert side.calls[0].remote_number == "+14155550100"
            assert side.calls[0].local_number == NUMBER
            assert [each["sipCallId"] for each in call["attempts"]] == [side.calls[0].sip_call_id]
            await check_recording(client, call_id, call["recordingUrl"])
            assert server.metrics.registry.get_sample_value("mediaserver_active_calls") == 0
            assert server.endpoint.stats.rtp_ports_used == 0


async def check_recording(client: Client, call_id: str, url: str) -> None:
    path = f"/api/v1/calls/{call_id}/recording"
    assert url.endswith(path)
    async with client.get(path, headers=bearer(KEY)) as answer:
        assert (answer.status, answer.content_type) == (200, "audio/wav")
        content = await answer.read()
    async with client.get(path, headers=bearer(KEY) | {"Range": "bytes=0-43"}) as answer:
        assert (answer.status, await answer.read()) == (206, content[:44])
    assert content[:4] == b"RIFF"


async def test_the_recording_has_both_sides(site: Site) -> None:
    async with carrier(site, says_yes), running(site) as (_, client):
        call_id = await place_call(client)
        await until_final(client, call_id)
    with wave.open(str(site.data_dir / "recordings" / f"{call_id}.wav")) as file:
        assert (file.getnchannels(), file.getframerate()) == (2, 8000)
        frames = memoryview(file.readframes(file.getnframes())).cast("h")
    assert len(frames) > 2 * 8000 * 2
    assert max(frames[0::2]) > 1000
    assert max(frames[1::2]) > 1000


async def test_the_events_of_a_call_arrive_in_order_and_without_a_gap(site: Site) -> None:
    async with receiver() as endpoint:
        hook = f"""
[[company.webhook]]
url = "{endpoint.url}"
secret = "whsec_ZGVtby13ZWJob29rLXNlY3JldC1vZi0zMi1ieXRlcyE="
"""
        site.reach_this_machine().change('[[company]]\nid = "other"', hook + '[[company]]\nid = "other"')
        async with carrier(site, says_yes), running(site) as (_, client):
            call_id = await place_call(client)
            await until_final(client, call_id)
            await until(lambda: any("call.completed" in text for _, text in endpoint.requests))
            await asyncio.sleep(1)
    received = [json.loads(text) for _, text in endpoint.requests]
    kinds = [event["type"] for event in received]
    assert kinds[:4] == ["call.queued", "call.dialing", "call.ringing", "call.answered"]
    assert {"turn.completed", "call.completed", "transcript.completed", "analysis.completed"} <= set(kinds)
    sequences = [event["sequence"] for event in received]
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))
    assert {event["data"]["callTaskId"] for event in received} == {call_id}


@pytest.mark.parametrize(
    ("code", "status", "cause"),
    [
        (486, "BUSY", "busy"),
        (404, "FAILED", "not_found"),
        (603, "FAILED", "rejected"),
        (480, "NO_ANSWER", "no_answer"),
    ],
)
async def test_a_refusal_says_which(site: Site, code: int, status: str, cause: str) -> None:
    async def refuse(call: Call) -> None:
        await call.reject(code)

    async with carrier(site, refuse), running(site) as (_, client):
        call = await until_final(client, await place_call(client))
    assert (call["status"], call["hangupCause"], call["sipStatus"]) == (status, cause, code)
    assert call["answeredAt"] is None
    assert call["analysis"] is None


async def was_given_back(site: Site, call_id: str) -> bool:
    """Whether the call was claimed, and waits all the same."""
    query = "SELECT 1 AS one FROM calls WHERE id = :id AND stage = 'QUEUED' AND epoch > 0"
    return bool(await rows_of(site, query, id=call_id))


async def test_a_call_whose_trunk_this_node_does_not_know_yet_is_dialled_when_it_does(site: Site) -> None:
    async with carrier(site, rings) as side, running(site) as (server, client):
        server.endpoint.remove_trunk("carrier")
        call_id = await place_call(client)
        async with asyncio.timeout(10):
            while not await was_given_back(site, call_id):
                await asyncio.sleep(0.02)
        assert (await report(client, call_id))["status"] == "PENDING"
        assert side.calls == []
        set_trunks(server.endpoint, server.directory)
        await reached(client, call_id, "RINGING")
        assert len((await report(client, call_id))["attempts"]) == 1


async def test_a_call_that_no_node_can_place_is_ended_with_the_reason(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediaserver.calls.active_calls.PATIENCE", 2)
    monkeypatch.setattr("mediaserver.calls.active_calls.PAUSE_MS", 10)
    async with carrier(site, rings) as side, running(site) as (server, client):
        server.endpoint.remove_trunk("carrier")
        call = await until_final(client, await place_call(client))
        assert (call["status"], call["hangupCause"]) == ("FAILED", "not_configured")
        assert (call["attempts"], side.calls) == ([], [])


async def test_a_ringing_call_is_cancelled_by_the_api(site: Site) -> None:
    async with carrier(site, rings) as side, running(site) as (_, client):
        call_id = await place_call(client)
        await reached(client, call_id, "RINGING")
        assert await hang_up(client, call_id) == "requested"
        call = await until_final(client, call_id)
        assert (call["status"], call["hangupCause"]) == ("CANCELLED", "cancelled")
        assert await side.calls[0].ended() == "cancelled"
        assert await hang_up(client, call_id) == "ended"


async def test_a_conversation_is_ended_by_the_api(site: Site) -> None:
    async with carrier(site, stays) as side, running(site) as (_, client):
        call_id = await place_call(client)
        await reached(client, call_id, "ANSWERED")
        assert await hang_up(client, call_id) == "requested"
        call = await until_final(client, call_id)
        assert (call["status"], call["endedBy"]) == ("COMPLETED", "local")
        await side.calls[0].ended()


async def test_the_called_person_hangs_up_in_the_middle(site: Site) -> None:
    async def answer_and_leave(call: Call) -> None:
        await call.answer()
        await asyncio.sleep(0.5)
        await call.hang_up()

    async with carrier(site, answer_and_leave), running(site) as (_, client):
        call = await until_final(client, await place_call(client))
    assert (call["status"], call["endedBy"], call["hangupCause"]) == ("COMPLETED", "remote", "normal")
    assert call["analysis"]["reachedGoal"] is not True


async def test_a_called_person_who_answers_and_is_gone_at_once(site: Site) -> None:
    async def glance(call: Call) -> None:
        await call.answer()
        await call.hang_up()

    async with carrier(site, glance), running(site) as (_, client):
        call = await until_final(client, await place_call(client))
    assert (call["status"], call["hangupCause"]) == ("COMPLETED", "normal")


async def test_a_caller_reaches_the_agent_of_the_number(site: Site) -> None:
    with fake_models() as (_, voice):
        async with carrier(site, rings) as side, running(site) as (_, client):
            call = await side.trunk.call(FRONT_DESK, caller_id="+14155550177")
            await call.answered()
            await call.ended()
            async with client.get("/api/v1/calls", headers=bearer(KEY)) as answer:
                listed = (await answer.json())["calls"]
            assert len(listed) == 1
            told = await until_final(client, listed[0]["callTaskId"])
    assert (told["direction"], told["status"], told["phoneNumber"]) == (
        "inbound",
        "COMPLETED",
        "+14155550177",
    )
    assert told["analysis"]["disposition"] == "greeted"
    assert voice.said[-2:] == ["Welcome.", "Goodbye."] or "Welcome. Goodbye." in voice.said


@pytest.mark.parametrize("number", ["+14155559999", "anybody", "+14155550100"])
async def test_a_number_that_nobody_answers(site: Site, number: str) -> None:
    async with carrier(site, rings) as side, running(site) as (_, client):
        call = await side.trunk.call(number)
        with pytest.raises(CallFailed) as failed:
            await call.answered()
        assert 400 <= failed.value.code < 500
        async with client.get("/api/v1/calls", headers=bearer(KEY)) as answer:
            assert (await answer.json())["calls"] == []


async def test_calls_in_progress_end_with_the_server_and_are_accounted_for(site: Site) -> None:
    async with carrier(site, stays) as side:
        async with running(site) as (_, client):
            call_id = await place_call(client)
            await reached(client, call_id, "ANSWERED")
        await asyncio.wait_for(side.calls[0].ended(), 30)
        async with running(site) as (_, client):
            call = await report(client, call_id)
    assert call["status"] == "COMPLETED"
    assert call["endedAt"] is not None


async def test_a_call_that_outlasts_the_drain_is_ended_and_written(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    with fake_models():
        async with carrier(site, stays), running(site) as (server, client):
            call_id = await place_call(client)
            await reached(client, call_id, "ANSWERED")
            calls = server._calls
            assert calls is not None
            assert (calls.holds(call_id), calls.holds("another")) == (True, False)
            assert await calls.drain(0.05) is False
            await calls.end()
            assert (calls.holds(call_id), len(calls.journal)) == (False, 0)
            call = await report(client, call_id)
    assert (call["status"], call["endedBy"]) == ("COMPLETED", "local")


async def test_a_draining_server_lets_calls_end_and_takes_no_new_ones(site: Site) -> None:
    async with carrier(site, says_yes) as side, running(site) as (server, client):
        call_id = await place_call(client)
        await reached(client, call_id, "ANSWERED")
        draining = asyncio.create_task(server.drain())
        await asyncio.sleep(0)
        body = {"agentId": OUTBOUND, "phoneNumber": NUMBER, "promptVariables": {"name": "Bo"}}
        async with client.post("/api/v1/calls/outbound", json=body, headers=bearer(KEY)) as answer:
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) > 0
        refused = await side.trunk.call(FRONT_DESK)
        with pytest.raises(CallFailed) as failed:
            await refused.answered()
        assert failed.value.code == 503
        assert await draining is True
        call = await report(client, call_id)
    assert (call["status"], call["analysis"]["disposition"]) == ("COMPLETED", "confirmed")


async def test_a_call_goes_on_while_the_database_is_away(tmp_path: Path) -> None:
    """Another process locks the database from the ringing until the agent has said goodbye."""
    site = write_site(tmp_path)
    with fake_models() as (_, voice):
        picks_up = asyncio.Event()
        answering = partial(says_yes, picks_up=picks_up)
        async with carrier(site, answering) as side, running(site) as (server, client):
            call_id = await place_call(client)
            await reached(client, call_id, "RINGING")
            with locked(site.data_dir / "mediaserver.db"):
                picks_up.set()
                await until(lambda: side.calls and side.calls[0].state is CallState.ENDED)
                assert "Goodbye." in voice.said
            call = await until_final(client, call_id, timeout_s=30)
            await check_not_lost(server, call)


async def test_a_call_goes_on_while_the_database_server_is_down(tmp_path: Path) -> None:
    """PostgreSQL crashes when the phone rings and is back when the agent has said goodbye."""
    cluster = await asyncio.to_thread(lambda: Cluster(**FASTER))
    try:
        site = write_site(tmp_path, database=cluster.new_database(migrated=False))
        with fake_models() as (_, voice):
            picks_up = asyncio.Event()
            answering = partial(says_yes, picks_up=picks_up)
            async with carrier(site, answering) as side, running(site) as (server, client):
                call_id = await place_call(client)
                await reached(client, call_id, "RINGING")
                await asyncio.to_thread(cluster.crash)
                picks_up.set()
                await until(lambda: side.calls and side.calls[0].state is CallState.ENDED)
                assert "Goodbye." in voice.said
                await asyncio.to_thread(cluster.start)
                await check_not_lost(server, await until_final(client, call_id, timeout_s=30))
        await check_order(site.database)
    finally:
        await asyncio.to_thread(cluster.remove)


async def check_order(database: str) -> None:
    """What was told of the call, in the order in which it happened, without a gap."""
    db = await open_database(database, Path())
    rows = await db.read(lambda tx: tx.rows("SELECT sequence, kind FROM outbox ORDER BY sequence"))
    await db.close()
    assert [row["sequence"] for row in rows] == list(range(1, len(rows) + 1))
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    assert kinds[:6] == [
        "call.queued",
        "call.dialing",
        "call.ringing",
        "call.answered",
        "turn.completed",
        "call.completed",
    ]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds SQLite's write lock, as another process would."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("BEGIN EXCLUSIVE")
        yield
        database.execute("ROLLBACK")
    finally:
        database.close()


async def check_not_lost(server: Server, call: dict[str, Any]) -> None:
    assert call["status"] == "COMPLETED"
    assert call["answeredAt"] <= call["endedAt"]
    assert call["transcript"][2]["text"] == "yes"
    assert call["analysis"]["disposition"] == "confirmed"
    assert server.metrics.registry.get_sample_value("mediaserver_journal_dropped_total") == 0
