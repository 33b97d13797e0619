"""The Kokoro process: `python -m pipeline.engines.kokoro_process JSON` (model, config, device, threads)."""

from __future__ import annotations

import json
import os
import sys
from pkgutil import resolve_name

from pipeline.engines.voice_service import Synthesiser, serve

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # every file is local: never ask a hub


def make() -> Synthesiser:
    """The model of this process's argument. Raises what torch raises for files that it cannot use, and
    ImportError where the extra `kokoro` is not installed."""
    synthesiser: Synthesiser = resolve_name("pipeline.engines.kokoro_model:KokoroVoices")(
        **json.loads(sys.argv[1])
    )
    return synthesiser


if __name__ == "__main__":
    sys.exit(serve(make))
