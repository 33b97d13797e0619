"""The Kokoro process: `python -m pipeline.tts.kokoro_process JSON`.

JSON is an object with model, config, voices (the directory of the voices), device and threads."""

from __future__ import annotations

import json
import os
import sys
from pkgutil import resolve_name
from typing import Any, Final

from pipeline.confinement.confinement import Confinement
from pipeline.tts.subprocess_server import Synthesiser, serve

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # every file is local


MEMORY_MB: Final = 8192
"""Limit of the process's memory; the process uses 1 to 2 GB."""


def main() -> int:
    """Serves the model of the process's argument. An exception while loading the files, or an ImportError
    without the extra `kokoro`, is reported instead of READY."""
    arguments: dict[str, Any] = json.loads(sys.argv[1])
    cuda = arguments["device"] == "cuda"
    read = (arguments["model"], arguments["config"], arguments.pop("voices"))

    def make() -> Synthesiser:
        synthesiser: Synthesiser = resolve_name("pipeline.tts.kokoro_model:KokoroVoices")(**arguments)
        return synthesiser

    return serve(make, Confinement(read=read, memory_mb=None if cuda else MEMORY_MB, cuda=cuda))


if __name__ == "__main__":
    sys.exit(main())
