"""A voice's process that takes a tenth of a second for each request: `python -m tests.support.slow_voice`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from pipeline.engines.voice_service import Emit, serve


class SlowVoice:
    """A `Synthesiser`."""

    rate_hz = 16000

    def speak(self, request: Mapping[str, Any], emit: Emit) -> None:
        """Says a click after a while."""
        time.sleep(0.1)
        emit(b"\x00\x10", [])


if __name__ == "__main__":
    sys.exit(serve(SlowVoice))
