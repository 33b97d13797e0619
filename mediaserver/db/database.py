"""SQL written once, run by a driver: `mediaserver.db.sqlite` or `mediaserver.db.postgres`.

Work on the database is a plain function of a transaction, `work(tx) -> result`, run as a whole or not at all,
on a thread of the driver; it may be run again after it was undone, so it touches nothing else. Five tokens
keep the text the same for every engine: `{now}` (the database's clock, in milliseconds since 1970 UTC),
`{lock}` and `{skip_locked}` (row locks, waiting for those of others or passing them by; where an engine has
one writer anyway, nothing), `{serial}` (an ascending identity column) and `{identity}` (of the engine that
the database is in, see `mediaserver.queue.history`; where an engine has none, ''). Values are named,
`:like_this`.

Rows are locked in one order, so that waiting never goes in circles: company, call, batch.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from mediaserver.db.sqlite import Sqlite, version_of_file
from mediaserver.errors import InvalidRequest, LocalError, SchemaTooNew, StoreError
from mediaserver.files import private

T = TypeVar("T")

SCHEMA = Path(__file__).with_name("schema")


class Row(Protocol):
    """One row of a result, by column name."""

    def __getitem__(self, column: str, /) -> Any:
        """Returns the value in `column`."""


class Record(Protocol):
    """A dataclass whose fields are named as columns."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


AnyRecord = TypeVar("AnyRecord", bound=Record)


def read_row(kind: type[AnyRecord], row: Row, **converted: Any) -> AnyRecord:
    """Makes a `kind` of `row`: each field is the column of its name, where `converted` does not give it."""
    names = (field.name for field in fields(kind) if field.name not in converted)
    return kind(**{name: row[name] for name in names}, **converted)


def values_of(record: Record, **converted: Any) -> dict[str, Any]:
    """Returns the fields of `record` as a statement binds them, the reverse of `read_row`: truths as numbers,
    mappings and lists as JSON. `converted`: values in place of fields and beside them."""
    values = {field.name: getattr(record, field.name) for field in fields(record)} | converted
    return {name: _bound(value) for name, value in values.items()}


def _bound(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_listed)


def _listed(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else sorted(value)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list; `cursor` asks for the next page, "" on the last."""

    items: tuple[T, ...]
    cursor: str


PAGE_LIMIT = 200
"""The most items on a page."""


def check_limit(limit: int) -> None:
    """Raises `LocalError` for a number of items that a page cannot have."""
    if not 1 <= limit <= PAGE_LIMIT:
        raise LocalError(f"limit must lie between 1 and {PAGE_LIMIT}")


def page_of(rows: Sequence[Row], limit: int, read: Callable[[Row], T], *, place: str = "position") -> Page[T]:
    """Makes a page of `limit` rows; where there is one row more, another page follows the last row's
    `place`."""
    shown = rows[:limit]
    return Page(tuple(map(read, shown)), str(shown[-1][place]) if len(rows) > limit else "")


class Tx(Protocol):
    """A transaction in progress; valid only inside the `work` function that received it."""

    def rows(self, sql: str, **values: Any) -> Sequence[Row]:
        """Runs a statement and returns all its rows."""

    def row(self, sql: str, **values: Any) -> Row | None:
        """Runs a statement and returns its first row, None for none."""

    def run(self, sql: str, **values: Any) -> int:
        """Runs a statement and returns how many rows it changed."""

    def fingerprint(self, text: str) -> str:
        """Returns the HMAC-SHA-256 of `text` under `Db.secret`: nothing to guess the text by without it."""

    def lock_schema(self) -> None:
        """Lets nobody else change the schema until the end of the transaction."""


class Db(Protocol):
    """A database. `write` and `read` raise `StoreError`, and whatever `work` raises, in which case nothing is
    written. `secret`: the key of `Tx.fingerprint`, a random one until the installation's is set."""

    secret: bytes

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Runs `work` in a transaction; returns after it is on disk."""

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Runs `work`, which only reads, on one consistent state."""

    async def scrub(self) -> None:
        """Takes what was deleted out of the database's own log, where the engine lets its clients do so.
        Raises `StoreError`."""

    async def close(self) -> None:
        """Finishes the work in progress; later calls raise `StoreUnavailable`. Closing again does nothing."""


async def open_database(url: str, data_dir: Path) -> Db:
    """Opens the database at `url`, migrated to the newest schema; an SQLite file is made if there is none.
    `url`: `sqlite:///relative/path`, `sqlite:////absolute/path`, `postgresql://user@host/name`, or "" for an
    SQLite file in `data_dir`. Raises `StoreError`."""
    db: Db
    if is_postgres(url):
        # The driver is imported where it is used: 0.15 s of every start.
        postgres = await asyncio.to_thread(resolve_name, "mediaserver.db.postgres:Postgres")
        db = await postgres.open(url)
    else:
        path = sqlite_path(url, data_dir)
        await asyncio.to_thread(_create, path)
        db = await Sqlite.open(path)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(db.close)
        await db.write(bring_up_to_date)
        undo.pop_all()
    return db


async def schema_version(url: str, data_dir: Path) -> int:
    """Returns the schema version of the database at `url` without changing anything, 0 where there is none
    yet. Raises `StoreError`."""
    if not is_postgres(url):
        return await asyncio.to_thread(version_of_file, sqlite_path(url, data_dir))
    postgres = await asyncio.to_thread(resolve_name, "mediaserver.db.postgres:Postgres")
    db: Db = await postgres.open(url)
    try:
        return await db.read(_version)
    finally:
        await db.close()


def _version(tx: Tx) -> int:
    table = tx.row("SELECT to_regclass('schema_version') IS NOT NULL AS there")
    if table is None or not table["there"]:
        return 0
    row = tx.row("SELECT COALESCE(MAX(version), 0) AS version FROM schema_version")
    return int(row["version"]) if row is not None else 0


def is_postgres(url: str) -> bool:
    """Whether `url` names a database on a PostgreSQL server."""
    return url.startswith(("postgresql://", "postgres://"))


def bring_up_to_date(tx: Tx) -> None:
    """Migrates to the newest schema; nodes that start together migrate one after the other."""
    tx.lock_schema()
    migrate(tx, migrations(SCHEMA))


def _create(path: Path) -> None:
    """Makes the file and its folder. It holds what people said on the phone: for nobody else's eyes (the WAL
    files take the same mode, those of a file that was open to others do not)."""
    try:
        path.parent.mkdir(mode=private.FOLDER_MODE, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, private.FILE_MODE))
        for part in (path, *(path.with_name(path.name + ending) for ending in ("-wal", "-shm"))):
            private.close(part, private.FILE_MODE)
    except OSError as error:
        raise StoreError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def sqlite_path(url: str, data_dir: Path) -> Path:
    """Returns the file path in a `sqlite:` URL. Raises `StoreError` for another scheme."""
    if not url:
        return data_dir / "mediaserver.db"
    scheme, separator, path = url.partition(":///")
    if scheme != "sqlite" or not separator or not path:
        raise StoreError(f'{scheme}: a database is "sqlite:///PATH" or "postgresql://USER@HOST/NAME"')
    return Path(path)


