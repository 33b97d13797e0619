"""`python -m bench NAME`: one module per benchmark, imported only when it is run."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Final

import click

COMMANDS: Final[Mapping[str, str]] = {
    "kernels": "bench.kernels:main",
    "call": "bench.call:main",
    "fuzz": "bench.fuzz:main",
    "rooms": "bench.rooms:main",
    "store": "bench.store:main",
    "post": "bench.post:main",
    "overload": "bench.overload:main",
    "conversation": "bench.conversation:main",
    "ears": "bench.ears:main",
    "ears-people": "bench.ears_people:main",
    "ears-narrow": "bench.ears_narrow:main",
    "ears-weights": "bench.ears_weights:main",
    "people": "bench.people:main",
    "voices": "bench.voices:main",
    "turn-weights": "bench.turn_weights:main",
    "turn-wording": "bench.turn_wording:main",
    "all": "bench.everything:main",
}


class Benchmarks(click.Group):
    """Commands by name, from a table: a benchmark's dependencies are needed by that benchmark alone."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, target in COMMANDS.items() if _exists(target)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = COMMANDS.get(cmd_name)
        if target is None or not _exists(target):
            return None
        module, _, attribute = target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{target} is not a click command")
        return command


def _exists(target: str) -> bool:
    return importlib.util.find_spec(target.partition(":")[0]) is not None


@click.group(cls=Benchmarks)
def main() -> None:
    """Measures the server; results under bench/results/."""


if __name__ == "__main__":
    main(prog_name="python -m bench")
