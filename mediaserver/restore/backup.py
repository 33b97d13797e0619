"""Copies what a node keeps while it serves, and puts a copy back.

```
COPY/mediaserver.db     the database on SQLite, one consistent state (SQLite's backup API)
COPY/mediaserver.dump   or on PostgreSQL, `pg_dump --format=custom`, of one snapshot
COPY/secret.key         which opens what is managed over the API, unless `server.secret_key` is set
COPY/recordings/        if asked for
```

A node's notes of whom it dialled are never part of a copy: put back, they would hide what was dialled
since."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from mediaserver.db.database import is_postgres, sqlite_path
from mediaserver.errors import LocalError
from mediaserver.files import private
from mediaserver.settings import ServerSettings, reveal

DATABASE = "mediaserver.db"
DUMP = "mediaserver.dump"
SECRET = "secret.key"
NOTES = "dialled"


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied, or put back. `lost_notes`: this node does not know whom it has dialled."""

    database: Path
    recordings: int = 0
    lost_notes: bool = False


def back_up(server: ServerSettings, into: Path, *, recordings: bool) -> Copied:
    """Copies the database at `server.database` and its key, with `recordings` those of this node, to the new
    folder `into`, which is there only when the copy is whole. Raises `LocalError`."""
    data_dir, into = Path(server.data_dir), into.absolute()
    partial = into.with_name(f"{into.name}.partial")
    if into.exists() or partial.exists():
        raise LocalError(f"{into if into.exists() else partial}: there is one already")
    with _told(into):
        partial.mkdir(mode=private.FOLDER_MODE, parents=True)
    with contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, partial, ignore_errors=True)
        with _told(partial):
            database = _copy_database(server, data_dir, partial)
            if not reveal(server.secret_key) and (data_dir / SECRET).is_file():
                _copy(data_dir / SECRET, partial / SECRET)
            count = (
                _copy_all(data_dir / private.RECORDINGS, partial / private.RECORDINGS) if recordings else 0
            )
            _sync(partial)
            partial.rename(into)
            _sync(into.parent)
        undo.pop_all()
    return Copied(into / database.name, count)


def put_back(server: ServerSettings, copy: Path) -> Copied:
    """Puts the copy `copy` in place of the database at `server.database`. On SQLite the one that is there is
    moved aside, to a folder beside it; so is another key. Raises `LocalError`: for one that a server has
    open, a damaged copy, and one of another engine; the database that was there then stays."""
    data_dir = Path(server.data_dir)
    source = copy / (DUMP if is_postgres(server.database) else DATABASE)
    if not source.is_file():
        raise LocalError(f"{source}: there is no such copy")
    with _told(copy):
        private.make_folder(data_dir)
        if is_postgres(server.database):
            _replace_tables(server.database, source)
        else:
            _replace_database(sqlite_path(server.database, data_dir), source)
        _replace_secret(data_dir, copy / SECRET)
        count = _copy_all(copy / private.RECORDINGS, data_dir / private.RECORDINGS)
    return Copied(source, count, lost_notes=not any(_files(data_dir / NOTES)))


def _copy_database(server: ServerSettings, data_dir: Path, into: Path) -> Path:
    if is_postgres(server.database):
        _run("pg_dump", server.database, ["--format=custom", f"--file={into / DUMP}"])
        return into / DUMP
    source = sqlite_path(server.database, data_dir)
    if not source.is_file():
        raise LocalError(f"{source}: there is no database")
    target = into / DATABASE
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, private.FILE_MODE))
    with (
        contextlib.closing(sqlite3.connect(source)) as serving,
        contextlib.closing(sqlite3.connect(target)) as made,
    ):
        serving.backup(made)  # in one step: one state, and nobody who writes meanwhile is waited for
        made.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        (verdict,) = made.execute("PRAGMA quick_check").fetchone()
    if verdict != "ok":
        raise LocalError(f"{source}: the copy is damaged: {verdict}")
    return target


def _replace_database(database: Path, source: Path) -> None:
    """Has the copy on the disk of the database before it touches that."""
    made = database.with_name(f"{database.name}.restored")
    with contextlib.ExitStack() as undo:
        undo.callback(made.unlink, missing_ok=True)
        _copy(source, made)
        _check_whole(made, source)
        if database.exists():
            _check_alone(database)
            aside = _folder_aside(database.parent)
            for part in (f"{database.name}-wal", f"{database.name}-shm", database.name):
                with contextlib.suppress(FileNotFoundError):
                    database.with_name(part).rename(aside / part)
        made.rename(database)
    _sync(database.parent)


def _check_whole(database: Path, source: Path) -> None:
    """Raises `LocalError` where a copy is no database, or a damaged one."""
    try:
        with contextlib.closing(sqlite3.connect(database)) as made:
            (verdict,) = made.execute("PRAGMA quick_check").fetchone()
            known = made.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_version'").fetchone()
    except sqlite3.DatabaseError as error:
        raise LocalError(f"{source}: {error}") from None
    if verdict != "ok" or known is None:
        raise LocalError(f"{source}: the copy is damaged: {verdict if verdict != 'ok' else 'no schema'}")


