"""Tries and times one decode of Whisper: `python -m pipeline.stt.whisper.trial DIRECTORY WINDOW_S TYPE`.

The trial runs in a process, because a library built for another CPU crashes the process, and because the CPU
time is then that of the decode alone. The process is confined like the one that decodes for calls, and writes
one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, Final

import numpy as np

from pipeline.confinement.confinement import Confinement
from pipeline.engines.local_weights import INSTALL
from pipeline.errors import kind_of
from pipeline.stt.whisper.process import needs_mb, reported

RATE_HZ: Final = 16000
FRAMES_A_SECOND: Final = 100
SECONDS: Final = 3
TOKENS: Final = 16
"""Number of tokens of the decode, about those of `SECONDS` of speech; the end token is suppressed."""

RUNS: Final = 3


def main() -> int:
    """Tries the model of the process's arguments and prints the result as JSON."""
    directory, window_s, compute_type = sys.argv[1:4]
    Confinement(read=(directory,), memory_mb=needs_mb(directory)).apply()
    print(json.dumps(tried(directory, int(window_s), compute_type)))
    return 0


def tried(directory: str, window_s: int, compute_type: str) -> Mapping[str, Any]:
    """Gives `cpu_ms`, the CPU time of the fastest decode of 3 s after a first one, or `problem`."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, when huggingface_hub is imported
    found: dict[str, Any] = {}
    with reported(lambda error: found.update(problem=_problem(error))):
        found["cpu_ms"] = _fastest_ms(directory, window_s, compute_type)
    return found


def _fastest_ms(directory: str, window_s: int, compute_type: str) -> float:
    whisper = resolve_name("faster_whisper:WhisperModel")
    view = resolve_name("faster_whisper.transcribe:get_ctranslate2_storage")
    model = whisper(directory, device="cpu", compute_type=compute_type, cpu_threads=1, local_files_only=True)
    spent = [_decode_ms(model, view, window_s) for _ in range(1 + RUNS)]
    return min(spent[1:])


def _problem(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"{error.name or error} cannot be imported: {INSTALL}"
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    return str(error).strip() or kind_of(error)


def _decode_ms(model: Any, view: Any, window_s: int) -> float:
    """Times the features of noise, the encoder's pass over the window, and `TOKENS` tokens."""
    tokenizer = model.hf_tokenizer
    begin, end = (tokenizer.token_to_id(each) for each in ("<|startoftranscript|>", "<|endoftext|>"))
    noise = np.random.default_rng(1).standard_normal(RATE_HZ * SECONDS).astype(np.float32) * 0.05
    began = time.process_time()
    features = np.zeros((model.feat_kwargs.get("feature_size", 80), window_s * FRAMES_A_SECOND), np.float32)
    made = model.feature_extractor(noise)[:, : SECONDS * FRAMES_A_SECOND]
    features[:, : made.shape[1]] = made
    model.model.generate(
        view(features[np.newaxis]),
        [[begin]],
        beam_size=1,
        max_length=1 + TOKENS,
        suppress_tokens=[-1, end],
    )
    return (time.process_time() - began) * 1000


if __name__ == "__main__":
    sys.exit(main())
