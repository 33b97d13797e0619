"""A store on a file of its own, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mediaserver.db import SCHEMA, Tx, migrate, migrations
from mediaserver.records import CallRow, NewCall
from mediaserver.settings import Settings
from mediaserver.sqlite import Sqlite
from mediaserver.store import Store

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


def settings(*companies: dict[str, Any], **tables: Any) -> Settings:
    """A configuration with these companies and nothing else."""
    return Settings.model_validate({"company": list(companies) or [company("acme")], **tables}, by_alias=True)


@asynccontextmanager
async def opened(path: Path, clock: Clock, configured: Settings | None = None) -> AsyncIterator[Store]:
    """A store in the folder `path`."""
    db = await Sqlite.open(path / "test.db", clock=clock, busy_ms=200)

    def ready(tx: Tx) -> None:
        migrate(tx, migrations(SCHEMA))

    await db.write(ready)
    async with Store(db) as store:
        await store.sync_file(configured if configured is not None else settings())
        yield store


def new_call(number: str = "+966500000001", **changes: Any) -> NewCall:
    """A call of acme's."""
    values: dict[str, Any] = {
        "company_id": "acme",
        "agent_id": AGENT,
        "trunk_id": "carrier",
        "phone_number": number,
        "dial_number": number,
        "webhook_id": "wh-1",
        **changes,
    }
    return NewCall(**values)


async def queued(store: Store, count: int, company_id: str = "acme") -> list[CallRow]:
    """`count` calls in the queue."""
    numbers = [f"+9665{place:08d}" for place in range(count)]
    return [await store.enqueue(new_call(number, company_id=company_id)) for number in numbers]


async def query(path: Path, sql: str, **values: Any) -> list[dict[str, Any]]:
    """Rows of the database in the folder `path`, past the store."""
    db = await Sqlite.open(path / "test.db")
    try:
        return await db.read(lambda tx: [dict(row) for row in tx.rows(sql, **values)])
    finally:
        await db.close()
