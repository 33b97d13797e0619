"""Databases for servers of tests, on every engine that a configuration can name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mediaserver.db.database import open_database
from tests.support.node import postgres
from tests.support.node.server import Site

DATABASES = ("sqlite", "postgresql")


@contextmanager
def database_on(engine: str) -> Iterator[str]:
    """What `write_site` takes as its `database`: "" for SQLite's own, else a new one on the shared server."""
    if engine == "sqlite":
        yield ""
        return
    url = postgres.shared().new_database()
    try:
        yield url
    finally:
        postgres.shared().drop(url)


async def rows_of(site: Site, sql: str, **values: Any) -> list[dict[str, Any]]:
    """Rows of the site's database, past the server."""
    db = await open_database(site.database, Path(site.data_dir))
    try:
        return await db.read(lambda tx: [_as_dict(row) for row in tx.rows(sql, **values)])
    finally:
        await db.close()


def _as_dict(row: Any) -> dict[str, Any]:
    return dict(row)
