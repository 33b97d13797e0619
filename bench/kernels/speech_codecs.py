"""Cases of G.722 and Opus, encoding and decoding, beside FFmpeg's through PyAV with the same and with earlier
settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import cycle
from typing import Any, Final

import av
import numpy as np

from pipeline.audio import Pcm, g722, opus
from pipeline.audio.resample import Resampler

RATE_HZ: Final = 16000
_FRAME: Final = 320

Contenders = dict[str, Callable[[], object]]


def rows() -> Iterator[tuple[str, Contenders, str]]:
    """Name, contenders, note."""
    yield "G.722 encode", _g722_encoders(), "bit-exact with FFmpeg's"
    yield "G.722 decode", _g722_decoders(), "bit-exact with FFmpeg's"
    yield "Opus encode", _opus_encoders(), "16 kHz, FEC in every packet of voice"
    yield "Opus decode", _opus_decoders(), "to 16 kHz"


def _voice() -> list[Pcm]:
    """Returns two seconds of a speech-like signal: harmonics of a gliding pitch, breath, and pauses between
    words."""
    t = np.arange(2 * RATE_HZ) / RATE_HZ
    phase = 2 * np.pi * (110 * t + 8 * np.sin(2 * np.pi * 1.3 * t))
    wave = np.sum([np.sin(k * phase) / k for k in range(1, 30)], axis=0)
    wave += np.random.default_rng(20).normal(0, 0.1, t.size)
    envelope = np.clip(0.4 + np.sin(2 * np.pi * 3 * t), 0.002, 1.0)
    samples = (9000 * wave * envelope / np.abs(wave).max()).astype(np.int16)
    return [samples[at : at + _FRAME] for at in range(0, samples.size, _FRAME)]


def _pyav_encode(name: str, frames: Iterator[Pcm], bit_rate: int = 0, **options: str) -> Callable[[], object]:
    context: Any = av.CodecContext.create(name, "w")
    context.sample_rate, context.layout, context.format = RATE_HZ, "mono", "s16"
    context.time_base, context.options = Fraction(1, RATE_HZ), options
    if bit_rate:
        context.bit_rate = bit_rate
    context.open()
    frame: Any = av.AudioFrame(format="s16", layout="mono", samples=_FRAME)
    frame.sample_rate, frame.pts = RATE_HZ, 0

    def run() -> object:
        frame.planes[0].update(next(frames))
        frame.pts += _FRAME
        return [bytes(packet) for packet in context.encode(frame)]

    return run


def _pyav_decode(name: str, rate_hz: int, packets: Iterator[bytes]) -> Callable[[], object]:
    context: Any = av.CodecContext.create(name, "r")
    context.sample_rate, context.layout = rate_hz, "mono"
    context.open()
    resampler = Resampler(rate_hz, RATE_HZ) if rate_hz != RATE_HZ else None

    def run() -> object:
        (frame,) = context.decode(av.Packet(next(packets)))
        samples = np.frombuffer(frame.planes[0], np.int16, frame.samples)
        return samples if resampler is None else resampler(samples)

    return run


def _g722_row() -> g722.Row:
    row = np.zeros(g722.COLUMNS, np.int32)
    g722.g722_init(row)
    return row


def _g722_encoders() -> Contenders:
    frames, row, octets = cycle(_voice()), _g722_row(), np.zeros(160, np.uint8)
    return {
        "ours": lambda: g722.g722_encode(next(frames), octets, row),
        "PyAV": _pyav_encode("g722", cycle(_voice())),
    }


def _g722_decoders() -> Contenders:
    row, encoding, coded = _g722_row(), _g722_row(), []
    for frame in _voice():
        coded.append(np.zeros(160, np.uint8))
        g722.g722_encode(frame, coded[-1], encoding)
    packets, out = cycle(coded), np.zeros(_FRAME, np.int16)
    return {
        "ours": lambda: g722.g722_decode(next(packets), out, row),
        "PyAV": _pyav_decode("g722", RATE_HZ, cycle([each.tobytes() for each in coded])),
    }


def _opus_encoders() -> Contenders:
    frames, encoder = cycle(_voice()), opus.OpusEncoder()
    options = {"application": "voip", "frame_duration": "20", "fec": "1", "packet_loss": "10"}
    same = {**options, "compression_level": str(opus.COMPLEXITY)}
    before = {**options, "compression_level": "5"}
    return {
        "ours": lambda: encoder.encode(next(frames)),
        "PyAV, the same settings": _pyav_encode("libopus", cycle(_voice()), opus.BIT_RATE, **same),
        "PyAV, complexity 5": _pyav_encode("libopus", cycle(_voice()), 24_000, **before),
    }


def _opus_decoders() -> Contenders:
    encoder, decoder = opus.OpusEncoder(), opus.OpusDecoder()
    coded = [encoder.encode(frame) for frame in _voice()]
    packets = cycle(coded)
    return {
        "ours": lambda: decoder.decode(next(packets)),
        "PyAV and a resampler": _pyav_decode("libopus", 48_000, cycle(coded)),
    }
