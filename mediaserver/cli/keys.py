"""`mediaserver keys create`, `list`, `revoke`: API keys, past the API."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from mediaserver.cli.config import config_option, load_or_exit
from mediaserver.errors import MediaServerError
from mediaserver.settings import Settings
from mediaserver.store.managed import KeyInfo
from mediaserver.store.store import Store


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
    try:
        click.echo(asyncio.run(_create_key(settings, company, wanted)))
    except MediaServerError as error:
        raise click.ClickException(str(error)) from None


@keys.command("list")
@config_option
@click.option("--company", default="", help="Only the keys of this company.")
def list_(config: str, company: str) -> None:
    """Lists the keys, by company: the id that `revoke` takes, scopes, when they were made and last used."""
    settings = load_or_exit(config, engines=False)
    try:
        found = asyncio.run(_all_keys(settings, company))
    except MediaServerError as error:
        raise click.ClickException(str(error)) from None
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
    try:
        company = asyncio.run(_revoke(settings, key_id))
    except MediaServerError as error:
        raise click.ClickException(str(error)) from None
    if not company:
        raise click.ClickException(f"there is no key {key_id!r}")
    click.echo(f"{key_id} of {company} is revoked")


async def _create_key(settings: Settings, company: str, scopes: list[str]) -> str:
    async with await _store(settings) as store:
        if settings.company(company) is not None:
            await store.sync_file(settings)  # the server may never have run with this file
        return await store.create_key(company, scopes)


async def _all_keys(settings: Settings, company: str) -> Sequence[KeyInfo]:
    async with await _store(settings) as store:
        return await store.every_key(company)


async def _revoke(settings: Settings, key_id: str) -> str:
    async with await _store(settings) as store:
        return await store.revoke_any_key(key_id)


async def _store(settings: Settings) -> Store:
    return await Store.open(settings.server.database, Path(settings.server.data_dir))


def _row(key: KeyInfo) -> tuple[str, ...]:
    scopes = ",".join(sorted(key.scopes)) + (f" for {len(key.agents)} agents" if key.agents else "")
    by = "file" if key.from_file else "API"
    times = (key.created_at_ms, key.last_used_at_ms, key.expires_at_ms)
    return (key.id, key.company_id, scopes, key.name or "-", by, *map(_when, times))


def _when(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M}" if at_ms else "-"
