"""The PostgreSQL server that the tests of a run share, in all its processes, and databases that they use one
after the other."""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Composable, Identifier

from bench.support.cluster import FASTER, Cluster

GROWN_BYTES = 1 << 20
"""A database that has grown by more is not used again: its tables are not what a planner meets at first."""

_SHAPE = """
SELECT count(*), sum(attrelid::bigint),
    sum(hashtext(attrelid::regclass || attname || atttypid || attnotnull)),
    (SELECT count(*) FROM pg_constraint), (SELECT count(*) FROM pg_trigger), (SELECT count(*) FROM pg_proc),
    (SELECT count(*) FROM pg_index)
FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid WHERE relnamespace = 'public'::regnamespace
"""
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
_AT_FIRST = "SELECT setval(seqrelid::regclass, seqstart, false) FROM pg_sequence"
_REFILL = "INSERT INTO {} OVERRIDING SYSTEM VALUE SELECT * FROM json_populate_recordset(NULL::{}, {})"
_SIZE = "SELECT pg_database_size(current_database())"
_OTHERS = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"


_NAMED = "TESTS_POSTGRES"
"""The environment variable with the file that names the server's folder, in a run of several processes."""


@functools.cache
def shared() -> Cluster:
    """The server: of all processes of a parallel run, the first of which starts it, else of this one."""
    if _NAMED not in os.environ:
        cluster = _started()
        atexit.register(cluster.remove)
        return cluster
    with open(os.environ[_NAMED], "a+") as named:
        fcntl.flock(named, fcntl.LOCK_EX)
        named.seek(0)
        if folder := named.read():
            return Cluster(runs_in=Path(folder))
        cluster = _started()
        named.write(str(cluster.folder))
        return cluster


def _started() -> Cluster:
    cluster = Cluster(**FASTER, max_connections="500")
    cluster.prepare_template()
    return cluster


def share_among_processes(named: Path) -> None:
    """Lets the processes that this one starts share a server, whose folder the file `named` will name."""
    named.unlink(missing_ok=True)
    os.environ[_NAMED] = str(named)


def remove_shared() -> None:
    """Removes the server that the processes shared, if any of them has started it."""
    named = Path(os.environ.pop(_NAMED))
    if named.exists() and (folder := named.read_text()):
        Cluster(runs_in=Path(folder)).remove()
    named.unlink(missing_ok=True)


@contextmanager
def database() -> Iterator[str]:
    """The URL of a migrated database without rows, which nobody else uses. To empty it takes a tenth of the
    time of `CREATE DATABASE`, so that the next one gets it, by another name: a client of this one that has
    stayed does not find it."""
    url = _emptied.pop() if _emptied else shared().new_database()
    try:
        yield url
    finally:
        if _empty(url):
            _emptied.append(_renamed(url))
        else:
            shared().drop(url)


_emptied: list[str] = []


class _Template:
    """What a migrated database is like before anything is written: its shape, its size, and the statements
    that bring it back to its rows."""

    def __init__(self) -> None:
        url = shared().new_database()
        with psycopg.connect(url, autocommit=True) as connection:
            self.shape = connection.execute(_SHAPE).fetchone()
            self.bytes = connection.execute(_SIZE).fetchall()[0][0]
            self.emptying = SQL(";").join(self._statements(connection)).as_string(connection)
        shared().drop(url)

    def _statements(self, connection: psycopg.Connection) -> Iterator[Composable]:
        yield SQL("SET session_replication_role = replica")  # keys of other tables are not asked
        for (name,) in connection.execute(_TABLES).fetchall():
            table = Identifier(name)
            yield SQL("DELETE FROM {}").format(table)
            rows = connection.execute(SQL("SELECT json_agg(t)::text FROM {} t").format(table)).fetchall()[0][
                0
            ]
            if rows is not None:
                yield SQL(_REFILL).format(table, table, rows)
        yield SQL(_AT_FIRST)


_template = functools.cache(_Template)


def _empty(url: str) -> bool:
    """Removes all rows that a migration has not written, with whoever is connected. False where the tables
    are others, or have grown."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_OTHERS + " AND pid <> pg_backend_pid()", (connection.info.dbname,))
        if connection.execute(_SHAPE).fetchone() != _template().shape:
            return False
        connection.execute(_template().emptying.encode())
        return bool(connection.execute(_SIZE).fetchall()[0][0] < _template().bytes + GROWN_BYTES)


def _renamed(url: str) -> str:
    old, new = url.removeprefix("postgresql:///").partition("?")[0], f"t{uuid.uuid4().hex[:12]}"
    shared().execute(f"ALTER DATABASE {old} RENAME TO {new}")
    return shared().url(new)
