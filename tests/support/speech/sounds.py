"""Audio files of every format, and files that only pretend to be."""

from __future__ import annotations

import io
from typing import Any

import av
import numpy as np

from pipeline.audio import Pcm


def tone(rate_hz: int, duration_ms: int, *, hz: float = 440.0) -> Pcm:
    """A sine at a fifth of full scale."""
    t = np.arange(rate_hz * duration_ms // 1000) / rate_hz
    samples: Pcm = (6000 * np.sin(2 * np.pi * hz * t)).astype(np.int16)
    return samples


def file_of(
    samples: Pcm, rate_hz: int, *, container: str = "wav", codec: str = "pcm_s16le", channels: int = 1
) -> bytes:
    """A file that FFmpeg makes of `samples`, the same in every channel."""
    layout = "mono" if channels == 1 else "stereo"
    file = io.BytesIO()
    with av.open(file, "w", format=container) as written:
        stream: Any = written.add_stream(codec, rate=rate_hz, layout=layout)
        wanted = stream.codec_context.codec.audio_formats[0].name
        resampler = av.AudioResampler(format=wanted, layout=layout, rate=rate_hz)
        for start in range(0, len(samples), rate_hz):
            frame = av.AudioFrame.from_ndarray(
                np.repeat(samples[start : start + rate_hz], channels).reshape(1, -1),
                format="s16",
                layout=layout,
            )
            frame.sample_rate = rate_hz
            for resampled in resampler.resample(frame):
                written.mux(stream.encode(resampled))
        for resampled in resampler.resample(None):
            written.mux(stream.encode(resampled))
        written.mux(stream.encode(None))
    return file.getvalue()


def played(octets: bytes) -> tuple[Pcm, int]:
    """What a player makes of a file: mono samples, and their rate."""
    container: Any
    with av.open(io.BytesIO(octets), "r") as container:
        rate_hz = container.streams.audio[0].rate
        resampler = av.AudioResampler(format="s16", layout="mono", rate=rate_hz)
        pieces = [
            resampled.to_ndarray().reshape(-1)
            for frame in container.decode(audio=0)
            for resampled in resampler.resample(frame)
        ]
    return np.concatenate(pieces), rate_hz
