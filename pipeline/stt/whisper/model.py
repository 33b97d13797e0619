"""The faster-whisper model, with a shorter encoder window. Imported only when the engine starts: it pulls in
CTranslate2, onnxruntime and PyAV (about a second), and comes with the extra `whisper`."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, when huggingface_hub is imported: never ask a hub

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from faster_whisper import WhisperModel
from faster_whisper.audio import pad_or_trim
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.transcribe import get_suppressed_tokens

from pipeline.stt.whisper.wire import Decoded

_FRAMES_A_SECOND = 100
_LONGEST_FRAMES = 3000  # the window of the training
_MARGIN_FRAMES = 100  # silence left behind the last sound, as in training
_QUANTUM_FRAMES = 50  # few distinct lengths, so that CTranslate2's buffers are reused


class WindowedWhisper(WhisperModel):  # type: ignore[misc]
    """`transcribe()` pads every utterance to 30 s, and the encoder pays for the silence: 30 s cost eight to
    ten times what 10 s do (measured, CPU). This one pads to the window that it is given.

    The window's length is part of what a model learned: stock weights were trained at 30 s and lose accuracy
    on much shorter ones (CTranslate2 #2100): under 10 s half of the words, with tiny.en.
    """

    def decoded(
        self,
        audios: Sequence[npt.NDArray[np.float32]],
        *,
        language: str,
        hotwords: str | None,
        window_s: int,
        most: int,
    ) -> list[Decoded]:
        """The texts of `audios` (16 kHz, at most 30 s each), in one pass, greedily and without timestamps.
        A window shorter than the longest of them grows. `most` tokens are written for each."""
        tokenizer = Tokenizer(
            self.hf_tokenizer, self.model.is_multilingual, task="transcribe", language=language
        )
        prompt = self.get_prompt(tokenizer, [], without_timestamps=True, hotwords=hotwords)
        results = self.model.generate(
            self.encode(self._features(audios, window_s)),
            [prompt] * len(audios),
            beam_size=1,
            max_length=min(self.max_length, len(prompt) + most),
            suppress_blank=True,
            suppress_tokens=get_suppressed_tokens(tokenizer, [-1]),
            return_scores=True,
            return_no_speech_prob=True,
        )
        return [_decoded(result, tokenizer, most) for result in results]

    def _features(self, audios: Sequence[npt.NDArray[np.float32]], window_s: int) -> npt.NDArray[np.float32]:
        features = [self.feature_extractor(audio)[:, :-1] for audio in audios]
        longest = max(each.shape[-1] for each in features)
        wanted = max(window_s * _FRAMES_A_SECOND, longest + _MARGIN_FRAMES)
        wanted = -(-wanted // _QUANTUM_FRAMES) * _QUANTUM_FRAMES
        return np.stack([pad_or_trim(each, min(wanted, _LONGEST_FRAMES)) for each in features])


def _decoded(result: Any, tokenizer: Tokenizer, most: int) -> Decoded:
    tokens = result.sequences_ids[0]
    logprob = result.scores[0] * len(tokens) / (len(tokens) + 1)  # scores are divided by the length
    return Decoded(
        tokenizer.decode(tokens).strip(),
        logprob,
        result.no_speech_prob,
        whole=len(tokens) < most,
    )


def load(directory: str, *, threads: int, device: str, compute_type: str) -> WindowedWhisper:
    """The model of a local directory. Raises what CTranslate2 raises: RuntimeError, ValueError."""
    return WindowedWhisper(
        directory,
        device=device,
        compute_type=compute_type,
        cpu_threads=1,  # one core a decode and as many decodes as cores: throughput before latency
        num_workers=threads,
        local_files_only=True,
    )