def migrations(folder: Path) -> list[tuple[int, str, str]]:
    """Returns number, name and SQL of every `NNN_name.sql` in `folder`, in order."""
    found = []
    for path in sorted(folder.glob("[0-9][0-9][0-9]_*.sql")):
        number, _, name = path.stem.partition("_")
        found.append((int(number), name, path.read_text(encoding="utf-8")))
    return found


def migrate(tx: Tx, steps: Sequence[tuple[int, str, str]]) -> None:
    """Applies those of `steps` that are newer than the schema, and records each in `schema_version`. Raises
    `SchemaTooNew`."""
    tx.run(
        "CREATE TABLE IF NOT EXISTS schema_version"
        " (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at_ms BIGINT NOT NULL)"
    )
    row = tx.row("SELECT COALESCE(MAX(version), 0) AS version FROM schema_version")
    have = row["version"] if row is not None else 0
    newest = steps[-1][0]
    if have > newest:
        raise SchemaTooNew(
            f"the database has schema version {have}, this program knows versions up to {newest}:"
            " run the newer program, or go back to a copy of the database from before the upgrade"
        )
    for number, name, text in steps:
        if number > have:
            for statement in statements(text):
                tx.run(statement)
            tx.run(
                "INSERT INTO schema_version (version, name, applied_at_ms) VALUES (:number, :name, {now})",
                number=number,
                name=name,
            )


def statements(text: str) -> list[str]:
    """Splits the SQL of a migration into statements: comments are whole lines, a statement ends with ";" at
    the end of a line."""
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";\n") if part.strip().rstrip(";")]


def among(column: str, values: Collection[str]) -> tuple[str, dict[str, str]]:
    """Returns an SQL condition for rows whose `column` is one of `values`, and the values that it binds, by
    names of that column. Without values the condition is ""."""
    if not values:
        return "", {}
    stem = column.replace(".", "_")
    bound = {f"{stem}_{number}": value for number, value in enumerate(sorted(values))}
    return f" AND {column} IN ({', '.join(f':{name}' for name in bound)})", bound


def position_of(cursor: str) -> int:
    """Returns the position that the cursor of a page stands for, 0 for "". Raises `InvalidRequest`."""
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
        raise InvalidRequest("Invalid cursor")
    return int(cursor)
