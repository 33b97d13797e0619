"""`mediaserver doctor`: engines, ports, codecs, database, clock; one line each."""

from __future__ import annotations

import asyncio
import logging
import sys
from pkgutil import resolve_name

import click

from mediaserver.cli_settings import config_option, load_or_exit


@click.command()
@config_option
def doctor(config: str) -> None:
    """Says of everything the file needs whether this machine has it, and what to do; exit 1 if not."""
    settings = load_or_exit(config, engines=False)
    logging.disable(logging.CRITICAL)  # what would be logged is in the findings
    examine = resolve_name("mediaserver.doctor:examine")
    findings = asyncio.run(examine(settings))
    for finding in findings:
        click.echo(str(finding))
    sys.exit(0 if all(finding.ok for finding in findings) else 1)
