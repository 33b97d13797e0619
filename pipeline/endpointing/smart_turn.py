"""Detects the end of a turn by an ONNX model from a local file with the interface of Smart Turn
(pipecat-ai/smart-turn).

Version 3 takes the log-mel spectrogram of Whisper's feature extractor (80 x 800: 8 s at 16 kHz), older
versions take 16 kHz audio; the shape of the model's input tells which. Shorter audio is padded with zeros at
the beginning, so that the pause is always at the end. The output is the probability that the turn is over (a
number outside 0 to 1 is taken for its logit).

onnxruntime comes with the extra `whisper`."""

from __future__ import annotations

import importlib
import logging
import math
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.audio import Pcm
from pipeline.audio.resample import resample
from pipeline.endpointing.policy import EVIDENCE_S, TurnEvidence
from pipeline.errors import EngineError, EngineMissing, boundary, contained

MODEL_RATE_HZ: Final = 16000
SAMPLES: Final = int(EVIDENCE_S * MODEL_RATE_HZ)
MELS, FRAMES = 80, 800
_FFT, _HOP = 400, 160

log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float32]


class SmartTurn:
    """An `EndOfTurnScorer` with a loaded model, shared by all calls of the process (`load`). `p_eot` takes up
    to tens of ms and is therefore called in a thread."""

    def __init__(self, session: Any, *, features: bool, length: int) -> None:
        self._session = session
        self._input = session.get_inputs()[0].name
        self._features = features
        self._length = length

    def p_eot(self, evidence: TurnEvidence) -> float:
        """Gives the probability that the turn is over, 0 to 1. Raises `EngineError` when the model fails."""
        audio = model_audio(evidence.audio, evidence.rate_hz, self._length)
        given = log_mel(audio)[np.newaxis] if self._features else normalised(audio)[np.newaxis]
        with contained("the turn model"):
            answer = self._session.run(None, {self._input: given})
            value = float(np.asarray(answer[0]).reshape(-1)[-1])
        if not math.isfinite(value):
            raise EngineError("turn model: its answer is not a number", retryable=False)
        return value if 0.0 <= value <= 1.0 else 1.0 / (1.0 + math.exp(-max(-60.0, min(value, 60.0))))


@lru_cache(maxsize=4)
def load(path: str) -> SmartTurn:
    """Loads the model of a file, once for each path. Raises `EngineMissing`, which names the problem."""
    if not Path(path).is_file():
        raise EngineMissing(f"turn model {path}: no such file")
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise EngineMissing("turn model: onnxruntime is missing; install the extra whisper") from error
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # calls run in several threads
    with boundary(log, "turn model not loaded", path=path) as failure:  # a class for each status code
        session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    if failure.error is not None:
        raise EngineMissing(f"turn model {path}: {failure.error}") from failure.error
    return _fitting(path, session)


def _fitting(path: str, session: Any) -> SmartTurn:
    inputs = session.get_inputs()
    shape = list(inputs[0].shape)
    if len(inputs) == 1 and shape[1:] == [MELS, FRAMES]:
        return SmartTurn(session, features=True, length=SAMPLES)
    if len(inputs) == 1 and len(shape) == 2:
        length = shape[1] if isinstance(shape[1], int) else SAMPLES
        return SmartTurn(session, features=False, length=length)
    raise EngineMissing(
        f"turn model {path}: takes {len(inputs)} input(s) of shape {shape}, not 1 x {MELS} x {FRAMES} "
        "log-mel or 1 x samples of 16 kHz audio"
    )


def model_audio(audio: Pcm, rate_hz: int, length: int = SAMPLES) -> Floats:
    """Gives the last `length` samples at 16 kHz, float32 from -1 to 1, after zeros where there are fewer."""
    recent = resample(audio, rate_hz, MODEL_RATE_HZ)[-length:]
    padded = np.zeros(length, np.float32)
    if len(recent):
        padded[-len(recent) :] = recent / np.float32(32768)
    return padded


def normalised(audio: Floats) -> Floats:
    """Scales to zero mean and unit variance, like Whisper's feature extractor with `do_normalize`."""
    scaled: Floats = ((audio - audio.mean()) / np.sqrt(audio.var() + 1e-7)).astype(np.float32)
    return scaled


def log_mel(audio: Floats) -> Floats:
    """Gives the log-mel spectrogram of Whisper (Radford 2022, section 2.2; audio.py of openai/whisper) of
    normalised 16 kHz audio: shape (80, 800) for 8 s."""
    padded = np.pad(normalised(audio), _FFT // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, _FFT)[::_HOP][:-1]
    power = np.abs(np.fft.rfft(frames * _hann(), axis=1)) ** 2
    mel = np.log10(np.maximum(_filters() @ power.T, 1e-10))
    scaled: Floats = ((np.maximum(mel, mel.max() - 8.0) + 4.0) / 4.0).astype(np.float32)
    return scaled


@cache
def _hann() -> npt.NDArray[np.float64]:
    return np.hanning(_FFT + 1)[:-1]


@cache
def _filters() -> npt.NDArray[np.float64]:
    """The mel filters of Slaney's Auditory Toolbox (linear to 1 kHz, logarithmic above), of equal area."""
    bins_hz = np.fft.rfftfreq(_FFT, 1 / MODEL_RATE_HZ)
    edges = np.linspace(0.0, 15.0 + 27.0 * math.log(8.0) / math.log(6.4), MELS + 2)
    edges_hz = np.where(
        edges < 15.0, edges * 200.0 / 3.0, 1000.0 * np.exp((edges - 15.0) * math.log(6.4) / 27.0)
    )
    widths = np.diff(edges_hz)
    ramps = edges_hz[:, np.newaxis] - bins_hz
    rising, falling = -ramps[:-2] / widths[:-1, np.newaxis], ramps[2:] / widths[1:, np.newaxis]
    filters: npt.NDArray[np.float64] = np.maximum(0.0, np.minimum(rising, falling))
    return filters * (2.0 / (edges_hz[2:] - edges_hz[:-2]))[:, np.newaxis]
