"""`mediaserver explain`: prints the path of a frame in and out for one agent, without placing a call."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pkgutil import resolve_name

import click

from mediaserver.cli.config import config_option, load_or_exit
from mediaserver.cli.given import agent_named, refuse


@click.command()
@config_option
@click.option("--agent", "wanted", required=True, help="The id or the name of an agent of the file.")
@click.option("--codec", help="A codec of the agent's trunk; else the one that the trunk prefers.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def explain(config: str, wanted: str, codec: str | None, *, as_json: bool) -> None:
    """Prints the path of a frame in and out for one agent, with engines, rates and delays: exit 0, 1 when an
    engine cannot be used here, 2 for an agent or codec that the file does not have. No call is placed; the
    voice is started to learn its rate, and what "auto" could choose is tried."""
    settings = load_or_exit(config)
    agent = agent_named(settings, wanted, config)
    trunk = None if agent.trunk is None else settings.trunk(agent.trunk)
    codecs = () if trunk is None else trunk.codecs
    if codec is not None and codec not in codecs:
        refuse(f"{config}: trunk.codecs: no {codec!r}; there are {', '.join(codecs) or 'none'}")
    logging.disable(logging.CRITICAL)  # what would be logged is in the report
    report = asyncio.run(resolve_name("mediaserver.cli.explained:explained")(settings, agent, codec))
    click.echo(json.dumps(report.data(), ensure_ascii=False, indent=2) if as_json else report.text())
    sys.exit(1 if report.problems else 0)
