"""A voice's process that takes a tenth of a second for each request: `python -m
tests.support.speech.slow_voice`.

With the name of a file it takes half a second to start, and writes its process id there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.tts.subprocess_server import Emit, serve


class SlowVoice:
    """A `Synthesiser`."""

    rate_hz = 16000

    def speak(self, request: Mapping[str, Any], emit: Emit) -> None:
        """Says a click after a while."""
        time.sleep(0.1)
        emit(b"\x00\x10", [])


if __name__ == "__main__":
    for name in sys.argv[1:]:  # before it is confined: it may write nowhere then
        with Path(name).open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.5)
    sys.exit(serve(SlowVoice))
