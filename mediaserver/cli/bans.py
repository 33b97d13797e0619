"""`mediaserver bans list` and `lift`: addresses that a running server answers no SIP of."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import click

from mediaserver.admin.sealing import kept_admin_key
from mediaserver.cli.config import config_option, load_or_exit
from mediaserver.errors import LocalError

BANS = "/api/v1/sip/bans"
TIMEOUT_S = 30


@click.group()
def bans() -> None:
    """Lists and lifts the bans of SIP strangers, through the running server and its admin key."""


@bans.command("list")
@config_option
def list_(config: str) -> None:
    """Lists the banned addresses (of IPv6 networks), what is banned of each, and for how long yet."""
    found = _asked(config, "GET", BANS)["bans"]
    for each in found:
        what = "datagrams" if each["transport"] == "udp" else "connections"
        click.echo(f"{each['address']}  {what}  {each['leftS']:.0f} s")
    if not found:
        click.echo("no address is banned")


@bans.command()
@config_option
@click.argument("address")
def lift(config: str, address: str) -> None:
    """Ends the bans of ADDRESS now (IPv6: of its /64). The server's log and audit log note it."""
    _asked(config, "DELETE", f"{BANS}/{quote(address, safe='')}")
    click.echo(f"{address} is banned no more")


def _asked(config: str, method: str, path: str) -> dict[str, Any]:
    settings = load_or_exit(config, engines=False)
    try:
        key = kept_admin_key(Path(settings.server.data_dir), settings.server)
    except LocalError as error:
        raise click.ClickException(str(error)) from None
    if not key:
        raise click.ClickException(
            "server.admin_key: the file has none, and bans are for the server's own key"
        )
    try:
        return asyncio.run(_ask(f"http://{settings.server.http}", key, method, path))
    except (aiohttp.ClientError, TimeoutError) as error:
        raise click.ClickException(f"cannot reach the server: {error or 'timed out'}") from None


async def _ask(url: str, key: str, method: str, path: str) -> dict[str, Any]:
    headers, timeout = {"Authorization": f"Bearer {key}"}, aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with (
        aiohttp.ClientSession(url, headers=headers, timeout=timeout) as http,
        http.request(method, path) as answer,
    ):
        content: dict[str, Any] = await answer.json(content_type=None)
        if answer.status != 200:
            raise click.ClickException(content.get("error", str(answer.reason)))
        return content
