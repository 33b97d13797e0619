"""The database underneath: what is acknowledged is there, what fails is whole, and why is said clearly."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mediaserver.db.database import (
    SCHEMA,
    Tx,
    migrate,
    migrations,
    open_database,
    sqlite_path,
    statements,
)
from mediaserver.db.sqlite import Sqlite
from mediaserver.errors import LocalError, SchemaTooNew, StoreError, StoreUnavailable


def create(tx: Tx) -> None:
    tx.run("CREATE TABLE t (id {serial}, word TEXT NOT NULL UNIQUE, at_ms BIGINT NOT NULL)")


def words(tx: Tx) -> list[str]:
    return [row["word"] for row in tx.rows("SELECT word FROM t ORDER BY id")]


async def test_what_was_written_is_there_for_another_process(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    db = await Sqlite.open(path)
    await db.write(create)
    await db.write(lambda tx: tx.run("INSERT INTO t (word, at_ms) VALUES ('here', {now})"))
    script = f"import sqlite3; print(sqlite3.connect({str(path)!r}).execute('SELECT word FROM t').fetchall())"
    seen = await asyncio.to_thread(subprocess.check_output, [sys.executable, "-c", script], text=True)
    assert seen.strip() == "[('here',)]"
    await db.close()


async def test_the_file_is_durable_and_private(tmp_path: Path) -> None:
    db = await open_database(f"sqlite:///{tmp_path}/deep/er/x.db", tmp_path)
    journal = await db.read(lambda tx: [row["journal_mode"] for row in tx.rows("PRAGMA journal_mode")])
    synchronous = await db.write(lambda tx: [row["synchronous"] for row in tx.rows("PRAGMA synchronous")])
    await db.close()
    assert (journal, synchronous) == (["wal"], [2])
    assert stat.S_IMODE((tmp_path / "deep/er/x.db").stat().st_mode) == 0o600


async def test_work_that_fails_leaves_nothing_and_hurts_nobody(tmp_path: Path) -> None:
    db = await Sqlite.open(tmp_path / "x.db")
    await db.write(create)

    def half(tx: Tx) -> None:
        tx.run("INSERT INTO t (word, at_ms) VALUES ('half', 0)")
        raise KeyError("half way")

    def wrong(tx: Tx) -> None:
        tx.run("INSERT INTO nowhere VALUES (1)")

    def good(word: str) -> asyncio.Future[int]:
        return asyncio.ensure_future(
            db.write(lambda tx: tx.run("INSERT INTO t (word, at_ms) VALUES (:word, 0)", word=word))
        )

    # All are waiting when the thread comes round, so they share a commit.
    async with asyncio.timeout(20):
        results = await asyncio.gather(
            good("one"),
            db.write(half),
            good("two"),
            good("two"),
            db.write(wrong),
            good("three"),
            return_exceptions=True,
        )
    assert [type(result) for result in results] == [int, KeyError, int, LocalError, LocalError, int]
    assert await db.read(words) == ["one", "two", "three"]
    await db.close()


async def test_a_reader_cannot_write(tmp_path: Path) -> None:
    db = await Sqlite.open(tmp_path / "x.db")
    await db.write(create)
    with pytest.raises(StoreError):
        await db.read(lambda tx: tx.run("INSERT INTO t (word, at_ms) VALUES ('no', 0)"))
    assert await db.read(words) == []
    await db.close()


async def test_the_clock_is_the_databases(tmp_path: Path) -> None:
    db = await Sqlite.open(tmp_path / "x.db", clock=lambda: 12345)
    rows = await db.read(lambda tx: [row["at"] for row in tx.rows("SELECT {now} AS at")])
    assert rows == [12345]
    await db.close()


async def test_a_database_that_another_program_holds_is_said_to_be_locked(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    db = await Sqlite.open(path, busy_ms=50)
    await db.write(create)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"x\.db is locked by another program"):
        await db.write(lambda tx: tx.run("INSERT INTO t (word, at_ms) VALUES ('a', 0)"))
    other.execute("ROLLBACK")
    other.close()
    await db.write(lambda tx: tx.run("INSERT INTO t (word, at_ms) VALUES ('b', 0)"))
    assert await db.read(words) == ["b"]
    await db.close()


async def test_a_full_disk_is_said_to_be_full_and_what_was_there_stays(tmp_path: Path) -> None:
    db = await Sqlite.open(tmp_path / "x.db")
    await db.write(create)
    await db.write(lambda tx: tx.run("INSERT INTO t (word, at_ms) VALUES ('before', 0)"))
    await db.write(lambda tx: tx.rows("PRAGMA max_page_count = 1"))
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        await db.write(
            lambda tx: tx.run("INSERT INTO t (word, at_ms) VALUES (:word, 0)", word="x" * 1_000_000)
        )
    await db.write(lambda tx: tx.rows("PRAGMA max_page_count = 1000000"))
    await db.write(lambda tx: tx.run("INSERT INTO t (word, at_ms) VALUES ('after', 0)"))
    assert await db.read(words) == ["before", "after"]
    await db.close()


def cannot_be_undone(tx: Tx) -> None:
    """Work that fails as on a failing disk, in a transaction that does not let itself be rolled back."""
    connection: sqlite3.Connection = tx._connection  # type: ignore[attr-defined]
    connection.set_authorizer(no_rollback)
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    raise error


def no_rollback(action: int, verb: str | None, *_: object) -> int:
    refused = action == sqlite3.SQLITE_TRANSACTION and verb == "ROLLBACK"
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK


def half_written(tx: Tx) -> None:
    tx.run("INSERT INTO t (word, at_ms) VALUES ('half', 0)")
    cannot_be_undone(tx)


@pytest.mark.parametrize("verb", ["write", "read"])
async def test_a_rollback_that_fails_ends_neither_thread(tmp_path: Path, verb: str) -> None:
    db = await Sqlite.open(tmp_path / "x.db")
    await db.write(create)
    async with asyncio.timeout(30):
        with pytest.raises(StoreUnavailable, match="the disk fails"):
            await (db.write(half_written) if verb == "write" else db.read(cannot_be_undone))
        await db.write(lambda tx: tx.run("INSERT INTO t (word, at_ms) VALUES ('after', 0)"))
        assert await db.read(words) == ["after"]
    await db.close()


async def test_a_database_that_cannot_be_opened_again_says_so_until_it_can(tmp_path: Path) -> None:
    db = await Sqlite.open(tmp_path / "x.db")
    await db.write(create)
    with pytest.raises(StoreUnavailable):
        await db.write(half_written)
    path, moved = tmp_path / "x.db", tmp_path / "y.db"
    path.rename(moved)
    path.mkdir()
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await db.write(lambda tx: tx.run("INSERT INTO t (word, at_ms) VALUES ('lost', 0)"))
    path.rmdir()
    moved.rename(path)
    await db.write(lambda tx: tx.run("INSERT INTO t (word, at_ms) VALUES ('after', 0)"))
    assert await db.read(words) == ["after"]
    await db.close()


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"this is a letter to my aunt " * 200)
    with pytest.raises(StoreError, match=r"x\.db is not a database"):
        await open_database(f"sqlite:///{path}", tmp_path)
    assert path.read_bytes().startswith(b"this is a letter")


async def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.db").mkdir()
    with pytest.raises(StoreError, match=r"x\.db: is a directory"):
        await open_database(f"sqlite:///{tmp_path}/x.db", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        await open_database(f"sqlite:///{tmp_path}/file/x.db", tmp_path)


async def test_a_closed_database_says_so_and_closes_twice(tmp_path: Path) -> None:
    db = await Sqlite.open(tmp_path / "x.db")
    last = asyncio.ensure_future(db.write(create))
    await asyncio.sleep(0)
    await db.close()
    await last
    await db.close()
    with pytest.raises(StoreUnavailable, match="is closed"):
        await db.write(create)
    with pytest.raises(StoreUnavailable, match="is closed"):
        await db.read(words)


async def test_work_whose_asker_went_away_is_not_half_done(tmp_path: Path) -> None:
    db = await Sqlite.open(tmp_path / "x.db")
    await db.write(create)
    asker = asyncio.ensure_future(db.write(lambda tx: tx.run("INSERT INTO t (word, at_ms) VALUES ('a', 0)")))
    await asyncio.sleep(0)
    asker.cancel()
    await asyncio.gather(asker, return_exceptions=True)
    await db.write(lambda tx: tx.run("INSERT INTO t (word, at_ms) VALUES ('b', 0)"))
    assert await db.read(words) in (["b"], ["a", "b"])
    await db.close()


# Migrations -------------------------------------------------------------------------------------------------


async def test_a_new_database_has_the_newest_schema_and_opening_again_changes_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        db = await open_database("", tmp_path)
        versions = await db.read(
            lambda tx: [
                row["version"] for row in tx.rows("SELECT version FROM schema_version ORDER BY version")
            ]
        )
        assert versions == [number for number, _, _ in migrations(SCHEMA)]
        await db.close()
    assert (tmp_path / "mediaserver.db").exists()


async def test_a_database_of_a_newer_program_is_left_alone(tmp_path: Path) -> None:
    db = await open_database("", tmp_path)
    await db.write(lambda tx: tx.run("INSERT INTO schema_version VALUES (999, 'future', 0)"))
    await db.close()
    with pytest.raises(SchemaTooNew, match="version 999"):
        await open_database("", tmp_path)


async def test_a_migration_that_fails_half_way_leaves_the_old_schema(tmp_path: Path) -> None:
    db = await Sqlite.open(tmp_path / "x.db")
    steps = [
        (1, "one", "CREATE TABLE a (x TEXT);\n"),
        (2, "two", "CREATE TABLE b (x TEXT);\nCREATE TABLE a (y TEXT);\n"),
    ]
    await db.write(lambda tx: migrate(tx, steps[:1]))
    with pytest.raises(LocalError, match="already exists"):
        await db.write(lambda tx: migrate(tx, steps))
    tables = await db.read(
        lambda tx: {row["name"] for row in tx.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
    )
    assert tables == {"a", "schema_version"}
    await db.close()


def test_statements_end_at_a_semicolon_and_comments_are_no_part_of_them() -> None:
    text = "-- about; it\nCREATE TABLE a (\n  x TEXT\n);\n\n-- next\nINSERT INTO a VALUES (';');\n"
    assert statements(text) == ["CREATE TABLE a (\n  x TEXT\n)", "INSERT INTO a VALUES (';');"]


def test_migrations_are_numbered_without_a_gap() -> None:
    numbers = [number for number, _, _ in migrations(SCHEMA)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_urls_lead_to_files(tmp_path: Path) -> None:
    assert sqlite_path("", tmp_path) == tmp_path / "mediaserver.db"
    assert sqlite_path("sqlite:///var/x.db", tmp_path) == Path("var/x.db")
    assert sqlite_path("sqlite:////srv/x.db", tmp_path) == Path("/srv/x.db")
    with pytest.raises(StoreError, match="a database is"):
        sqlite_path("mysql://somebody@host/db", tmp_path)
