"""The command line: `mediaserver init | serve | compile | check | doctor | explain | call | bench | keys |
backup | restore | migrate | models | demo`.

Commands are imported when they are used: `mediaserver check` does not load what only a server needs.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Mapping
from functools import partial
from pkgutil import resolve_name

import click

from mediaserver.cli.config import config_option, load_again, load_or_exit
from mediaserver.settings import Settings
from mediaserver.telemetry import logging as logs

COMMANDS: Mapping[str, str] = {
    "init": "mediaserver.cli.init:init",
    "serve": "mediaserver.__main__:serve",
    "compile": "mediaserver.cli.kernels:compile_",
    "check": "mediaserver.cli.admin:check",
    "doctor": "mediaserver.cli.admin:doctor",
    "explain": "mediaserver.cli.explain:explain",
    "call": "mediaserver.cli.admin:place",
    "bench": "mediaserver.cli.bench:bench",
    "keys": "mediaserver.cli.keys:keys",
    "bans": "mediaserver.cli.bans:bans",
    "backup": "mediaserver.cli.upkeep:backup",
    "restore": "mediaserver.cli.upkeep:restore",
    "migrate": "mediaserver.cli.upkeep:migrate",
    "models": "mediaserver.cli.models:models",
    "demo": "mediaserver.__main__:demo",
}
"""The module and function of each command, by its name."""


class Commands(click.Group):
    """A group whose commands are imported when they are asked for. `targets`: as `COMMANDS`."""

    targets = COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table."""
        return list(self.targets)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, None for an unknown one."""
        if cmd_name not in self.targets:
            return None
        command: click.Command = resolve_name(self.targets[cmd_name])
        return command


@click.command()
@config_option
@click.option("--data", type=click.Path(file_okay=False), help="Instead of server.data_dir.")
def serve(config: str, data: str | None) -> None:
    """Runs the server until SIGTERM or SIGINT; calls in progress may end first, a second signal ends them.
    SIGHUP reads the file again."""
    gc.disable()  # what is imported stays: collecting it again and again costs 0.4 s of every start
    settings = load_or_exit(config, data, writes=True, first=_open_log)
    launch = resolve_name("mediaserver.launch:launch")
    sys.exit(asyncio.run(launch(settings, reread=partial(load_again, config, data))))


def _open_log(settings: Settings) -> None:
    """For what is logged before the server runs, which opens it again."""
    logs.configure(level=settings.server.log_level, as_json=settings.server.log_format == "json")


@click.command()
@click.option("--exit", "exit_after", is_flag=True, help="End after the call; exit 0 if it reached its goal.")
def demo(exit_after: bool) -> None:
    """A real call on this machine: a softphone on another SIP stack is called, spoken to and understood."""
    sys.exit(resolve_name("mediaserver.demo.run:main")(exit_after=exit_after))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="openline-mediaserver", message="%(version)s")
def main() -> None:
    """A real-time media server for AI voice agents."""


if __name__ == "__main__":
    main(prog_name="mediaserver")
