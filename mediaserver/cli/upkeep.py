"""`mediaserver backup`, `restore`, `migrate`: the database past the server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from mediaserver.cli.config import config_option, load_or_exit
from mediaserver.db.database import SCHEMA, migrations, open_database, schema_version, statements
from mediaserver.errors import MediaServerError
from mediaserver.restore.backup import back_up, put_back
from mediaserver.settings import Settings
from mediaserver.store.store import Store

_data_option = click.option("--data", type=click.Path(file_okay=False), help="Instead of server.data_dir.")


@click.command()
@config_option
@_data_option
@click.option("--to", required=True, type=click.Path(path_type=Path), help="A new folder for the copy.")
@click.option("--recordings", is_flag=True, help="Copy the recordings of this node as well.")
def backup(config: str, data: str | None, to: Path, recordings: bool) -> None:
    """Copies the database and its key while the server runs: SQLite by its backup API, PostgreSQL by
    pg_dump. The configuration file is not part of the copy."""
    settings = load_or_exit(config, data, engines=False)
    try:
        copied = back_up(settings.server, to, recordings=recordings)
    except MediaServerError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{copied.database}: {copied.database.stat().st_size} bytes")
    if recordings:
        click.echo(f"{copied.recordings} recordings")


@click.command()
@config_option
@_data_option
@click.option("--from", "copy", type=click.Path(path_type=Path), help="The copy to put back first.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def restore(config: str, data: str | None, copy: Path | None, yes: bool) -> None:
    """Puts a copy back (--from), with the servers stopped; they then compare it with their notes of whom they
    dialled. Where a node's notes are lost, or without --from, ends every call UNKNOWN that may have been
    dialled since the copy was made. Nodes that are gone for good are not waited for."""
    settings = load_or_exit(config, data, engines=False)
    doubted = copy is None
    try:
        if copy is not None:
            if not yes:
                click.confirm(f"The database is replaced by that of {copy}. Go on?", abort=True)
            put = put_back(settings.server, copy)
            click.echo(f"{put.database} is put back, with {put.recordings} recordings")
            doubted = put.lost_notes
        if doubted:
            _doubt(settings, yes=yes)
    except MediaServerError as error:
        raise click.ClickException(str(error)) from None


def _doubt(settings: Settings, *, yes: bool) -> None:
    if not yes:
        click.confirm(
            "Every call that is due or under way ends UNKNOWN and is never dialled. Go on?", abort=True
        )
    click.echo(f"{asyncio.run(_doubted(settings))} calls are UNKNOWN now")


async def _doubted(settings: Settings) -> int:
    async with await Store.open(settings.server.database, Path(settings.server.data_dir)) as store:
        return await store.doubt()


@click.command()
@config_option
@_data_option
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
def migrate(config: str, data: str | None, dry_run: bool) -> None:
    """Brings the database to the schema of this version, as the start of a server does."""
    settings = load_or_exit(config, data, engines=False, writes=not dry_run)
    try:
        asyncio.run(_migrate(settings, dry_run=dry_run))
    except MediaServerError as error:
        raise click.ClickException(str(error)) from None


async def _migrate(settings: Settings, *, dry_run: bool) -> None:
    url, data_dir = settings.server.database, Path(settings.server.data_dir)
    steps = migrations(SCHEMA)
    have = await schema_version(url, data_dir)
    click.echo(f"schema version {have} is there, {steps[-1][0]} is this program's")
    for number, name, text in steps:
        if number > have:
            click.echo(f"{number:03} {name}")
            for statement in statements(text) if dry_run else ():
                click.echo(f"    {statement.replace(chr(10), f'{chr(10)}    ')}")
    if not dry_run:
        await (await open_database(url, data_dir)).close()
