"""What people may ask of a company: what is known of their number, that it be erased, that it be kept; and
who did what. On both engines of databases, over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mediaserver.queue.personal_data.erasure import remove_file
from mediaserver.queue.records import CallStatus, Claim, NewInboundCall, Outcome
from tests.support.http.api_site import ADMIN_KEY, OTHER_ADMIN_KEY, SERVER_KEY, write_api_site
from tests.support.http.webhooks import receiver
from tests.support.node.node import (
    DATABASES,
    INBOUND,
    KEY,
    NUMBER,
    OUTBOUND,
    Node,
    Site,
    bearer,
    database_on,
    place_call,
    rows_of,
    running,
    until_final,
)
from tests.support.node.store import new_inbound

OTHER = "+14155550177"
SAID = "my mother is called Rosalind"
API = "/api/v1"
LIMIT = '[company.contact_limit]\ncalls = 1\nper_minutes = 60\n\n[[company]]\nid = "other"'
HOOK = '[[company.webhook]]\nurl = "URL"\nsecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"\n'


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> Any:
    with database_on(request.param) as url:
        yield url


@asynccontextmanager
async def node_at(
    path: Path, database: str, retention: str = "", hook: str = ""
) -> AsyncIterator[tuple[Site, Node]]:
    site = write_api_site(path, database=database)
    tables = HOOK.replace("URL", hook) if hook else ""
    tables += f"[company.retention]\n{retention}" if retention else ""
    site.change('[[company]]\nid = "other"', f'{tables}\n[[company]]\nid = "other"')
    async with running(site) as node:
        yield site, node


async def ask(
    node: Node, method: str, path: str, body: Any = None, *, key: str = ADMIN_KEY
) -> tuple[int, Any]:
    async with node.client.request(method, API + path, json=body, headers=bearer(key)) as answer:
        return answer.status, await answer.json()


async def going_on(node: Node) -> tuple[NewInboundCall, Claim]:
    """A call to acme that is not over, and the claim on it."""
    call = new_inbound(NUMBER, agent_id=INBOUND, called_number="+14155550101")
    return call, await node.server.store.record_inbound(call, node=node.server.node, ttl_ms=60_000)


async def answered(node: Node, number: str, *, spelt: str = "", ended_at_ms: int = 0) -> str:
    """A call from `number` that was answered, spoken and recorded; its id."""
    store = node.server.store
    call = new_inbound(spelt or number, agent_id=INBOUND, called_number="+14155550101")
    claim = await store.record_inbound(call, node=node.server.node, ttl_ms=60_000)
    await store.progress(claim, CallStatus.ANSWERED, 1)
    path = Path(node.server.settings.server.data_dir) / "recordings" / f"{call.call_id}.wav"
    await asyncio.to_thread(path.write_bytes, b"RIFF" + bytes(40))
    times = {"startMs": 0, "endMs": 900, "confidence": 0.9}
    line = {"role": "caller", "text": SAID, **times, "interrupted": False, "words": []}
    outcome = Outcome(
        status=CallStatus.COMPLETED, cause="remote_hangup", ended_at_ms=ended_at_ms, transcript=[line],
        recording_path=str(path), recording_url=f"/api/v1/calls/{call.call_id}/recording",
        recording_node=node.server.settings.server.node_url or "",
    )  # fmt: skip
    assert await store.finish(claim, outcome)
    assert await store.keep_trace(call.call_id, "1@peer", trace_of(number))
    return call.call_id


def trace_of(number: str) -> dict[str, Any]:
    """The part of a trace in which a number stands."""
    message = {
        "at_us": 1, "sent": False, "transport": "udp",
        "local": ["127.0.0.1", 5060], "remote": ["127.0.0.1", 1],
        "repeated": False, "text": f"INVITE sip:{number}@peer SIP/2.0",
    }  # fmt: skip
    return {
        "sip_call_id": "1@peer", "direction": "inbound", "trunk_id": "carrier", "remote_number": number,
        "left_out": 0, "media": [], "messages": [message],
    }  # fmt: skip


async def recordings_of(node: Node) -> set[str]:
    folder = Path(node.server.settings.server.data_dir) / "recordings"
    return {path.stem for path in await asyncio.to_thread(lambda: list(folder.iterdir()))}


async def completed(node: Node, erasure_id: str) -> Any:
    async with asyncio.timeout(20):
        while True:
            _, erasure = await ask(node, "GET", f"/erasures/{erasure_id}")
            if erasure["completedAt"]:
                return erasure
            await asyncio.sleep(0.02)


async def until_metric(node: Node, line: str) -> None:
    async with asyncio.timeout(20):
        while line.encode() not in node.server.exposition():
            await asyncio.sleep(0.02)


async def everything_stored(site: Site) -> bytes:
    """What stands in the database and in the data directory, octet for octet; of PostgreSQL the rows."""
    if site.database:
        tables = await rows_of(site, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        rows = [await rows_of(site, f"SELECT t::text AS row FROM {each['tablename']} t") for each in tables]
        return json.dumps(rows, ensure_ascii=False).encode()
    files = await asyncio.to_thread(lambda: [path for path in site.data_dir.rglob("*") if path.is_file()])
    return b"".join([await asyncio.to_thread(path.read_bytes) for path in files])


async def test_a_number_is_erased_everywhere_and_the_proof_stays(tmp_path: Path, database: str) -> None:
    async with receiver() as hook, node_at(tmp_path, database, hook=hook.url) as (site, node):
        calls = {
            await answered(node, NUMBER),
            await answered(node, NUMBER, spelt=NUMBER.removeprefix("+1")),
            await place_call(node.client, name="Bo"),
        }
        other = await answered(node, OTHER)
        status, erasure = await ask(node, "POST", "/erasures", {"phoneNumber": "(415) 555-0123"})
        assert (status, erasure["calls"], erasure["recordings"]) == (201, 3, 2)
        erasure = await completed(node, erasure["id"])
        assert (erasure["openCalls"], erasure["openRecordings"]) == (0, 0)
        assert await recordings_of(node) == {other}
        for call_id in calls:
            _, call = await ask(node, "GET", f"/calls/{call_id}")
            assert (call["phoneNumber"], call["transcript"], call["promptVariables"]) == ("", [], {})
            assert (await ask(node, "GET", f"/calls/{call_id}/recording"))[0] == 404
            async with asyncio.timeout(
                20
            ):  # the trace waits for the last answer of a call that has just ended
                while (await ask(node, "GET", f"/calls/{call_id}/trace"))[1]["messages"]:
                    await asyncio.sleep(0.02)
            assert not await node.server.store.keep_trace(call_id, "2@peer", trace_of(NUMBER)), "too late"
        _, deliveries = await ask(node, "GET", "/deliveries?limit=100")
        assert {each["callTaskId"] for each in deliveries["deliveries"]} == {other}
        _, kept = await ask(node, "GET", f"/calls/{other}")
        assert (kept["phoneNumber"], kept["transcript"][0]["text"]) == (OTHER, SAID)
        _, found = await ask(node, "POST", "/erasures/search", {"phoneNumber": NUMBER})
        assert [each["id"] for each in found["erasures"]] == [erasure["id"]]
        assert (await ask(node, "POST", "/erasures/search", {"phoneNumber": OTHER}))[1]["erasures"] == []
        assert (await ask(node, "GET", f"/erasures/{erasure['id']}", key=OTHER_ADMIN_KEY))[0] == 404
        stored = await everything_stored(site)
    assert NUMBER.removeprefix("+").encode() not in stored
    assert OTHER.encode() in stored
    assert erasure["fingerprint"].encode() in stored


async def test_a_call_that_goes_on_is_erased_when_it_is_over(tmp_path: Path, database: str) -> None:
    async with node_at(tmp_path, database) as (_, node):
        store = node.server.store
        call, claim = await going_on(node)
        _, erasure = await ask(node, "POST", "/erasures", {"callTaskId": call.call_id})
        assert (erasure["calls"], erasure["openCalls"], erasure["completedAt"]) == (1, 1, None)
        await store.progress(claim, CallStatus.ANSWERED, 1)
        await store.finish(claim, Outcome(status=CallStatus.COMPLETED, cause="remote_hangup"))
        _, second = await ask(node, "POST", "/erasures", {"phoneNumber": OTHER})  # the next sweep is now
        await completed(node, erasure["id"])
        _, shown = await ask(node, "GET", f"/calls/{call.call_id}")
        assert (shown["phoneNumber"], shown["status"]) == ("", "COMPLETED")
        assert second["calls"] == 0
        # What a node still had to tell of the call is not told any more.
        await store.event(call.call_id, "turn.completed", {"userText": SAID}, event_id="evt_late")
        assert await store.events_of([call.call_id]) == []


async def test_a_hold_stops_an_erasure_that_waits(tmp_path: Path, database: str) -> None:
    async with node_at(tmp_path, database) as (_, node):
        store = node.server.store
        call, claim = await going_on(node)
        _, erasure = await ask(node, "POST", "/erasures", {"callTaskId": call.call_id})
        _, hold = await ask(node, "POST", "/holds", {"callTaskId": call.call_id, "reason": "Case 17"})
        await store.finish(claim, Outcome(status=CallStatus.COMPLETED, cause="remote_hangup"))
        assert await store.erase_ended() == 0
        _, waits = await ask(node, "GET", f"/erasures/{erasure['id']}")
        assert (waits["openCalls"], waits["completedAt"]) == (1, None)
        assert (await ask(node, "GET", f"/calls/{call.call_id}"))[1]["phoneNumber"] == NUMBER
        assert (await ask(node, "DELETE", f"/holds/{hold['id']}"))[0] == 200
        await ask(node, "POST", "/erasures", {"phoneNumber": OTHER})  # the next sweep is now
        await completed(node, erasure["id"])


async def test_a_hold_keeps_a_recording_that_waits_for_its_removal(tmp_path: Path, database: str) -> None:
    async with node_at(tmp_path, database) as (_, node):
        store = node.server.store
        call_id = await answered(node, NUMBER)
        _, hold = await ask(node, "POST", "/holds", {"callTaskId": call_id, "reason": "Case 17"})
        await store.db.write(lambda tx: remove_file(tx, call_id, reason="retention"))
        assert await store.removals() == []
        assert (await ask(node, "DELETE", f"/holds/{hold['id']}"))[0] == 200
        assert [each.call_id for each in await store.removals()] == [call_id]


async def test_a_caller_cannot_come_under_a_hold_by_wildcards(tmp_path: Path, database: str) -> None:
    async with node_at(tmp_path, database) as (_, node):
        await ask(node, "POST", "/holds", {"phoneNumber": NUMBER, "reason": "Case 17"})
        for chosen in ("%", "+141555501__", "\\"):
            call_id = await answered(node, NUMBER, spelt=chosen)
            assert (await ask(node, "POST", "/erasures", {"callTaskId": call_id}))[0] == 201, chosen
        held = await answered(node, NUMBER)
        assert (await ask(node, "POST", "/erasures", {"callTaskId": held}))[0] == 409


async def test_a_node_that_was_away_removes_its_recordings_when_it_is_back(tmp_path: Path) -> None:
    with database_on("postgresql") as database:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        away = write_api_site(tmp_path / "a", database=database).add(
            "[server]", 'node_url = "http://127.0.0.1:9"'
        )
        async with running(away) as node:
            call_id = await answered(node, NUMBER)
        async with running(write_api_site(tmp_path / "b", database=database)) as node:
            _, erasure = await ask(node, "POST", "/erasures", {"phoneNumber": NUMBER})
            await until_metric(node, 'mediaserver_erasures_waiting{kind="files"} 1.0')  # it has swept
            _, erasure = await ask(node, "GET", f"/erasures/{erasure['id']}")
            assert (erasure["openRecordings"], erasure["completedAt"]) == (1, None)
        assert (away.data_dir / "recordings" / f"{call_id}.wav").exists()
        async with running(away) as node:
            await completed(node, erasure["id"])
            assert await recordings_of(node) == set()


async def lost_in(site: Site, node: Node, number: str) -> str:
    """A call whose node died in it, long ago: its row names no recording, which lies on the disk."""
    store = node.server.store
    call = new_inbound(number, agent_id=INBOUND, called_number="+14155550101")
    earlier_run = "died@" + node.server.node.partition("@")[2]
    claim = await store.record_inbound(call, node=earlier_run, ttl_ms=1)
    await store.progress(claim, CallStatus.ANSWERED, 1)
    path = site.data_dir / "recordings" / f"{call.call_id}.wav"
    await asyncio.to_thread(path.write_bytes, b"RIFF" + bytes(40))
    async with asyncio.timeout(20):
        while (shown := await store.call("acme", call.call_id)) is None or shown.status != "UNKNOWN":
            await store.reap_expired()
            await asyncio.sleep(0.02)
    return call.call_id


@pytest.mark.parametrize("by_age", [False, True], ids=["erased", "too old"])
async def test_a_node_that_died_in_a_call_removes_its_recording_when_it_is_back(
    tmp_path: Path, by_age: bool
) -> None:
    with database_on("postgresql") as database:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        away = write_api_site(tmp_path / "a", database=database)
        async with running(away) as node:
            call_id = await lost_in(away, node, NUMBER)
            unrecorded = await lost_in(away, node, NUMBER)
            other = await lost_in(away, node, OTHER)
        (away.data_dir / "recordings" / f"{unrecorded}.wav").unlink()
        async with node_at(tmp_path / "b", database, "recordings_days = 1\n" if by_age else "") as (_, node):
            if by_age:
                old = "UPDATE calls SET ended_at_ms = 1 WHERE phone_number = :number"
                await node.server.store.db.write(lambda tx: tx.run(old, number=NUMBER))
                _, erasure = await ask(node, "POST", "/erasures", {"phoneNumber": "+14155550111"})
            else:
                _, erasure = await ask(node, "POST", "/erasures", {"phoneNumber": NUMBER})
                assert (erasure["openRecordings"], erasure["completedAt"]) == (2, None)
            await until_metric(node, 'mediaserver_erasures_waiting{kind="files"} 2.0')  # it has swept
        assert (away.data_dir / "recordings" / f"{call_id}.wav").exists()
        async with running(away) as node:
            await until_metric(node, 'mediaserver_erasures_waiting{kind="files"} 0.0')
            assert (await completed(node, erasure["id"]))["openRecordings"] == 0
            assert await recordings_of(node) == {other}


async def test_an_erasure_does_not_lift_the_contact_limit(tmp_path: Path, database: str) -> None:
    site = write_api_site(tmp_path, database=database)
    site.change('[[company]]\nid = "other"', LIMIT)
    async with running(site) as node:
        first = await place_call(node.client, name="Mary")
        await until_final(node.client, first)
        body = {"phoneNumber": NUMBER, "agentId": OUTBOUND, "promptVariables": {"name": "Mary"}}
        assert (await ask(node, "POST", "/calls/outbound", body, key=KEY))[0] == 429
        _, erasure = await ask(node, "POST", "/erasures", {"phoneNumber": NUMBER})
        await completed(node, erasure["id"])
        status, refused = await ask(node, "POST", "/calls/outbound", body, key=KEY)
        assert (status, "too recently" in refused["error"]) == (429, True)
        assert (await ask(node, "POST", "/calls/outbound", body | {"phoneNumber": OTHER}, key=KEY))[0] == 200
        [kept] = await rows_of(site, "SELECT * FROM erased_contacts")
        assert NUMBER not in str(dict(kept))
    # Another start has the same key; when the limit looks back no further, nothing of the person is left.
    async with running(site) as node:
        assert (await ask(node, "POST", "/calls/outbound", body, key=KEY))[0] == 429
        store = node.server.store
        await store.db.write(lambda tx: tx.run("UPDATE erased_contacts SET at_ms = at_ms - 3600001"))
        await store.erase_ended()
        assert await rows_of(site, "SELECT * FROM erased_contacts") == []
        assert (await ask(node, "POST", "/calls/outbound", body, key=KEY))[0] == 200


async def test_each_kind_of_data_is_kept_for_its_own_time(tmp_path: Path, database: str) -> None:
    retention = "recordings_days = 1\ntranscripts_days = 2\nevents_days = 3\nsignalling_days = 4\n"
    day_ms = 24 * 3600 * 1000
    async with node_at(tmp_path, database, retention) as (site, node):
        now_ms = (await rows_of(site, "SELECT {now} AS now_ms"))[0]["now_ms"]
        fresh, older, held = [
            await answered(node, NUMBER, ended_at_ms=now_ms - int(days * day_ms)) for days in (0.5, 1.5, 2.5)
        ]
        oldest = await answered(node, OTHER, ended_at_ms=now_ms - int(2.5 * day_ms))
        _, hold = await ask(node, "POST", "/holds", {"callTaskId": held, "reason": "Case 17"})
        await ask(node, "POST", "/erasures", {"phoneNumber": "+14155550111"})  # the next sweep is now
        async with asyncio.timeout(20):
            while await recordings_of(node) != {fresh, held}:
                await asyncio.sleep(0.02)
        said = {each: (await ask(node, "GET", f"/calls/{each}"))[1] for each in (fresh, older, held, oldest)}
        assert {each for each, call in said.items() if call["transcript"]} == {fresh, older, held}
        assert said[oldest]["phoneNumber"] == OTHER, "retention of one kind leaves the others"
        assert (await ask(node, "POST", "/erasures", {"callTaskId": held}))[0] == 409
        assert (await ask(node, "POST", "/erasures", {"phoneNumber": NUMBER}))[0] == 409
        assert (await ask(node, "DELETE", f"/holds/{hold['id']}"))[0] == 200
        assert (await ask(node, "POST", "/erasures", {"callTaskId": held}))[0] == 201
        async with node.client.get("/metrics") as answer:
            metrics = await answer.text()
        assert 'mediaserver_data_removed_total{kind="recordings"} 2.0' in metrics
        assert 'mediaserver_data_removed_total{kind="transcripts"} 1.0' in metrics


async def test_events_and_signalling_are_kept_for_their_time(tmp_path: Path, database: str) -> None:
    async with node_at(tmp_path, database, "events_days = 30\nsignalling_days = 30\n") as (site, node):
        call_id = await place_call(node.client)
        await until_final(node.client, call_id)
        store = node.server.store
        assert await store.keep_trace(call_id, "1@peer", trace_of(NUMBER))
        long_ago = "UPDATE outbox SET created_at_ms = 1 WHERE call_id = :id"
        await store.db.write(lambda tx: tx.run(long_ago, id=call_id))
        await store.db.write(lambda tx: tx.run("UPDATE calls SET ended_at_ms = 1 WHERE id = :id", id=call_id))
        assert await store.events_of([call_id]) != []
        await ask(node, "POST", "/erasures", {"phoneNumber": OTHER})  # the next sweep is now
        async with asyncio.timeout(20):
            while await store.events_of([call_id]):
                await asyncio.sleep(0.02)
        sql = "SELECT dial_number, sip_call_id, phone_number FROM attempts WHERE call_id = :id"
        rows = await rows_of(site, sql, id=call_id)
        assert [(row["dial_number"], row["sip_call_id"]) for row in rows] == [("", "")]
        assert rows[0]["phone_number"] == NUMBER, "the contact limit counts by it"
        assert await store.traces(call_id) == []


async def test_what_is_known_of_a_number_is_told(tmp_path: Path, database: str) -> None:
    async with node_at(tmp_path, database) as (_, node):
        spoken, dialled = await answered(node, NUMBER), await place_call(node.client, name="Mary")
        await until_final(node.client, dialled)
        mine = {spoken, dialled}
        await answered(node, OTHER)
        await ask(node, "POST", "/do-not-call", {"phoneNumbers": [NUMBER]})
        status, known = await ask(node, "POST", "/exports", {"phoneNumber": NUMBER})
        assert status == 200
        assert {call["callTaskId"] for call in known["calls"]} == mine
        assert SAID in json.dumps(known["calls"])
        [trace] = [each for each in known["traces"] if each["callTaskId"] == spoken]
        assert trace == (await ask(node, "GET", f"/calls/{spoken}/trace"))[1]
        assert (trace["legs"][0]["remoteNumber"], len(trace["messages"])) == (NUMBER, 1)
        [attempt] = next(call for call in known["calls"] if call["callTaskId"] == dialled)["attempts"]
        assert attempt["dialedNumber"] == NUMBER
        assert all("headers" in call["sip"] for call in known["calls"])
        assert {event["data"]["callTaskId"] for event in known["events"]} == mine
        assert (known["doNotCall"], known["more"]) == (True, False)
        assert (await ask(node, "POST", "/exports", {"phoneNumber": "nobody"}))[0] == 400
        _, theirs = await ask(node, "POST", "/exports", {"phoneNumber": NUMBER}, key=OTHER_ADMIN_KEY)
        assert (theirs["calls"], theirs["events"], theirs["doNotCall"]) == ([], [], False)


async def test_the_log_tells_who_did_what(tmp_path: Path, database: str) -> None:
    async with node_at(tmp_path, database) as (_, node):
        call_id = await answered(node, NUMBER)
        headers = bearer(KEY) | {"X-Request-Id": "listens-17"}
        async with node.client.get(f"{API}/calls/{call_id}/recording", headers=headers) as answer:
            assert answer.status == 200
        _, key = await ask(node, "POST", "/keys", {"scopes": ["calls"]})
        await ask(node, "DELETE", f"/keys/{key['id']}")
        await ask(node, "POST", "/exports", {"phoneNumber": NUMBER})
        await ask(node, "POST", "/do-not-call", {"phoneNumbers": [NUMBER]})
        await ask(node, "DELETE", f"/do-not-call/{NUMBER}")
        _, erasure = await ask(node, "POST", "/erasures", {"phoneNumber": NUMBER})
        assert (await ask(node, "DELETE", f"/keys/{key['id']}"))[0] == 404
        assert (await ask(node, "GET", f"/calls/{call_id}/recording", key=KEY))[0] == 404
        await ask(node, "PATCH", "/companies/acme?company=acme", {"name": "x"}, key=SERVER_KEY)
        _, log = await ask(node, "GET", "/audit")
        assert [(each["operation"], each["subject"]) for each in reversed(log["entries"])] == [
            ("getRecording", call_id),
            ("createKey", key["id"]),
            ("revokeKey", key["id"]),
            ("exportNumber", erasure["fingerprint"]),
            ("addDoNotCall", ""),
            ("removeDoNotCall", "…23"),
            ("createErasure", erasure["id"]),
        ]
        assert log["entries"][-1]["requestId"] == "listens-17"
        assert len({each["keyId"] for each in log["entries"]}) == 2
        _, one = await ask(node, "GET", f"/audit?subject={call_id}")
        assert [each["operation"] for each in one["entries"]] == ["getRecording"]
        assert (await ask(node, "GET", "/audit", key=KEY))[0] == 403
        assert (await ask(node, "GET", "/audit", key=OTHER_ADMIN_KEY))[1]["entries"] == []


async def test_the_log_tells_who_heard_and_read_a_call(tmp_path: Path, database: str) -> None:
    async with node_at(tmp_path, database) as (site, node):
        call_id = await answered(node, NUMBER)
        await node.server.store.db.write(lambda tx: tx.run("DELETE FROM call_traces"))
    site.add("[server]", 'recordings_key = "a-key-of-24-characters-or-more"')
    folder = site.data_dir / "recordings"
    async with running(site) as node:
        async with asyncio.timeout(20):
            while await asyncio.to_thread(lambda: [path.suffix for path in folder.iterdir()]) != [".enc"]:
                await asyncio.sleep(0.02)
        placed = await place_call(node.client)
        for path in (f"{call_id}/recording", f"{call_id}/trace", f"{call_id}.pcap", call_id, placed):
            async with node.client.get(f"{API}/calls/{path}", headers=bearer(ADMIN_KEY)) as answer:
                assert answer.status == 200, path
                await answer.read()
        _, log = await ask(node, "GET", "/audit")
    assert [(each["operation"], each["subject"]) for each in reversed(log["entries"])] == [
        ("getRecording", call_id),
        ("getTrace", call_id),
        ("getPcap", call_id),
        ("getCall", call_id),
    ], "a call without a transcript is looked at, not read"


@pytest.mark.parametrize("body", [{}, {"phoneNumber": NUMBER, "callTaskId": "x"}, {"phoneNumber": "no"}])
async def test_an_erasure_says_what_of(tmp_path: Path, body: dict[str, str]) -> None:
    async with node_at(tmp_path, "") as (_, node):
        assert (await ask(node, "POST", "/erasures", body))[0] == 400
        assert (await ask(node, "POST", "/erasures", {"callTaskId": "none"}))[0] == 404
        assert OUTBOUND
