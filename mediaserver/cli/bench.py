"""`mediaserver bench`: calls, and what their caller hears, in figures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

import click

from mediaserver.benchmark.options import Options
from mediaserver.cli.config import load_or_exit
from mediaserver.cli.given import agent_named, pairs, refuse
from mediaserver.cli.kernels import compile_visibly

Command = TypeVar("Command", bound=Callable[..., Any])

_figure = partial(click.option, show_default=True)

_PLAN = (
    _figure("--calls", type=click.IntRange(1, 1000), default=2),
    _figure("--concurrent", type=click.IntRange(1, 100), default=2, help="Calls at once."),
    _figure(
        "--rate", "rate_per_s", type=click.FloatRange(0.01, 20), default=1.0, help="Calls placed a second."
    ),
    _figure("--turns", type=click.IntRange(1, 1000), default=8, help="Of each call."),
    _figure("--seconds", type=click.FloatRange(1, 3600), default=120.0, help="A call is hung up then."),
    _figure(
        "--barge-every",
        type=click.IntRange(0, 1000),
        default=4,
        help="Each n-th turn talks over the agent; 0: none does.",
    ),
    _figure(
        "--codec",
        type=click.Choice(["pcmu", "pcma", "g722", "opus"]),
        default="pcmu",
        help="The one that is offered.",
    ),
    click.option("--caller-id", default="", help="Who calls, of the From header."),
    click.option("--public-address", default="", metavar="IP", help="This machine's, before a NAT."),
    click.option("--username", default="", help="For the far end's challenge."),
    click.option("--password", default="", envvar="BENCH_PASSWORD", help="Better in $BENCH_PASSWORD."),
)


def _plan_options(command: Command) -> Command:
    for option in reversed(_PLAN):
        command = option(command)
    return command


@click.command("bench")
@click.option("--to", default="", metavar="SIP-URI", help="sip:user@host[:port][;transport=tcp]")
@click.option("--yes", is_flag=True, help="--to may be a number, which may ring a person.")
@click.option("--agent", default="", help="The id or the name of an agent of the file: one's own.")
@click.option("--config", default="", metavar="FILE", help="The agent's configuration file (TOML).")
@click.option("--var", "variables", multiple=True, metavar="k=v", help="A variable in the agent's words.")
@click.option(
    "--speech",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A WAV file to say, one a turn; may be repeated. Else sentences by espeak-ng.",
)
@_plan_options
@click.option("--json", "json_file", metavar="FILE", type=click.Path(path_type=Path), help="All figures.")
@click.option("--plot", metavar="FILE.svg", type=click.Path(path_type=Path), help="Their distributions.")
def bench(
    *,
    to: str,
    yes: bool,
    agent: str,
    config: str,
    variables: tuple[str, ...],
    speech: tuple[Path, ...],
    json_file: Path | None,
    plot: Path | None,
    **plan: object,
) -> None:
    """Calls a SIP address, or an agent of one's own in a node that is started for it, and measures what the
    caller hears: exit 0 when every call was answered and spoken with, 1 otherwise, 2 for bad input, 130 after
    Ctrl-C, SIGTERM or SIGHUP. Every call is hung up. See docs/benchmark.md."""
    if bool(to) == bool(agent) or bool(agent) != bool(config):
        refuse("bench: either --to SIP-URI, or --agent ID with --config FILE")
    if plot is not None and plot.suffix != ".svg":
        refuse(f"{plot}: a plot is written as SVG: give it a name that ends in .svg")
    for path in (json_file, plot):
        if path is not None and not path.absolute().parent.is_dir():
            refuse(f"{path}: there is no folder {path.parent}")
    settings = load_or_exit(config) if agent else None
    compile_visibly()
    asked = Options(
        to=to,
        sure=yes,
        config=config,
        agent_id=agent_named(settings, agent, config).id if settings is not None else "",
        variables=pairs(variables),
        speech=speech,
        plan=plan,
        json=json_file,
        plot=plot,
    )
    sys.exit(resolve_name("mediaserver.benchmark.command:main")(asked, settings))