def _replace_secret(data_dir: Path, source: Path) -> None:
    """Puts the copy's key back; another one that is there is moved aside with what it opens."""
    there = data_dir / SECRET
    if not source.is_file() or (there.is_file() and there.read_bytes() == source.read_bytes()):
        return
    if there.is_file():
        there.rename(_folder_aside(data_dir) / SECRET)
    _copy(source, there)


def _folder_aside(folder: Path) -> Path:
    aside = folder / f"before-restore-{time.time_ns()}"
    aside.mkdir(mode=private.FOLDER_MODE)
    return aside


def _check_alone(database: Path) -> None:
    """Raises `LocalError` where another program has the database open: SQLite then keeps its log."""
    with contextlib.closing(sqlite3.connect(database, timeout=1.0)) as connection:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        except sqlite3.OperationalError:
            mode = ""
        except sqlite3.DatabaseError:  # damaged: that is what a copy is for
            return
    if mode != "delete":
        raise LocalError(f"{database}: a server has it open: stop it first")


# A table that is newer than the copy goes too: it refers to one of the copy's, and a migration makes it anew.
_DROP = b"""BEGIN;
DO $$ DECLARE one regclass; BEGIN
    FOR one IN SELECT c.oid FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace
        AND c.relkind IN ('r', 'p')
        AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
    LOOP EXECUTE format('DROP TABLE IF EXISTS %s CASCADE', one); END LOOP;
END $$;
"""


def _replace_tables(url: str, source: Path) -> None:
    """Puts a dump in place of all tables in one transaction, which is over only when the whole dump is in."""
    connect, environment = _connection(url)
    client = ["psql", connect, "--no-password", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]
    with tempfile.TemporaryFile() as said, _installed(client[0]):
        psql = subprocess.Popen(
            client, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said
        )
        with psql, contextlib.suppress(BrokenPipeError):  # it says why it has ended
            assert psql.stdin is not None
            with psql.stdin as script, _installed("pg_restore"):
                script.write(_DROP)
                script.flush()
                command = ["pg_restore", "--no-owner", "--file=-", str(source)]
                done = subprocess.run(command, stdout=script, stderr=said, check=False)
                script.write(b"COMMIT;\n" if done.returncode == 0 else b"ROLLBACK;\n")
        if psql.returncode or done.returncode:
            said.seek(0)
            why = said.read().decode(errors="replace").strip()
            raise LocalError(f"{source}: {why or 'psql and pg_restore failed'}")


def _run(program: str, url: str, arguments: Sequence[str]) -> None:
    """Runs a program of PostgreSQL's on the database `url`."""
    connect, environment = _connection(url)
    command = [program, connect, "--no-password", *arguments]
    with _installed(program):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"{program}: {done.stderr.strip() or done.returncode}")


def _connection(url: str) -> tuple[str, dict[str, str]]:
    """Returns the option and the environment for a program of PostgreSQL's; the password goes through the
    environment, where other users do not see it."""
    try:
        where = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.Error as error:
        raise LocalError(f"server.database: {error}") from None
    password = where.pop("password", None)
    environment = {**os.environ, **({"PGPASSWORD": password} if password else {})}
    return f"--dbname={make_conninfo(**where)}", environment


@contextlib.contextmanager
def _installed(program: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise LocalError(f"{program} is not installed (Debian: postgresql-client)") from None


def _copy_all(source: Path, target: Path) -> int:
    """Copies the files of a folder that `target` does not have; returns how many."""
    count = 0
    for path in _files(source):
        if not target.is_dir():
            target.mkdir(mode=private.FOLDER_MODE)
            _give(target, like=target.parent)
        with contextlib.suppress(FileNotFoundError):  # erased meanwhile
            if not (target / path.name).exists():
                _copy(path, target / path.name)
                count += 1
    return count


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if path.is_file())


def _copy(source: Path, target: Path) -> None:
    """Copies a file, for its owner alone, through a file beside the target."""
    partial = target.with_name(f"{target.name}.partial")
    with source.open("rb") as octets, partial.open("wb") as made:
        os.fchmod(made.fileno(), private.FILE_MODE)
        _give(made.fileno(), like=target.parent)
        shutil.copyfileobj(octets, made)
        made.flush()
        os.fsync(made.fileno())
    partial.replace(target)


def _give(made: int | Path, *, like: Path) -> None:
    """Gives what root has made to the owner of the folder `like`, who has to read it."""
    if os.geteuid() == 0:
        owner = like.stat()
        os.chown(made, owner.st_uid, owner.st_gid)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Raises `LocalError` for a fault of the disk or of SQLite."""
    try:
        yield
    except sqlite3.Error as error:
        raise LocalError(f"{path}: {error}") from error
    except OSError as error:
        raise LocalError(f"{error.filename or path}: {(error.strerror or str(error)).lower()}") from error
