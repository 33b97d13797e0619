"""What several commands take: an agent by its id or name, and variables as NAME=VALUE."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NoReturn

import click

from mediaserver.cli.config import EXIT_CONFIG
from mediaserver.settings import AgentSettings, Settings


def agent_named(settings: Settings, wanted: str, config: str) -> AgentSettings:
    """The agent of that id, else the only one of that name; exits with 2 where there is none."""
    found = settings.agent(wanted.lower())
    if found is not None:
        return found
    named = [agent for agent in settings.agents if agent.name == wanted]
    if len(named) == 1:
        return named[0]
    if named:
        refuse(f"{config}: agent: {len(named)} are called {wanted!r}: {', '.join(each.id for each in named)}")
    known = ", ".join(f"{agent.id} ({agent.name})" for agent in settings.agents)
    refuse(f"{config}: agent: no {wanted!r}; there are {known or 'none'}")


def pairs(variables: tuple[str, ...]) -> Mapping[str, str]:
    """`variables` by name. Raises `click.BadParameter`."""
    found = {}
    for variable in variables:
        name, equals, value = variable.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{variable!r} is not k=v", param_hint="--var")
        found[name] = value
    return found


def refuse(reason: str) -> NoReturn:
    """Ends the command: what it was given cannot be used."""
    click.echo(reason, err=True)
    sys.exit(EXIT_CONFIG)
