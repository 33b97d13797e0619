"""Files in the place of samples are known for what they are, and samples are never taken for files."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, cast

import av
import numpy as np
import pytest

from pipeline.audio import Pcm
from pipeline.errors import EngineError
from pipeline.net.audio_types import HEAD, disguise
from pipeline.tts.openai import SoundCutter

RATE_HZ = 24000


def speech_like(seconds: float = 1.0) -> Pcm:
    time_s = np.arange(int(RATE_HZ * seconds)) / RATE_HZ
    tone = 8000 * np.sin(2 * np.pi * 180 * time_s) * (1 + np.sin(2 * np.pi * 3 * time_s))
    return cast(Pcm, tone.astype(np.int16))


def encoded(container: str, codec: str, **options: str) -> bytes:
    """A second of sound as PyAV writes it."""
    file = io.BytesIO()
    with av.open(file, "w", format=container, options=options) as output:
        stream: Any = output.add_stream(codec, rate=RATE_HZ, layout="mono")
        frame = av.AudioFrame.from_ndarray(speech_like()[np.newaxis], format="s16", layout="mono")
        frame.sample_rate = RATE_HZ
        for made in av.AudioResampler(stream.format, stream.layout, RATE_HZ).resample(frame):
            made.pts = None
            output.mux(stream.encode(made))
        output.mux(stream.encode(None))
    return file.getvalue()


FILES = {
    "mp3 with a tag": lambda: encoded("mp3", "libmp3lame"),
    "mp3 without one": lambda: encoded("mp3", "libmp3lame", id3v2_version="0", write_xing="0"),
    "aac": lambda: encoded("adts", "aac"),
    "ogg": lambda: encoded("ogg", "libopus"),
    "flac": lambda: encoded("flac", "flac"),
    "webm": lambda: encoded("webm", "libopus"),
    "html": lambda: b"<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>" + bytes(2000),
    "json": lambda: b'{"error": {"message": "the model is loading, come again in a while, please do"}}',
}


@pytest.mark.parametrize("pieces", [1, 700, 100_000])
@pytest.mark.parametrize("make", FILES.values(), ids=FILES)
def test_no_sample_is_made_of_a_file(make: Callable[[], bytes], pieces: int) -> None:
    content = make()
    cutter, made = SoundCutter(RATE_HZ), 0

    def feed() -> None:
        nonlocal made
        for start in range(0, len(content), pieces):
            made += cutter.push(content[start : start + pieces]).size
        made += cutter.finish().size

    with pytest.raises(EngineError, match="instead of pcm"):
        feed()
    assert made == 0


def test_samples_are_samples_wherever_they_begin() -> None:
    sound = speech_like()
    noise = np.random.default_rng(3).integers(-32768, 32767, 20_000, dtype=np.int16)
    for samples in (sound, noise, sound // 4000, np.full(2000, -1, np.int16), np.zeros(2000, np.int16)):
        content = samples.astype("<i2").tobytes()
        for start in range(0, 4000, 2):
            assert disguise(content[start : start + 1500]) in ("", None)
            assert disguise(content[start:], whole=True) == ""


def test_a_few_samples_are_heard_too() -> None:
    cutter = SoundCutter(RATE_HZ)
    assert cutter.push(speech_like().tobytes()[: HEAD - 2]).size == 0
    assert cutter.finish().size == HEAD // 2 - 1
