"""`mediaserver keys create`, `list`, `revoke`: API keys, past the API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click

from mediaserver.cli.config import config_option, load_or_exit
from mediaserver.errors import MediaServerError
from mediaserver.settings import Settings
from mediaserver.store.managed import KeyInfo
from mediaserver.store.store import Store

T = TypeVar("T")


@click.group()
def keys() -> None:
    """Creates, lists and revokes API keys."""


@keys.command()
@config_option
@click.option("--company", required=True, help="The id of the company that the key is for.")
@click.option("--scope", "scopes", required=True, help="Comma-separated: calls,web-calls,speech,admin.")
def create(config: str, company: str, scopes: str) -> None:
    """Makes a key and prints it, once: it is not stored and cannot be shown again."""
    settings = load_or_exit(config, engines=False, writes=True)
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]

    async def created(store: Store) -> str:
        if settings.company(company) is not None:
            await store.sync_file(settings)  # the server may never have run with this file
        return await store.create_key(company, wanted)

    click.echo(_in_store(settings, created))


@keys.command("list")
@config_option
@click.option("--company", default="", help="Only the keys of this company.")
def list_(config: str, company: str) -> None:
    """Lists the keys, by company: the id that `revoke` takes, scopes, when they were made and last used."""
    settings = load_or_exit(config, engines=False)
    found = _in_store(settings, lambda store: store.every_key(company))
    rows: list[tuple[str, ...]] = [
        ("id", "company", "scopes", "name", "made by", "created", "last used", "expires")
    ]
    rows += [_row(each) for each in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(map(str.ljust, row, widths)).rstrip())


@keys.command()
@config_option
@click.argument("key_id", metavar="ID")
def revoke(config: str, key_id: str) -> None:
    """Deletes the key of that id. A running server asks the database at every request: the next one with this
    key is refused. A key that the file names is revoked there, and with SIGHUP."""
    settings = load_or_exit(config, engines=False)
    company = _in_store(settings, lambda store: store.revoke_any_key(key_id))
    if not company:
        raise click.ClickException(f"there is no key {key_id!r}")
    click.echo(f"{key_id} of {company} is revoked")


def _in_store(settings: Settings, work: Callable[[Store], Awaitable[T]]) -> T:
    """Does `work` in the database; what that refuses ends the command with its reason."""

    async def done() -> T:
        async with await Store.open(settings.server.database, Path(settings.server.data_dir)) as store:
            return await work(store)

    try:
        return asyncio.run(done())
    except MediaServerError as error:
        raise click.ClickException(str(error)) from None


def _row(key: KeyInfo) -> tuple[str, ...]:
    scopes = ",".join(sorted(key.scopes)) + (f" for {len(key.agents)} agents" if key.agents else "")
    by = "file" if key.from_file else "API"
    times = (key.created_at_ms, key.last_used_at_ms, key.expires_at_ms)
    return (key.id, key.company_id, scopes, key.name or "-", by, *map(_when, times))


def _when(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M}" if at_ms else "-"
