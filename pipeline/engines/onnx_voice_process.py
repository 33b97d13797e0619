"""The process of a voice on onnxruntime: `python -m pipeline.engines.onnx_voice_process piper|kokoro JSON`.

JSON holds the arguments of `PiperVoice` or `KokoroVoice`."""

from __future__ import annotations

import json
import sys
from pkgutil import resolve_name

from pipeline.engines.voice_service import Synthesiser, serve

_VOICES = {"piper": "PiperVoice", "kokoro": "KokoroVoice"}


def make() -> Synthesiser:
    """The voice of this process's arguments. Raises what onnxruntime raises for files that it cannot use, and
    ImportError where it is not installed."""
    kind = resolve_name(f"pipeline.engines.onnx_voices:{_VOICES[sys.argv[1]]}")
    synthesiser: Synthesiser = kind(**json.loads(sys.argv[2]))
    return synthesiser


if __name__ == "__main__":
    sys.exit(serve(make))
