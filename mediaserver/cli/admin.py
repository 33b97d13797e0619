"""`mediaserver check`, `doctor`, `call`, `keys create`, `restore`: what an operator does beside running the
server."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from pkgutil import resolve_name

import click

from mediaserver.cli.call import CallRefused, place_and_follow
from mediaserver.cli.config import config_option, load_or_exit
from mediaserver.cli.given import pairs
from mediaserver.cli.kernels import compile_visibly
from mediaserver.errors import MediaServerError
from mediaserver.settings import Settings, reveal
from mediaserver.store.store import Store


@click.command()
@config_option
def check(config: str) -> None:
    """Validates the file: exit 0, or 2 with "FILE: key: reason" per line."""
    settings = load_or_exit(config, hearing=True)
    click.echo(
        f"{config}: {len(settings.companies)} companies, {len(settings.trunks)} trunks, "
        f"{len(settings.agents)} agents: ok"
    )


@click.command()
@config_option
def doctor(config: str) -> None:
    """Says of everything the file needs whether this machine has it, and what to do; exit 1 if not."""
    settings = load_or_exit(config, engines=False)
    compile_visibly()
    logging.disable(logging.CRITICAL)  # what would be logged is in the findings
    findings = asyncio.run(resolve_name("mediaserver.cli.doctor:examine")(settings))
    for finding in findings:
        click.echo(str(finding))
    sys.exit(0 if all(finding.ok for finding in findings) else 1)


@click.command("call")
@config_option
@click.option("--agent", required=True, help="The id of an outbound agent.")
@click.option("--to", required=True, metavar="NUMBER", help="The number to call.")
@click.option("--var", "variables", multiple=True, metavar="k=v", help="A prompt variable; may be repeated.")
@click.option("--key", help="An API key; else the first key of the agent's company with the scope calls.")
def place(config: str, agent: str, to: str, variables: tuple[str, ...], key: str | None) -> None:
    """Places one call through a running server and follows it: exit 0 when it was answered and completed."""
    settings = load_or_exit(config, engines=False)
    body = {"agentId": agent, "phoneNumber": to, "promptVariables": pairs(variables)}
    url = f"http://{settings.server.http}"
    try:
        report = asyncio.run(place_and_follow(url, key or _calls_key(settings, agent), body, show=click.echo))
    except CallRefused as refused:
        raise click.ClickException(str(refused)) from None
    cause = report.get("hangupCause")
    click.echo(f"{report['status'].lower()}: {cause}" if cause else report["status"].lower())
    if report.get("recordingUrl"):
        click.echo(f"recording: {report['recordingUrl']}")
    sys.exit(0 if report["status"] == "COMPLETED" else 1)


@click.command()
@config_option
@click.option("--data", type=click.Path(file_okay=False), help="Instead of server.data_dir.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def restore(config: str, data: str | None, yes: bool) -> None:
    """Ends every call UNKNOWN that may have been dialled since the copy was made: to be run after the
    database was restored from a copy and a node's own notes are lost. Nodes that are gone for good are not
    waited for."""
    settings = load_or_exit(config, data, engines=False)
    if not yes:
        click.confirm(
            "Every call that is due or under way ends UNKNOWN and is never dialled. Go on?", abort=True
        )
    try:
        click.echo(f"{asyncio.run(_doubt(settings))} calls are UNKNOWN now")
    except MediaServerError as error:
        raise click.ClickException(str(error)) from None


async def _doubt(settings: Settings) -> int:
    async with await Store.open(settings.server.database, Path(settings.server.data_dir)) as store:
        return await store.doubt()


@click.group()
def keys() -> None:
    """Creates API keys for companies of the configuration."""


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


async def _create_key(settings: Settings, company: str, scopes: list[str]) -> str:
    async with await Store.open(settings.server.database, Path(settings.server.data_dir)) as store:
        if settings.company(company) is not None:
            await store.sync_file(settings)  # the server may never have run with this file
        return await store.create_key(company, scopes)


def _calls_key(settings: Settings, agent_id: str) -> str:
    agent = settings.agent(agent_id)
    company = settings.company(agent.company) if agent is not None else None
    keys_with_scope = [key for key in company.keys if "calls" in key.scopes] if company is not None else []
    if not keys_with_scope:
        raise click.ClickException("the file has no key with the scope calls for this agent: give --key")
    return reveal(keys_with_scope[0].key)
