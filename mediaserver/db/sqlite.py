"""The SQLite driver: one thread that writes, one that reads, and nothing of either on the event loop.

SQLite has one writer at a time whatever one does, so there is one thread for it, and what is waiting when it
comes round is committed together: each piece of work in its own savepoint, one fsync for all
(`synchronous=FULL`: what was acknowledged survives a power cut). That is what lets a few hundred small
transactions a second through a disk that syncs a hundred times. WAL lets the reading thread see the last
committed state meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import queue
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlite_utils import Database

from mediaserver.db.values import storable
from mediaserver.errors import LocalError, StoreError, StoreUnavailable

T = TypeVar("T")

log = logging.getLogger(__name__)

OLDEST = (3, 35, 0)
"""The oldest version: the first with RETURNING."""

WAITING_LIMIT = 10_000
"""The most pieces of work that may wait, some ten seconds of a slow disk; further ones raise
`StoreUnavailable`."""

TOGETHER = 64
"""The most pieces of work in one commit: more gains nothing, and one bad page would undo more with it."""

BUSY_MS = 5000
"""How long another program's lock is waited for."""

_TOKENS = {
    "{now}": "now_ms()",
    "{identity}": "''",
    "{lock}": "",
    "{skip_locked}": "",
    "{serial}": "INTEGER PRIMARY KEY AUTOINCREMENT",
}

_PRIMARY = 0xFF
"""Extended result codes carry the primary one in their low byte."""

_TEMPORARY = {
    sqlite3.SQLITE_BUSY: "is locked by another program",
    sqlite3.SQLITE_LOCKED: "is locked by another program",
    sqlite3.SQLITE_FULL: "has no room: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk fails",
    sqlite3.SQLITE_READONLY: "may not be written",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_NOMEM: "has no memory",
    sqlite3.SQLITE_PROTOCOL: "is locked by another program",
}
_LASTING = {
    sqlite3.SQLITE_CORRUPT: "is damaged: restore it from a copy",
    sqlite3.SQLITE_NOTADB: "is not a database",
}


def clock_ms() -> int:
    """Returns the machine's clock in milliseconds since 1970 UTC, which processes that share a file share as
    well."""
    return time.time_ns() // 1_000_000


class SqliteTx:
    """A transaction on an sqlite3 connection, a `mediaserver.db.database.Tx`."""

    __slots__ = ("_connection", "_secret")

    def __init__(self, connection: sqlite3.Connection, secret: bytes) -> None:
        self._connection = connection
        self._secret = secret

    def rows(self, sql: str, **values: Any) -> list[Any]:
        """Runs a statement and returns all its rows."""
        return self._connection.execute(_translated(sql), storable(values)).fetchall()

    def row(self, sql: str, **values: Any) -> Any:
        """Runs a statement and returns its first row, None for none. Fetches all rows: SQLite completes a
        statement with RETURNING only then."""
        return next(iter(self.rows(sql, **values)), None)

    def run(self, sql: str, **values: Any) -> int:
        """Runs a statement and returns how many rows it changed."""
        return self._connection.execute(_translated(sql), storable(values)).rowcount

    def fingerprint(self, text: str) -> str:
        """Returns the HMAC-SHA-256 of `text` under the database's secret."""
        return hmac.digest(self._secret, text.encode(), "sha256").hex()

    def lock_schema(self) -> None:
        """Does nothing: SQLite runs one writing transaction at a time."""


@lru_cache(maxsize=1024)
def _translated(sql: str) -> str:
    """Returns `sql` as SQLite takes it."""
    for token, meaning in _TOKENS.items():
        sql = sql.replace(token, meaning)
    return sql


class _Work:
    """One piece of work, and the future of whoever waits for it."""

    __slots__ = ("error", "function", "future", "result")

    def __init__(self, function: Callable[[SqliteTx], Any]) -> None:
        self.function = function
        self.future: Future[Any] = Future()
        self.result: Any = None
        self.error: Exception | None = None

    def run(self, tx: SqliteTx) -> None:
        """Does the work; its result waits for the commit."""
        self.result = self.function(tx)

    def settle(self, error: Exception | None) -> None:
        """Sets the future to the result or the error. `error`: the commit's, None when it went through."""
        error = error or self.error
        if error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(error)


