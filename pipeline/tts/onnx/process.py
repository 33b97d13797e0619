"""The process of a voice on onnxruntime: `python -m pipeline.tts.onnx.process piper|kokoro JSON`.

JSON has the arguments of `PiperVoice` or `KokoroVoice`; the process may read only the files that they
name."""

from __future__ import annotations

import json
import sys
from pkgutil import resolve_name
from typing import Any, Final

from pipeline.confinement.confinement import Confinement
from pipeline.tts.subprocess_server import Synthesiser, serve

MEMORY_MB: Final = 2048
"""Limit of the process's memory; a process uses 150 to 500 MB, and twice its model while loading."""

_VOICES: Final = {"piper": "PiperVoice", "kokoro": "KokoroVoice"}
_FILES: Final = {"piper": ("model", "config"), "kokoro": ("voices", "vocabulary")}


def main() -> int:
    """Serves the voice of the process's arguments. An exception while loading the files, or an ImportError
    without onnxruntime, is reported instead of READY."""
    kind = sys.argv[1]
    arguments: dict[str, Any] = json.loads(sys.argv[2])

    def make() -> Synthesiser:
        voice = resolve_name(f"pipeline.tts.onnx.voices:{_VOICES[kind]}")
        synthesiser: Synthesiser = voice(**arguments)
        return synthesiser

    read = [*(arguments[name] for name in _FILES[kind]), *arguments.get("parts", ())]
    return serve(make, Confinement(read=read, memory_mb=MEMORY_MB))


if __name__ == "__main__":
    sys.exit(main())
