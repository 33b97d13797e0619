"""What a start does first: what takes longest, in processes of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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

STOPPED_EARLY = """
import asyncio, os, signal, sys
from mediaserver.__main__ import main
from mediaserver.engine_pool.pool import Engines
from pipeline.tts.espeak import Espeak

async def start(self):
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    try:
        await asyncio.Event().wait()
    finally:
        print("start cancelled", flush=True)

async def closed(self, close=Engines.close):
    await close(self)
    print("engines closed", flush=True)

Espeak.start = start
Engines.close = closed
main(["serve", "--config", sys.argv[1]])
"""


def test_engines_start_before_the_rest_of_the_server_is_imported(tmp_path: Path) -> None:
    """Their models load in other processes meanwhile."""
    site = write_site(tmp_path, engines=REAL_ENGINES)
    command = [sys.executable, "-c", FIRST_ENGINE, str(site.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.stdout == "engines start without the API\n", done.stderr


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.nightly("ci"))])
def test_a_signal_while_the_server_is_imported_ends_the_engines(tmp_path: Path, name: str) -> None:
    site = write_site(tmp_path, engines=REAL_ENGINES)
    command = [sys.executable, "-c", STOPPED_EARLY, str(site.path), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.stdout.endswith("start cancelled\nengines closed\n"), done.stderr
    assert done.returncode == 0
