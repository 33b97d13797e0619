"""The faster-whisper model, with a shorter encoder window. Imported only when the engine starts: it pulls in
CTranslate2, onnxruntime and PyAV (about a second), and comes with the extra `whisper`."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, when huggingface_hub is imported: never ask a hub

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from faster_whisper import WhisperModel
from faster_whisper.audio import pad_or_trim
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.transcribe import get_suppressed_tokens

_MARGIN_FRAMES = 100  # silence left behind the last sound, as in training
_QUANTUM_FRAMES = 50  # few distinct lengths, so that CTranslate2's buffers are reused


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the model makes of one utterance; named as faster-whisper's segments name it."""

    text: str
    avg_logprob: float
    no_speech_prob: float


class WindowedWhisper(WhisperModel):  # type: ignore[misc]
    """`transcribe()` pads every utterance to 30 s, and the encoder pays for the silence: 30 s cost eight to
    ten times what 10 s do (measured, CPU). This one drops the padding down to `window_frames` (100 a second).

    The window's length is part of what a model learned: stock weights were trained at 30 s and lose accuracy
    on much shorter ones (CTranslate2 #2100); do not go under 10 s without weights made for it.
    """

    window_frames = 3000

    def encode(self, features: npt.NDArray[np.float32]) -> Any:
        """Encodes without the padding, which is exactly zero while speech and silence never are."""
        sounding = np.flatnonzero(np.any(features != 0, axis=tuple(range(features.ndim - 1))))
        used = int(sounding[-1]) + 1 if len(sounding) else 0
        wanted = max(self.window_frames, used + _MARGIN_FRAMES)
        wanted = -(-wanted // _QUANTUM_FRAMES) * _QUANTUM_FRAMES
        return super().encode(features[..., :wanted])

    def transcribe_together(
        self, audios: Sequence[npt.NDArray[np.float32]], *, language: str, hotwords: str | None, most: int
    ) -> list[Decoded]:
        """`audios` (16 kHz, at most 30 s each) in one pass: as `transcribe` does with one, greedily and
        without timestamps. `most` tokens are written for each."""
        tokenizer = Tokenizer(
            self.hf_tokenizer, self.model.is_multilingual, task="transcribe", language=language
        )
        prompt = self.get_prompt(tokenizer, [], without_timestamps=True, hotwords=hotwords)
        features = np.stack([pad_or_trim(self.feature_extractor(audio)[:, :-1]) for audio in audios])
        results = self.model.generate(
            self.encode(features),
            [prompt] * len(audios),
            beam_size=1,
            max_length=min(self.max_length, len(prompt) + most),
            suppress_blank=True,
            suppress_tokens=get_suppressed_tokens(tokenizer, [-1]),
            return_scores=True,
            return_no_speech_prob=True,
        )
        return [_decoded(result, tokenizer) for result in results]


def _decoded(result: Any, tokenizer: Tokenizer) -> Decoded:
    tokens = result.sequences_ids[0]
    logprob = result.scores[0] * len(tokens) / (len(tokens) + 1)  # scores are divided by the length
    return Decoded(tokenizer.decode(tokens).strip(), logprob, result.no_speech_prob)


def load(directory: str, *, window_s: int, threads: int, device: str, compute_type: str) -> WindowedWhisper:
    """The model of a local directory. Raises what CTranslate2 raises: RuntimeError, ValueError."""
    model = WindowedWhisper(
        directory,
        device=device,
        compute_type=compute_type,
        cpu_threads=1,  # one core a decode and as many decodes as cores: throughput before latency
        num_workers=threads,
        local_files_only=True,
    )
    model.window_frames = window_s * 100
    return model
