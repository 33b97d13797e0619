"""Runs the faster-whisper model with a shorter encoder window. Imported only in the process of the model:
faster-whisper, of the extra `whisper`, imports CTranslate2, onnxruntime and PyAV in about a second."""

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
_LONGEST_FRAMES = 3000  # the window of Whisper's training
_MARGIN_FRAMES = 100  # silence after the last sound, as in training
_QUANTUM_FRAMES = 50  # few distinct lengths, so that CTranslate2's buffers are reused


class WindowedWhisper(WhisperModel):  # type: ignore[misc]
    """A `WhisperModel` that pads utterances to a given window. `transcribe()` pads every utterance to 30 s,
    which takes the encoder eight to ten times as long as 10 s (measured, CPU).

    Stock weights were trained with windows of 30 s and lose accuracy on much shorter ones (CTranslate2
    #2100): below 10 s half of the words are wrong, with tiny.en.
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
        """Decodes `audios` (float32 at 16 kHz, at most 30 s each) in one pass, greedily and without
        timestamps, with at most `most` tokens each. `window_s`: least window; longer audio gets a longer
        one."""
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
    """Loads the model of a local directory. Raises RuntimeError, ValueError (CTranslate2's)."""
    return WindowedWhisper(
        directory,
        device=device,
        compute_type=compute_type,
        cpu_threads=1,  # one core for each decode: throughput before latency
        num_workers=threads,
        local_files_only=True,
    )
