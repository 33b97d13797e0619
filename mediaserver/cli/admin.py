"""`mediaserver check`, `doctor`, `call`: what an operator does beside running the server."""

from __future__ import annotations

import asyncio
import logging
import sys
from pkgutil import resolve_name
from typing import NoReturn

import click

from mediaserver.cli.call import CallRefused, place_and_follow
from mediaserver.cli.config import config_option, load_or_exit
from mediaserver.cli.given import pairs
from mediaserver.cli.kernels import compile_visibly
from mediaserver.errors import MediaServerError
from mediaserver.settings import Settings, reveal


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
@click.option("--sip", "trunk", metavar="TRUNK", help="Rings --to over this trunk and says what fails.")
@click.option("--to", metavar="NUMBER", help="The number that --sip rings, and hangs up.")
def doctor(config: str, trunk: str | None, to: str | None) -> None:
    """Says of everything the file needs whether this machine has it, and what to do; exit 1 if not."""
    settings = load_or_exit(config, engines=False)
    if trunk is not None:
        _examine_trunk(settings, trunk, to)
    compile_visibly()
    logging.disable(logging.CRITICAL)  # what would be logged is in the findings
    findings = asyncio.run(resolve_name("mediaserver.cli.doctor:examine")(settings))
    for finding in findings:
        click.echo(str(finding))
    sys.exit(0 if all(finding.ok for finding in findings) else 1)


def _examine_trunk(settings: Settings, trunk: str, number: str | None) -> NoReturn:
    if number is None:
        raise click.UsageError("--sip needs --to, the number to ring")
    logging.disable(logging.CRITICAL)  # what would be logged is in the findings
    examine = resolve_name("mediaserver.cli.doctor_trunk:examine_trunk")
    try:
        findings = asyncio.run(examine(settings, trunk, number))
    except MediaServerError as error:
        raise click.UsageError(str(error)) from None
    for finding in findings:
        click.echo(str(finding))
    sys.exit(0 if all(finding.ok for finding in findings) else 1)


@click.command("call")
@click.option(
    "--config", type=click.Path(), help="The configuration file of a server on this machine (TOML)."
)
@click.option(
    "--url",
    help="The address of a server elsewhere (https://…); needs MEDIASERVER_KEY or --key, no --config.",
)
@click.option("--agent", required=True, help="The id of an outbound agent.")
@click.option("--to", required=True, metavar="NUMBER", help="The number to call.")
@click.option("--var", "variables", multiple=True, metavar="k=v", help="A prompt variable; may be repeated.")
@click.option(
    "--key",
    envvar="MEDIASERVER_KEY",
    show_envvar=True,
    help="An API key; else the first key of the agent's company in the file with the scope calls.",
)
def place(agent: str, to: str, variables: tuple[str, ...], **server: str | None) -> None:
    """Places one call through a running server and follows it: exit 0 when it was answered and completed."""
    url, key = _server(agent, **server)
    body = {"agentId": agent, "phoneNumber": to, "promptVariables": pairs(variables)}
    try:
        report = asyncio.run(place_and_follow(url, key, body, show=click.echo))
    except CallRefused as refused:
        raise click.ClickException(str(refused)) from None
    cause = report.get("hangupCause")
    click.echo(f"{report['status'].lower()}: {cause}" if cause else report["status"].lower())
    if report.get("recordingUrl"):
        click.echo(f"recording: {report['recordingUrl']}")
    sys.exit(0 if report["status"] == "COMPLETED" else 1)


def _server(agent: str, *, config: str | None, url: str | None, key: str | None) -> tuple[str, str]:
    """Returns the address of the server to call through, and the key to show it."""
    if url is not None:
        if not url.startswith(("http://", "https://")) or key is None:
            raise click.UsageError("--url is an http or https address, and needs MEDIASERVER_KEY (or --key)")
        return url.rstrip("/"), key
    if config is None:
        raise click.UsageError("--config FILE, or --url and --key of a server elsewhere")
    settings = load_or_exit(config, engines=False)
    return f"http://{settings.server.http}", key or _calls_key(settings, agent)


def _calls_key(settings: Settings, agent_id: str) -> str:
    agent = settings.agent(agent_id)
    company = settings.company(agent.company) if agent is not None else None
    keys_with_scope = [key for key in company.keys if "calls" in key.scopes] if company is not None else []
    if not keys_with_scope:
        raise click.ClickException("the file has no key with the scope calls for this agent: give --key")
    return reveal(keys_with_scope[0].key)
