"""A flame graph of a running server, drawn by py-spy (`pip install py-spy`; root, or kernel.yama.ptrace_scope
of 0)."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

SAMPLES_PER_S: Final = 100
"""py-spy holds the process up for each."""

_MARGIN_S: Final = 2.0


@contextmanager
def drawn(pid: int, path: Path, *, title: str, seconds: float) -> Iterator[None]:
    """Draws what the threads of `pid` do during the block, which takes `seconds`, under `title`; compiled
    code is a part of the Python function that calls it. Raises ClickException without py-spy."""
    spy = shutil.which("py-spy")
    if spy is None:
        raise click.ClickException("--flame-graph needs py-spy")
    options = ("--function", "--threads", "--rate", str(SAMPLES_PER_S))
    duration = str(max(1, round(seconds - _MARGIN_S)))
    command = [spy, "record", *options, "--duration", duration, "--output", str(path), "--pid", str(pid)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        yield
        process.wait(_MARGIN_S + seconds)
    drawing = path.read_text()
    path.write_text(re.sub(r'(<text id="title"[^>]*>)[^<]*', lambda found: found[1] + title, drawing))
