"""A store of the test's own, on every engine, with a clock that the test moves."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from mediaserver.db.database import Db, bring_up_to_date, open_database
from mediaserver.db.postgres import Postgres
from mediaserver.db.sqlite import Sqlite
from mediaserver.queue.records import CallRecord, CallRow, NewCall, NewInboundCall
from mediaserver.settings import Settings
from mediaserver.store.store import Store
from tests.support.node import postgres

ENGINES = ("sqlite", "postgresql")
AGENT = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"
TTL_MS = 30_000
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Clock:
    """Milliseconds since 1970, moved by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now_ms

    def advance(self, duration_ms: int) -> None:
        """Lets time pass."""
        self.now_ms += duration_ms


def company(name: str, *, concurrent: int = 20, webhooks: tuple[str, ...] = ()) -> dict[str, Any]:
    """A [[company]] with one key, and webhooks at the given URLs."""
    return {
        "id": name,
        "max_concurrent_calls": concurrent,
        "country": "SA",
        "key": [{"key": f"{name}-calls-key", "scopes": ["calls", "speech"]}],
        "webhook": [{"url": url, "secret": SECRET} for url in webhooks],
    }


def agent_of(company_id: str) -> str:
    """The id of the company's agent."""
    return AGENT if company_id == "acme" else str(uuid.uuid5(uuid.NAMESPACE_DNS, company_id))


def trunk_of(company_id: str) -> str:
    """The id of the company's trunk."""
    return "carrier" if company_id == "acme" else f"carrier-{company_id}"


def agent(company_id: str = "acme", **changes: Any) -> dict[str, Any]:
    """An [[agent]] that calls over its company's trunk."""
    return {
        "id": agent_of(company_id),
        "company": company_id,
        "trunk": trunk_of(company_id),
        "script": {"start": "a"},
        **changes,
    }


def trunk(company_id: str = "acme", **changes: Any) -> dict[str, Any]:
    """A [[trunk]] of the company."""
    return {"id": trunk_of(company_id), "company": company_id, "uri": "sip:127.0.0.1", **changes}


def settings(*companies: dict[str, Any], **tables: Any) -> Settings:
    """A configuration with these companies, and a trunk and an agent for each unless `tables` names some."""
    listed = list(companies) or [company("acme")]
    names = [each["id"] for each in listed]
    document = {
        "company": listed,
        "trunk": [trunk(name) for name in names],
        "agent": [agent(name) for name in names],
        **tables,
    }
    return Settings.model_validate(document, by_alias=True)


_URLS: dict[Path, str] = {}
"""The databases of tests that run on PostgreSQL, by the test's folder."""


@contextmanager
def on_engine(engine: str, path: Path) -> Iterator[None]:
    """Puts what `opened` and `query` find in the folder `path` on an engine."""
    if engine == "sqlite":
        yield
        return
    with postgres.database() as _URLS[path]:
        try:
            yield
        finally:
            del _URLS[path]


def url_of(path: Path) -> str:
    """How a configuration names the database in the folder `path`."""
    return _URLS.get(path) or f"sqlite:///{path}/test.db"


async def open_at(url: str) -> Db:
    """The database at `url`."""
    return await open_database(url, Path())


async def open_db(path: Path, clock: Clock | None = None) -> Db:
    """The database in the folder `path`."""
    if path in _URLS:
        return await Postgres.open(_URLS[path], clock=clock)
    if clock is None:
        return await Sqlite.open(path / "test.db")
    return await Sqlite.open(path / "test.db", clock=clock, busy_ms=200)


@asynccontextmanager
async def opened(path: Path, clock: Clock, configured: Settings | None = None) -> AsyncIterator[Store]:
    """A store in the folder `path`."""
    db = await open_db(path, clock)
    await db.write(bring_up_to_date)
    async with Store(db) as store:
        await store.sync_file(configured if configured is not None else settings())
        yield store


def new_call(number: str = "+966500000001", **changes: Any) -> NewCall:
    """A call of acme's, or of `company_id`."""
    company_id = changes.get("company_id", "acme")
    values: dict[str, Any] = {
        "company_id": company_id,
        "agent_id": agent_of(company_id),
        "trunk_id": trunk_of(company_id),
        "phone_number": number,
        "dial_number": number,
        "webhook_id": "wh-1",
        **changes,
    }
    return NewCall(**values)


def new_inbound(number: str = "+966500000009", **changes: Any) -> NewInboundCall:
    """A call of somebody to acme."""
    values: dict[str, Any] = {
        "company_id": "acme",
        "agent_id": AGENT,
        "trunk_id": "carrier",
        "phone_number": number,
        "called_number": "+966110000000",
        "webhook_id": "wh-1",
        **changes,
    }
    return NewInboundCall(**values)


async def record_of(store: Store, call_id: str) -> CallRecord:
    """The record of a call of acme's, which is there."""
    record = await store.call("acme", call_id)
    assert record is not None
    return record


async def queued(store: Store, count: int, company_id: str = "acme") -> list[CallRow]:
    """`count` calls in the queue."""
    numbers = [f"+9665{place:08d}" for place in range(count)]
    return [await store.enqueue(new_call(number, company_id=company_id)) for number in numbers]


async def query(path: Path, sql: str, **values: Any) -> list[dict[str, Any]]:
    """Rows of the database in the folder `path`, past the store."""
    return await rows_in(open_db(path), sql, **values)


async def rows_in(opening: Awaitable[Db], sql: str, **values: Any) -> list[dict[str, Any]]:
    """Rows of the database that is being opened, and is closed again."""
    db = await opening
    try:
        return await db.read(lambda tx: [_as_dict(row) for row in tx.rows(sql, **values)])
    finally:
        await db.close()


def _as_dict(row: Any) -> dict[str, Any]:
    return dict(row)


async def everything(path: Path) -> bytes:
    """All that the database in the folder `path` holds: SQLite's files as they are, PostgreSQL's rows."""
    if path not in _URLS:
        return b"".join(file.read_bytes() for file in sorted(path.glob("test.db*")))  # noqa: ASYNC240
    tables = await query(path, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    rows = [await query(path, f"SELECT t::text AS row FROM {each['tablename']} t") for each in tables]
    return json.dumps(rows, ensure_ascii=False).encode()
