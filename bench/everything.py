"""`python -m bench all`: every benchmark after the other, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import click

SHORT: Final = {
    "kernels": ["--rounds", "3"],
    "call": ["--short"],
    "rooms": ["--short"],
    "store": ["--short"],
    "post": ["--short"],
    "overload": ["--short"],
    "conversation": ["--short"],
    "ears": ["--short"],
    "voices": ["--short"],
    "fuzz": ["--cases", "4000"],
}
"""What each benchmark is given for a run of a few minutes."""


@click.command()
@click.option("--short", is_flag=True, help="A few minutes in all.")
def main(short: bool) -> None:
    """Every benchmark; the exit status is that of the first one that failed."""
    status = 0
    for name, arguments in SHORT.items():
        command = [sys.executable, "-m", "bench", name, *(arguments if short else ())]
        status = status or subprocess.run(command, check=False).returncode
    sys.exit(status)
