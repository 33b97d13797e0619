"""The comparison with other frameworks: who takes part, and what is computed of their answers."""

from __future__ import annotations

import numpy as np
import pytest

from bench.call.impaired_line import linear
from bench.call.server import SENTENCE, tone
from bench.call.server import SENTENCE_S as OURS_S
from bench.call.server import VOICE_HZ as OURS_HZ
from bench.peers.__main__ import AIORTC, LIVEKIT, OURS, OURS_WEB, PIPECAT, contenders, figures
from bench.peers.stubs import ANSWER, SENTENCE_S, VOICE_HZ, sentence
from pipeline.audio import kernels


def test_a_framework_that_is_not_installed_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(contenders("/bin/false")) == [OURS, OURS_WEB, AIORTC]
    told = capsys.readouterr().err
    assert told.count("left out, not installed") == 2
    assert list(contenders("/bin/true")) == [OURS, PIPECAT, LIVEKIT, OURS_WEB, AIORTC]


def test_all_contenders_say_the_same_sentence() -> None:
    assert (ANSWER, SENTENCE_S, VOICE_HZ) == (SENTENCE, OURS_S, OURS_HZ)
    assert np.array_equal(sentence(), tone(SENTENCE_S))


def test_cpu_is_told_for_a_second_of_a_session() -> None:
    told = figures(4, 0.8, 10.0, [10.0, 30.0], 1)
    assert told["cpu_ms_per_session_second"] == 20.0
    assert (told["over_ms"]["p50"], told["over_ms"]["count"], told["missed"]) == (20.0, 2, 1)


def test_the_callers_decode_the_codec_of_the_recordings_as_the_server_does() -> None:
    ours = np.empty(256, np.int16)
    kernels.ulaw_decode(np.arange(256, dtype=np.uint8), ours)
    assert np.array_equal(linear(), ours)
