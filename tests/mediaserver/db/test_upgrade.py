"""A database of an earlier release: what was in it is there, and has its time, after the upgrade."""

from __future__ import annotations

from pathlib import Path

import pytest

from mediaserver.db.database import SCHEMA, Db, migrate, migrations
from mediaserver.db.postgres import Postgres
from mediaserver.db.sqlite import Sqlite
from mediaserver.queue.personal_data.erasure import Subject
from mediaserver.queue.personal_data.retention import Kept
from mediaserver.store.store import Store
from tests.support.node.node import DATABASES, database_on
from tests.support.node.store import record_of

BEFORE = 8
"""The last schema in which nothing had a time."""

ROWS = (
    "INSERT INTO companies (id, name, duplicate_policy, contact_calls, contact_minutes, dial_prefixes,"
    " max_concurrent_calls, web_calls, country, from_file, enabled, created_at_ms)"
    " VALUES ('acme', '', 'DEDUPE', 0, 0, '[]', 1, 0, '', 1, 1, 1)",
    "INSERT INTO calls (id, company_id, agent_id, trunk_id, direction, phone_number, dial_number, webhook_id,"
    " variables, metadata, is_test, status, stage, created_at_ms, not_before_ms, ended_at_ms, transcript)"
    " VALUES ('call-1', 'acme', 'a', 't', 'outbound', '+14155550123', '+14155550123', 'wh', '{}', '{}', 0,"
    """ 'COMPLETED', 'FINISHED', 1, 1, 2, '[{"text": "hello"}]')""",
    "INSERT INTO outbox (event_id, company_id, call_id, sequence, kind, body, created_at_ms)"
    " VALUES ('evt_1', 'acme', 'call-1', 1, 'call.queued', '{}', 1)",
)


@pytest.mark.parametrize("engine", DATABASES)
async def test_calls_of_an_earlier_release_are_kept_swept_and_erased(tmp_path: Path, engine: str) -> None:
    with database_on(engine) as url:
        old: Db
        if url:
            old = await Postgres.open(url)
            await old.write(lambda tx: tx.run("DROP SCHEMA public CASCADE"))
            await old.write(lambda tx: tx.run("CREATE SCHEMA public"))
        else:
            old = await Sqlite.open(tmp_path / "old.db")
        await old.write(lambda tx: migrate(tx, [step for step in migrations(SCHEMA) if step[0] <= BEFORE]))
        await old.write(lambda tx: [tx.run(statement) for statement in ROWS])
        await old.close()
        async with await Store.open(url or f"sqlite:///{tmp_path}/old.db", tmp_path) as store:
            call = await record_of(store, "call-1")
            assert call.transcript == [{"text": "hello"}]
            assert await store.sweep("acme", Kept.TRANSCRIPTS, days=1) == 1
            assert await store.sweep("acme", Kept.EVENTS, days=1) == 1
            erasure = await store.erase("acme", Subject(call_id="call-1"), key_id="key")
            assert (erasure.calls, erasure.open_calls) == (1, 0)
