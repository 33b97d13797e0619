"""An end-of-turn model from a file, with the interface of Smart Turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from faster_whisper.feature_extractor import FeatureExtractor
from onnx import TensorProto, helper

from pipeline.endpointing import smart_turn
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.endpointing.policy import TurnEvidence
from pipeline.endpointing.scorer import BuiltInDetector
from pipeline.errors import EngineError, EngineMissing
from pipeline.speech import Expected


def model_file(path: Path, shape: Sequence[int | str], nodes: Sequence[onnx.NodeProto], name: str) -> str:
    graph = helper.make_graph(
        list(nodes),
        "turn",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, str(path))
    return str(path)


@pytest.fixture
def features_model(tmp_path: Path) -> str:
    """The mean of the spectrogram's last second: high for sound there."""
    nodes = [
        helper.make_node("Slice", ["input_features", "from", "to", "axes"], ["end"]),
        helper.make_node("ReduceMean", ["end"], ["mean"], keepdims=0),
        helper.make_node("Sigmoid", ["mean"], ["p"]),
    ]
    consts = [
        helper.make_node(
            "Constant", [], [name], value=helper.make_tensor(name, TensorProto.INT64, [1], [value])
        )
        for name, value in (("from", 700), ("to", 800), ("axes", 2))
    ]
    return model_file(tmp_path / "features.onnx", [1, 80, 800], [*consts, *nodes], "input_features")


def tone(duration_s: float, rate_hz: int, hz: float = 440.0) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    time_s = np.arange(round(duration_s * rate_hz)) / rate_hz
    return (8000 * np.sin(2 * np.pi * hz * time_s)).astype(np.int16)


def evidence(seconds: float = 1.0, rate_hz: int = 8000, words: str = "") -> TurnEvidence:
    return TurnEvidence(audio=tone(seconds, rate_hz), rate_hz=rate_hz, words=words)


def test_the_spectrogram_is_that_of_whispers_feature_extractor() -> None:
    audio = smart_turn.model_audio(tone(3.0, 16000), 16000)
    normalised = smart_turn.normalised(audio)
    expected = FeatureExtractor(chunk_length=8)(normalised, padding=0)
    assert smart_turn.log_mel(audio).shape == (80, 800)
    np.testing.assert_allclose(smart_turn.log_mel(audio), expected[:, :800], atol=1e-3)


@pytest.mark.parametrize("rate_hz", [8000, 16000, 48000])
def test_the_model_gets_the_pause_at_the_end_at_16_khz(rate_hz: int) -> None:
    audio = smart_turn.model_audio(tone(2.0, rate_hz), rate_hz)
    assert audio.shape == (128000,)
    assert not audio[: 128000 - 32000].any()
    spectrum = np.abs(np.fft.rfft(audio[-16000:]))
    assert np.argmax(spectrum) == 440
    assert np.abs(audio).max() == pytest.approx(8000 / 32768, rel=0.02)


def test_of_more_than_eight_seconds_the_last_are_taken() -> None:
    long = np.concatenate([tone(3.0, 8000, 300.0), tone(8.0, 8000, 500.0)])
    spectrum = np.abs(np.fft.rfft(smart_turn.model_audio(long, 8000)))
    assert spectrum[300 * 8] < 0.01 * spectrum[500 * 8]


def test_features_go_in_and_a_probability_comes_out(features_model: str) -> None:
    model = smart_turn.load(features_model)
    silent = TurnEvidence(audio=np.concatenate([tone(3, 8000), np.zeros(12000, np.int16)]), rate_hz=8000)
    assert 0.0 <= model.p_eot(silent) < model.p_eot(evidence(3.0)) <= 1.0
    assert smart_turn.load(features_model) is model


def test_an_older_model_gets_the_audio_itself(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Abs", ["input_values"], ["size"]),
        helper.make_node("ReduceMax", ["size"], ["p"], keepdims=0),
    ]
    model = smart_turn.load(model_file(tmp_path / "raw.onnx", ["batch", 64000], nodes, "input_values"))
    loud = model.p_eot(evidence(4.0))
    sine = 1 / (1 + np.exp(-np.sqrt(2)))  # normalised; above 1 it is a logit
    assert loud == pytest.approx(sine, abs=0.02)


def test_what_is_not_a_turn_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineMissing, match="no such file"):
        smart_turn.load(str(tmp_path / "none.onnx"))
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model")
    with pytest.raises(EngineMissing, match=r"broken\.onnx"):
        smart_turn.load(str(broken))
    square = model_file(tmp_path / "x.onnx", [1, 3, 64, 64], [helper.make_node("Abs", ["x"], ["p"])], "x")
    with pytest.raises(EngineMissing, match="80 x 800"):
        smart_turn.load(square)


class Slow:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def p_eot(self, evidence: TurnEvidence) -> float:
        self.go.wait(30)
        return 0.99


class Broken:
    def p_eot(self, evidence: TurnEvidence) -> float:
        raise EngineError("broken", retryable=False)


async def test_the_model_is_asked_off_the_loop(features_model: str) -> None:
    with ThreadPoolExecutor(1) as threads:
        judge = EndOfTurnDetector(smart_turn.load(features_model), threads, deadline_s=30)
        assert await judge.p_eot(evidence(3.0)) == smart_turn.load(features_model).p_eot(evidence(3.0))
        assert judge.late == 0


async def test_a_model_that_is_late_or_broken_is_answered_for() -> None:
    asked = evidence(1.0, words="the screen is broken")
    slow = Slow()
    with ThreadPoolExecutor(1) as threads:
        judge = EndOfTurnDetector(slow, threads, deadline_s=0.01)
        assert await judge.p_eot(asked) == BuiltInDetector().p_eot(asked)
        assert judge.late == 1
        slow.go.set()
    broken = EndOfTurnDetector(Broken())
    assert await broken.p_eot(asked) == BuiltInDetector().p_eot(asked)


async def test_words_that_settle_it_are_not_put_to_the_model() -> None:
    digits = TurnEvidence(
        audio=tone(1, 8000), rate_hz=8000, words="four one", expected=Expected(kinds=("digits",), digits=4)
    )
    assert await EndOfTurnDetector(Broken()).p_eot(digits) < 0.1
    assert await asyncio.wait_for(EndOfTurnDetector(Slow(), deadline_s=30).p_eot(digits), 30) < 0.1


async def test_a_voice_that_nobody_can_tell_from_others_is_not_put_to_the_model() -> None:
    unheard = TurnEvidence(audio=tone(0, 8000), rate_hz=8000, words="the screen is broken")
    judge = EndOfTurnDetector(Broken())
    assert await judge.p_eot(unheard) == BuiltInDetector().p_eot(unheard)
    assert judge.late == 0
