"""The codecs of a far end, for load and tests: frames of 20 ms to payloads, and payloads to samples."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.audio import Pcm, g722, kernels
from pipeline.audio.opus import OpusDecoder, OpusEncoder
from pipeline.plane.codecs import MAX_PAYLOAD_BYTES
from sip.sdp.media_plan import Codec

Payload: TypeAlias = npt.NDArray[np.uint8]
"""Octets of an RTP payload, as an array over somebody's buffer."""


class Encoder(Protocol):
    """One stream's."""

    def encode(self, frame: Pcm, into: Payload) -> int:
        """Encodes 20 ms at the codec's `rate_hz` into the start of `into`, which has room for any payload;
        returns the octets written."""


class Decoder(Protocol):
    """One stream's."""

    def decode(self, payload: Payload) -> Pcm:
        """Decodes a payload at the codec's `rate_hz`; the array is valid until the next call."""


def ulaw(samples: Pcm) -> bytes:
    """Returns `samples` in G.711 µ-law."""
    octets = np.empty(samples.size, np.uint8)
    kernels.ulaw_encode(np.ascontiguousarray(samples), octets)
    return octets.tobytes()


def from_ulaw(octets: bytes) -> Pcm:
    """Returns the samples of G.711 µ-law."""
    samples = np.empty(len(octets), np.int16)
    kernels.ulaw_decode(np.frombuffer(octets, np.uint8), samples)
    return samples


def over_ulaw(wave: npt.ArrayLike) -> Pcm:
    """Returns what µ-law makes of a wave, whose samples are rounded and limited."""
    return from_ulaw(ulaw(np.clip(np.round(np.asarray(wave)), -32768, 32767).astype(np.int16)))


def encoder(codec: Codec) -> Encoder:
    """An encoder for one stream."""
    name = codec.name.lower()
    if name == "opus":
        return _OpusEncoder()
    return _G722() if name == "g722" else _G711(name)


def decoder(codec: Codec) -> Decoder:
    """A decoder for one stream."""
    name = codec.name.lower()
    if name == "opus":
        return _OpusDecoder()
    return _G722() if name == "g722" else _G711(name)


class _G711:
    def __init__(self, name: str) -> None:
        self._encode: Any = kernels.ulaw_encode if name == "pcmu" else kernels.alaw_encode
        self._decode: Any = kernels.ulaw_decode if name == "pcmu" else kernels.alaw_decode
        self._samples: Pcm = np.zeros(MAX_PAYLOAD_BYTES, np.int16)

    def encode(self, frame: Pcm, into: Payload) -> int:
        self._encode(frame, into)
        return len(frame)

    def decode(self, payload: Payload) -> Pcm:
        samples = self._samples[: len(payload)]
        self._decode(payload, samples)
        return samples


class _G722:
    def __init__(self) -> None:
        self._row = np.zeros(g722.COLUMNS, np.int32)
        g722.g722_init(self._row)
        self._samples: Pcm = np.zeros(2 * MAX_PAYLOAD_BYTES, np.int16)

    def encode(self, frame: Pcm, into: Payload) -> int:
        g722.g722_encode(frame, into, self._row)
        return len(frame) // 2

    def decode(self, payload: Payload) -> Pcm:
        g722.g722_decode(payload, self._samples, self._row)
        return self._samples[: 2 * len(payload)]


class _OpusEncoder:
    def __init__(self) -> None:
        self._encoder = OpusEncoder()

    def encode(self, frame: Pcm, into: Payload) -> int:
        return self._encoder.encode_into(frame, into)


class _OpusDecoder:
    def __init__(self) -> None:
        self._decoder = OpusDecoder()

    def decode(self, payload: Payload) -> Pcm:
        return self._decoder.decode(payload)