class Sqlite:
    """A database file; see `mediaserver.db.database.Db`. Made by `Sqlite.open`."""

    def __init__(self, path: Path, *, clock: Callable[[], int] = clock_ms, busy_ms: int = BUSY_MS) -> None:
        self.secret = secrets.token_bytes(32)
        self._path = path
        self._clock = clock
        self._busy_ms = busy_ms
        self._waiting: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_until_closed, name="sqlite-writer", daemon=True)
        self._reader = ThreadPoolExecutor(1, "sqlite-reader")
        self._opened: Future[None] = Future()
        self._read_connection: sqlite3.Connection | None = None
        self._write_connection: sqlite3.Connection | None = None
        self._closed = False

    @classmethod
    async def open(cls, path: Path, *, clock: Callable[[], int] = clock_ms, busy_ms: int = BUSY_MS) -> Self:
        """Opens the file at `path`, which is made if there is none. `clock` gives the milliseconds of
        `{now}`. Raises `StoreError`."""
        if sqlite3.sqlite_version_info < OLDEST:
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old: 3.35 or newer is needed")
        db = cls(path, clock=clock, busy_ms=busy_ms)
        db._writer.start()
        async with contextlib.AsyncExitStack() as undo:
            undo.push_async_callback(db.close)
            await asyncio.wrap_future(db._opened)
            await db._on_reader(db._open_reader)
            undo.pop_all()
        return db

    async def write(self, work: Callable[[SqliteTx], T]) -> T:
        """Runs `work` in a transaction on the writing thread; returns after the commit. Raises
        `StoreError`."""
        item = _Work(work)
        if self._closed:
            raise StoreUnavailable(f"{self._path}: the database is closed")
        if self._waiting.qsize() >= WAITING_LIMIT:
            raise StoreUnavailable(f"{self._path}: too much is waiting to be written")
        self._waiting.put(item)
        result: T = await asyncio.wrap_future(item.future)
        return result

    async def read(self, work: Callable[[SqliteTx], T]) -> T:
        """Runs `work`, which only reads, on one consistent state. Raises `StoreError`."""
        if self._closed:
            raise StoreUnavailable(f"{self._path}: the database is closed")
        return await self._on_reader(lambda: self._read(work))

    async def scrub(self) -> None:
        """Empties the log of earlier writes, in which what was deleted still stands. Raises `StoreError`."""

        def checkpoint() -> None:
            if self._read_connection is not None:
                self._read_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        try:
            await self._on_reader(checkpoint)
        except sqlite3.Error as error:
            raise self._translated(error) from error

    async def close(self) -> None:
        """Finishes the work in progress; later calls raise `StoreUnavailable`."""
        if self._closed:
            return
        self._closed = True
        self._waiting.put(None)
        await asyncio.to_thread(self._writer.join)
        await self._on_reader(self._close_reader)
        self._reader.shutdown()

    # On the writing thread ----------------------------------------------------------------------------------

    def _write_until_closed(self) -> None:
        failure = _failure_of(self._open_writer)
        if failure is not None:
            self._opened.set_exception(self._translated(failure))
            return
        self._opened.set_result(None)
        going = True
        while going:
            batch, going = self._next_batch()
            if batch:
                self._write(batch)
        if self._write_connection is not None:
            self._write_connection.close()

    def _open_writer(self) -> None:
        self._write_connection = self._connect()

    def _write(self, batch: list[_Work]) -> None:
        """Commits a batch. Drops the connection where its transaction could not be undone: the next batch
        makes another."""
        failure = _failure_of(lambda: self._commit_together(batch))
        if failure is not None:
            failure = self._translated(failure)
            self._write_connection = _rolled_back(self._write_connection)
        for item in batch:
            item.settle(failure)

    def _next_batch(self) -> tuple[list[_Work], bool]:
        """Returns the waiting work, at least one piece unless the database closes, and whether to go on after
        it."""
        item = self._waiting.get()
        batch: list[_Work] = []
        while item is not None:
            if item.future.set_running_or_notify_cancel():
                batch.append(item)
            if len(batch) == TOGETHER:
                return batch, True
            try:
                item = self._waiting.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _commit_together(self, batch: list[_Work]) -> None:
        if self._write_connection is None:
            self._write_connection = self._connect_again()
        connection = self._write_connection
        connection.execute("BEGIN IMMEDIATE")
        for item in batch:
            self._run_in_savepoint(connection, item)
        connection.execute("COMMIT")

    def _run_in_savepoint(self, connection: sqlite3.Connection, item: _Work) -> None:
        """Runs one piece of work. Its own errors undo only itself; the database's errors undo the whole
        batch."""
        connection.execute("SAVEPOINT work")
        error = _failure_of(lambda: item.run(SqliteTx(connection, self.secret)))
        if error is not None:
            if _code(error) in _TEMPORARY or _code(error) in _LASTING or not connection.in_transaction:
                raise error
            connection.execute("ROLLBACK TO work")
            item.error = self._translated(error)
        connection.execute("RELEASE work")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=self._busy_ms / 1000, isolation_level=None)
        with contextlib.ExitStack() as undo:
            undo.callback(connection.close)
            connection.row_factory = sqlite3.Row
            connection.create_function("now_ms", 0, self._clock)
            Database(connection, execute_plugins=False).enable_wal()
            for pragma in ("synchronous = FULL", "foreign_keys = ON", "secure_delete = ON"):
                connection.execute(f"PRAGMA {pragma}")
            undo.pop_all()
        return connection

    def _connect_again(self) -> sqlite3.Connection:
        """Connects as `_connect`, but makes no new file where the old one is gone."""
        if not self._path.is_file():
            raise StoreUnavailable(f"{self._path} cannot be opened")
        return self._connect()

    def _translated(self, error: Exception) -> Exception:
        """Translates an error of SQLite: `StoreError` for the database's fault, `LocalError` for the caller's
        (SQL, values, constraints)."""
        if not isinstance(error, sqlite3.Error):
            return error
        code = _code(error)
        translated: Exception
        if code in _TEMPORARY:
            translated = StoreUnavailable(f"{self._path} {_TEMPORARY[code]}")
        elif code in _LASTING:
            translated = StoreError(f"{self._path} {_LASTING[code]}")
        else:
            translated = LocalError(f"{self._path} refused the work: {error}")
        translated.__cause__ = error
        return translated

    # On the reading thread ----------------------------------------------------------------------------------

    async def _on_reader(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reader, function)

    def _open_reader(self) -> None:
        connection = self._connect()
        connection.execute("PRAGMA query_only = ON")
        self._read_connection = connection

    def _reopen_reader(self) -> None:
        """Opens another connection after one whose transaction could not be undone."""
        if self._closed:
            return
        try:
            self._open_reader()
        except sqlite3.Error as error:
            raise self._translated(error) from error

    def _close_reader(self) -> None:
        if self._read_connection is not None:
            self._read_connection.close()
            self._read_connection = None

    def _read(self, work: Callable[[SqliteTx], T]) -> T:
        if self._read_connection is None:
            self._reopen_reader()
        connection = self._read_connection
        if connection is None:
            raise StoreUnavailable(f"{self._path}: the database is closed")
        try:
            connection.execute("BEGIN")
            return work(SqliteTx(connection, self.secret))
        except sqlite3.Error as error:
            raise self._translated(error) from error
        finally:
            self._read_connection = _rolled_back(connection)


def version_of_file(path: Path) -> int:
    """Returns the schema version of a database file without changing it, 0 where there is none. Raises
    `StoreError`."""
    if not path.is_file():
        return 0
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            there = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_version'").fetchone()
            if there is None:
                return 0
            (version,) = database.execute("SELECT COALESCE(MAX(version), 0) FROM schema_version").fetchone()
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {error}") from error
    return int(version)


def _failure_of(run: Callable[[], None]) -> Exception | None:
    """Returns what `run` raises on the writing thread, which goes on; None for nothing."""
    try:
        run()
    except Exception as error:
        return error
    return None


def _rolled_back(connection: sqlite3.Connection | None) -> sqlite3.Connection | None:
    """Returns the connection without a transaction; None where the rollback failed and the connection was
    closed."""
    try:
        if connection is not None and connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error:
        log.exception("connection given up: its transaction could not be undone")
        with contextlib.suppress(sqlite3.Error):
            if connection is not None:
                connection.close()
        return None
    return connection


def _code(error: Exception) -> int:
    """SQLite's primary result code, 0 for an error that is not SQLite's."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY
