"""The command line in this process, which has everything imported: a start of its own costs two seconds."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

from click.testing import CliRunner

from mediaserver.__main__ import main


def mediaserver(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What a command prints and ends with. Raises what would be a traceback."""
    words = [str(each) for each in arguments]
    environment, disabled = dict(os.environ), logging.root.manager.disable
    try:
        done = CliRunner().invoke(main, words, prog_name="mediaserver", catch_exceptions=False)
    finally:
        os.environ.clear()
        os.environ.update(environment)
        logging.disable(disabled)  # `doctor` and `explain` silence a process of their own
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)
