"""Stands for Kokoro's weights: every phoneme is a tone of 50 ms, louder with the voice's row."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np


class KModel:
    """As `kokoro.model.KModel`, by the parts that are used."""

    def __init__(self, *, repo_id: str, config: str, model: str) -> None:
        if Path(model).read_bytes() != b"weights":
            raise RuntimeError("invalid magic number")
        self.vocab = dict.fromkeys("abcdefghijklmnopqrstuvwxyz ", 1)

    def to(self, _device: str) -> "KModel":
        return self

    def eval(self) -> "KModel":
        return self

    def __call__(self, phonemes: str, loudness: float, speed: float, *, return_output: bool) -> Any:
        if "crash" in phonemes:
            os._exit(7)
        durations = np.array([1, *(2 for _ in phonemes), 1])
        count = int(durations.sum() * 600 / speed)
        audio = loudness * np.sin(2 * np.pi * 440 * np.arange(count) / 24000)
        return SimpleNamespace(audio=audio, pred_dur=durations)
