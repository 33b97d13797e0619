"""`python -m bench NAME`: one module per benchmark, imported only when it is run."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Final

import click

COMMANDS: Final[Mapping[str, str]] = {
    "kernels": "bench.kernels.__main__:main",
    "call": "bench.call.__main__:main",
    "fuzz": "bench.fuzz:main",
    "rooms": "bench.rooms.__main__:main",
    "store": "bench.store:main",
    "post": "bench.post:main",
    "overload": "bench.overload:main",
    "conversation": "bench.conversation.__main__:main",
    "embedded-stt": "bench.embedded_stt.__main__:main",
    "embedded-stt-people": "bench.embedded_stt.people:main",
    "embedded-stt-narrow": "bench.embedded_stt.narrow:main",
    "embedded-stt-weights": "bench.embedded_stt.weights:main",
    "people": "bench.people.__main__:main",
    "voices": "bench.voices:main",
    "turn-weights": "bench.training.weights:main",
    "turn-wording": "bench.training.phrase_model:main",
    "all": "bench.all:main",
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
