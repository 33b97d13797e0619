"""Runs every benchmark, each in a process of its own: `python -m bench all`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import click

ALL: Final[Sequence[tuple[Sequence[str], Sequence[str]]]] = (
    (("kernels",), ("--rounds", "3")),
    (("call",), ("--short",)),
    (("call", "--engines", "local"), ("--short",)),
    (("rooms",), ("--short",)),
    (("store",), ("--short",)),
    (("post",), ("--short",)),
    (("trace",), ("--rounds", "10")),
    (("overload",), ("--short",)),
    (("capacity",), ("--seconds", "20")),
    (("capacity", "--stalls", "--calls", "100"), ("--seconds", "20")),
    (("conversation",), ("--short",)),
    (("embedded-stt",), ("--short",)),
    (("people",), ("--short",)),
    (("vad",), ("--short",)),
    (("voices",), ("--short",)),
    (("fuzz",), ("--cases", "4000")),
)
"""Arguments of each benchmark, and those that shorten it to a few minutes."""


@click.command()
@click.option("--short", is_flag=True, help="Run the short form of each benchmark.")
def main(short: bool) -> None:
    """Every benchmark; the exit status is that of the first one that failed."""
    status = 0
    for what, shorter in ALL:
        command = [sys.executable, "-m", "bench", *what, *(shorter if short else ())]
        status = status or subprocess.run(command, check=False).returncode
    sys.exit(status)
