"""Keys, copies and migrations on the command line, as an operator types them."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from mediaserver.db.database import SCHEMA, Tx, migrate, migrations, open_database, schema_version
from mediaserver.db.sqlite import Sqlite
from tests.support.command_line import mediaserver
from tests.support.node.node import DATABASES, KEY, Site, bearer, database_on, rows_of, running, write_site

BEFORE, NEWEST = (number for number, _, _ in migrations(SCHEMA)[-2:])


@pytest.fixture(params=DATABASES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with database_on(request.param) as database:
        yield write_site(tmp_path, database=database)


async def test_a_key_that_is_revoked_is_refused_at_the_next_request(site: Site) -> None:
    created = await asyncio.to_thread(
        mediaserver, "keys", "create", "--config", site.path, "--company", "acme", "--scope", "calls"
    )
    key = created.stdout.strip()
    async with running(site) as (_, client):

        async def asked() -> int:
            async with client.get("/api/v1/calls", headers=bearer(key)) as answer:
                return answer.status

        assert await asked() == 200
        listed = await asyncio.to_thread(mediaserver, "keys", "list", "--config", site.path)
        rows = [line.split() for line in listed.stdout.splitlines()]
        assert key not in listed.stdout
        (own,) = [row[0] for row in rows if row[1:3] == ["acme", "calls"] and "API" in row]
        revoked = await asyncio.to_thread(mediaserver, "keys", "revoke", "--config", site.path, own)
        assert (revoked.returncode, revoked.stdout) == (0, f"{own} of acme is revoked\n")
        assert await asked() == 401
    noted = await rows_of(site, "SELECT key_id, operation, subject FROM audit")
    assert noted[-1] == {"key_id": "command line", "operation": "revokeKey", "subject": own}


async def test_a_key_of_the_file_is_revoked_in_the_file(site: Site) -> None:
    async with running(site) as (_, client):
        listed = await asyncio.to_thread(
            mediaserver, "keys", "list", "--config", site.path, "--company", "acme"
        )
        rows = [line.split() for line in listed.stdout.splitlines()[1:]]
        assert {row[1] for row in rows} == {"acme"}
        refused = [
            await asyncio.to_thread(mediaserver, "keys", "revoke", "--config", site.path, each[0])
            for each in rows
        ]
        assert {each.returncode for each in refused} == {1}
        assert "managed by the configuration file" in refused[0].stderr
        async with client.get("/api/v1/calls", headers=bearer(KEY)) as answer:
            assert answer.status == 200
    unknown = await asyncio.to_thread(mediaserver, "keys", "revoke", "--config", site.path, "key_none")
    assert (unknown.returncode, "there is no key 'key_none'" in unknown.stderr) == (1, True)


# Migrations -------------------------------------------------------------------------------------------------


def test_a_dry_run_on_nothing_makes_nothing(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    done = mediaserver("migrate", "--config", site.path, "--dry-run")
    assert done.returncode == 0
    assert done.stdout.splitlines()[:2] == [
        f"schema version 0 is there, {NEWEST} is this program's",
        "001 first",
    ]
    assert not site.data_dir.exists()


async def test_a_dry_run_says_what_the_next_start_does_to_an_older_file(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    site.data_dir.mkdir()
    path = site.data_dir / "mediaserver.db"
    older = await Sqlite.open(path)
    await older.write(lambda tx: migrate(tx, migrations(SCHEMA)[:-2]))
    await older.close()
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    said = await asyncio.to_thread(mediaserver, "migrate", "--config", site.path, "--dry-run")
    assert [line[:3] for line in said.stdout.splitlines()[1:] if line[0] != " "] == [
        f"{number:03}" for number, _, _ in migrations(SCHEMA)[-2:]
    ]
    assert any(line.startswith("    ") for line in said.stdout.splitlines())
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert (await asyncio.to_thread(mediaserver, "migrate", "--config", site.path)).returncode == 0
    said = await asyncio.to_thread(mediaserver, "migrate", "--config", site.path, "--dry-run")
    assert said.stdout == f"schema version {NEWEST} is there, {NEWEST} is this program's\n"


async def test_a_dry_run_on_postgresql_changes_nothing(tmp_path: Path) -> None:
    with database_on("postgresql") as url:
        site = write_site(tmp_path, database=url)
        db = await open_database(url, tmp_path)
        await db.write(lambda tx: tx.run("DELETE FROM schema_version WHERE version = :last", last=NEWEST))
        await db.close()
        said = await asyncio.to_thread(mediaserver, "migrate", "--config", site.path, "--dry-run")
        assert said.stdout.splitlines()[0] == (
            f"schema version {BEFORE} is there, {NEWEST} is this program's"
        )
        assert said.stdout.splitlines()[1].startswith(f"{NEWEST:03} ")
        again = await asyncio.to_thread(mediaserver, "migrate", "--config", site.path, "--dry-run")
        assert again.stdout == said.stdout


# Copies -----------------------------------------------------------------------------------------------------


async def test_a_copy_has_the_key_of_what_is_sealed_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    site, copy = write_site(tmp_path), tmp_path / "copies" / "one"
    async with running(site):
        pass
    recordings = site.data_dir / "recordings"
    (recordings / "one.wav").write_bytes(b"RIFF")
    done = await asyncio.to_thread(mediaserver, "backup", "--config", site.path, "--to", copy)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in copy.iterdir()} == {"mediaserver.db", "secret.key"}
    assert (copy / "secret.key").read_bytes() == (site.data_dir / "secret.key").read_bytes()
    assert {stat.S_IMODE(path.stat().st_mode) for path in copy.iterdir()} == {0o600}
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    again = await asyncio.to_thread(mediaserver, "backup", "--config", site.path, "--to", copy)
    assert (again.returncode, "there is one already" in again.stderr) == (1, True)
    with_sound = tmp_path / "copies" / "two"
    done = await asyncio.to_thread(
        mediaserver, "backup", "--config", site.path, "--to", with_sound, "--recordings"
    )
    assert done.stdout.splitlines()[-1] == "1 recordings"
    assert (with_sound / "recordings" / "one.wav").read_bytes() == b"RIFF"


def test_a_copy_of_nothing_leaves_nothing(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    done = mediaserver("backup", "--config", site.path, "--to", tmp_path / "copy")
    assert (done.returncode, "there is no database" in done.stderr) == (1, True)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("copy")]


async def test_what_a_copy_replaces_is_moved_aside_with_its_key(tmp_path: Path) -> None:
    site, copy = write_site(tmp_path), tmp_path / "copy"
    async with running(site):
        pass
    done = await asyncio.to_thread(mediaserver, "backup", "--config", site.path, "--to", copy)
    assert done.returncode == 0, done.stderr
    (site.data_dir / "secret.key").write_bytes(b"another")
    done = await asyncio.to_thread(mediaserver, "restore", "--config", site.path, "--from", copy, "--yes")
    assert done.returncode == 0, done.stderr
    assert (site.data_dir / "secret.key").read_bytes() == (copy / "secret.key").read_bytes()
    aside = {path.name for folder in site.data_dir.glob("before-restore-*") for path in folder.iterdir()}
    assert aside == {"mediaserver.db", "secret.key"}
    async with running(site) as (_, client), client.get("/readyz") as answer:
        assert answer.status == 200


def test_a_copy_that_is_none_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    done = mediaserver("restore", "--config", site.path, "--from", tmp_path / "none", "--yes")
    assert (done.returncode, "there is no such copy" in done.stderr) == (1, True)
    assert not site.data_dir.exists()


@pytest.mark.parametrize("damage", ["cut", "foreign", "full disk"])
async def test_a_copy_that_cannot_be_put_back_leaves_the_database_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    site, copy = write_site(tmp_path), tmp_path / "copy"
    async with running(site):
        pass
    done = await asyncio.to_thread(mediaserver, "backup", "--config", site.path, "--to", copy)
    assert done.returncode == 0, done.stderr
    database, source = site.data_dir / "mediaserver.db", copy / "mediaserver.db"
    before = database.read_bytes()
    if damage == "cut":
        os.truncate(source, source.stat().st_size // 2)
    elif damage == "foreign":
        source.write_bytes(b"no database " * 1000)
    else:
        monkeypatch.setattr(shutil, "copyfileobj", full)
    done = await asyncio.to_thread(mediaserver, "restore", "--config", site.path, "--from", copy, "--yes")
    assert (done.returncode, done.stderr.startswith("Error: ")) == (1, True)
    assert database.read_bytes() == before
    assert not [*site.data_dir.glob("before-restore-*"), *site.data_dir.glob("*.restored")]


def full(*files: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_what_root_puts_back_is_for_the_owner_of_the_data(tmp_path: Path) -> None:
    site, copy = write_site(tmp_path), tmp_path / "copy"
    async with running(site):
        pass
    (site.data_dir / "recordings" / "one.wav").write_bytes(b"RIFF")
    back_up = ("backup", "--config", site.path, "--to", copy, "--recordings")
    assert (await asyncio.to_thread(mediaserver, *back_up)).returncode == 0
    shutil.rmtree(site.data_dir / "recordings")
    os.chown(site.data_dir, 10001, 10001)
    done = await asyncio.to_thread(mediaserver, "restore", "--config", site.path, "--from", copy, "--yes")
    assert done.returncode == 0, done.stderr
    put_back = ("mediaserver.db", "recordings", "recordings/one.wav")
    assert {(site.data_dir / name).stat().st_uid for name in put_back} == {10001}


async def test_a_copy_of_before_an_upgrade_is_put_back_and_upgraded_again(tmp_path: Path) -> None:
    with database_on("postgresql") as url:
        site, copy = write_site(tmp_path, database=url), tmp_path / "copy"
        db = await open_database(url, tmp_path)
        await db.write(_without_search)
        await db.close()
        done = await asyncio.to_thread(mediaserver, "backup", "--config", site.path, "--to", copy)
        assert done.returncode == 0, done.stderr
        assert (await asyncio.to_thread(mediaserver, "migrate", "--config", site.path)).returncode == 0
        dump = (copy / "mediaserver.dump").read_bytes()
        (copy / "mediaserver.dump").write_bytes(dump[: len(dump) * 2 // 3])
        restore = ("restore", "--config", site.path, "--from", copy, "--yes")
        done = await asyncio.to_thread(mediaserver, *restore)
        assert (done.returncode, done.stderr.startswith("Error: ")) == (1, True)
        assert await schema_version(url, tmp_path) == NEWEST, "a cut copy changes nothing"
        (copy / "mediaserver.dump").write_bytes(dump)
        done = await asyncio.to_thread(mediaserver, *restore)
        assert done.returncode == 0, done.stderr
        assert await rows_of(site, "SELECT COUNT(*) AS many FROM call_search") == [{"many": 0}]


def _without_search(tx: Tx) -> None:
    for table in ("call_search", "passed_over"):
        tx.run(f"DROP TABLE {table}")
    for index in ("of_agent", "of_number", "of_batch"):
        tx.run(f"DROP INDEX calls_{index}")
    tx.run("DELETE FROM schema_version WHERE version >= 13")
