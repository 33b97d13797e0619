"""What a start does first: what takes longest, in processes of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.node.node import REAL_ENGINES, write_site

FIRST_ENGINE = """
import os, sys
from mediaserver.__main__ import main
from pipeline import registry
from pipeline.tts.espeak import Espeak

async def start(self):
    print("engines start", "with" if "api.app" in sys.modules else "without", "the API", flush=True)
    os._exit(0)

Espeak.start = start
main(["serve", "--config", sys.argv[1]])
"""


def test_engines_start_before_the_rest_of_the_server_is_imported(tmp_path: Path) -> None:
    """Their models load in other processes meanwhile."""
    site = write_site(tmp_path, engines=REAL_ENGINES)
    command = [sys.executable, "-c", FIRST_ENGINE, str(site.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.stdout == "engines start without the API\n", done.stderr
