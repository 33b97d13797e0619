"""Makes the demo's recogniser, from sentences to a model: `python -m bench.micro_whisper`."""

from __future__ import annotations

import click

from bench.micro_whisper import data, evaluate, train
from bench.micro_whisper.extras import REQUIREMENTS

HELP = f"""Makes the micro-Whisper: data (4 minutes), train (22), train again with --init and
--whole-windows 0.12 (21), evaluate.

Needs {REQUIREMENTS}, and flite for some of the voices.
"""


@click.group(help=HELP)
def main() -> None:
    """The commands below."""


main.add_command(data.main, "data")
main.add_command(train.main, "train")
main.add_command(evaluate.main, "evaluate")

if __name__ == "__main__":
    main(prog_name="python -m bench.micro_whisper")
