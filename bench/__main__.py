"""Runs a benchmark, `python -m bench NAME`; its module is imported only then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from mediaserver.__main__ import Commands

COMMANDS: Final[Mapping[str, str]] = {
    "kernels": "bench.kernels.__main__:main",
    "call": "bench.call.__main__:main",
    "fuzz": "bench.fuzz:main",
    "rooms": "bench.rooms.__main__:main",
    "rooms-words": "bench.rooms.words:main",
    "store": "bench.store:main",
    "peers": "bench.peers.__main__:main",
    "post": "bench.post:main",
    "trace": "bench.trace:main",
    "overload": "bench.overload:main",
    "realtime": "bench.realtime:main",
    "capacity": "bench.capacity.__main__:main",
    "conversation": "bench.conversation.__main__:main",
    "embedded-stt": "bench.embedded_stt.__main__:main",
    "embedded-stt-people": "bench.embedded_stt.people:main",
    "embedded-stt-narrow": "bench.embedded_stt.narrow:main",
    "embedded-stt-weights": "bench.embedded_stt.weights:main",
    "people": "bench.people.__main__:main",
    "people-ends": "bench.people.ends:main",
    "short-turns": "bench.conversation.short_turns:main",
    "vad": "bench.vad.__main__:main",
    "voices": "bench.voices:main",
    "turn-weights": "bench.training.weights:main",
    "turn-wording": "bench.training.phrase_model:main",
    "all": "bench.all:main",
}


class Benchmarks(Commands):
    """The benchmarks by name; the dependencies of each are needed by that benchmark alone."""

    targets = COMMANDS


@click.group(cls=Benchmarks)
def main() -> None:
    """Measures the server; results under bench/results/."""


if __name__ == "__main__":
    main(prog_name="python -m bench")
