"""Encoders and decoders of the RTP audio formats in `sip.sdp.media_plan`.

G.711 and G.722 are this project's kernels (`pipeline.audio.kernels`, `pipeline.audio.g722`), Opus is libopus
(`pipeline.audio.opus`), which decodes a lost packet from the FEC in the one after it. One instance serves one
stream in one direction: all but G.711 carry state from frame to frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.audio import Pcm, frame_samples, g722, kernels
from pipeline.audio.opus import MAX_PACKET_BYTES, BadPacket, OpusDecoder, OpusEncoder
from pipeline.errors import PipelineError
from sip.errors import LocalError, SipError
from sip.sdp.media_plan import Codec

Payload: TypeAlias = npt.NDArray[np.uint8]
"""Bytes of an RTP payload as an array over somebody's buffer."""

MAX_PAYLOAD_BYTES = 1440
"""More does not fit an Ethernet frame beside the headers of IPv6, UDP and RTP."""


Recover: TypeAlias = Callable[[Payload, int], Pcm]
"""Gives what was lost before a payload: so many samples (120 ms at most, a rest of 2.5 ms is left out), valid
until the next call."""


class BadPayload(SipError):
    """A payload that its codec cannot decode."""


class Encoder(Protocol):
    """Encodes PCM frames of 20 ms to RTP payloads; one instance for one stream."""

    def encode(self, frame: Pcm, into: Payload) -> int:
        """Encodes 20 ms at the codec's `rate_hz` into the start of `into`, returns the bytes written; 0: the
        codec has nothing to send for it. Raises `BadPayload` when `into` is too small, or the codec does
        not encode `frame`."""


class Decoder(Protocol):
    """Decodes RTP payloads to PCM; one instance for one stream."""

    @property
    def recover(self) -> Recover | None:
        """How the codec itself fills a gap; None: it cannot."""

    def decode(self, payload: Payload) -> Pcm:
        """Decodes a payload at the codec's `rate_hz`, whatever its duration; the array is valid until the
        next call. Raises `BadPayload`."""


def encoder(codec: Codec) -> Encoder:
    """Creates an encoder for one stream. Raises LocalError for an unsupported codec, and for
    Opus without libopus."""
    match codec.name.lower():
        case "pcmu":
            return _G711Encoder(kernels.ulaw_encode)
        case "pcma":
            return _G711Encoder(kernels.alaw_encode)
        case "g722":
            return _G722Encoder()
        case "opus":
            return _OpusEncoder()
    raise LocalError(f"no encoder for {codec.name}")


def decoder(codec: Codec) -> Decoder:
    """Creates a decoder for one stream. Raises LocalError for an unsupported codec, and for
    Opus without libopus."""
    match codec.name.lower():
        case "pcmu":
            return _G711Decoder(kernels.ulaw_decode)
        case "pcma":
            return _G711Decoder(kernels.alaw_decode)
        case "g722":
            return _G722Decoder()
        case "opus":
            return _OpusDecoder()
    raise LocalError(f"no decoder for {codec.name}")


def silent_payload(codec: Codec) -> bytes | None:
    """Returns 20 ms of silence where its encoding is constant (G.711: the code of a sample of 0), else
    None."""
    code = {"pcmu": b"\xff", "pcma": b"\xd5"}.get(codec.name.lower())
    return code * frame_samples(codec.rate_hz) if code else None


class _Companding(Protocol):
    def __call__(self, source: Any, target: Any, /) -> Any: ...


class _G711Encoder:
    __slots__ = ("_kernel",)

    def __init__(self, kernel: _Companding) -> None:
        self._kernel = kernel

    def encode(self, frame: Pcm, into: Payload) -> int:
        samples = len(frame)
        if len(into) < samples:  # the kernel does not check bounds
            raise BadPayload("frame does not fit the packet")
        self._kernel(frame, into)
        return samples


class _G711Decoder:
    __slots__ = ("_frame", "_kernel", "_samples")
    recover = None

    def __init__(self, kernel: _Companding) -> None:
        self._kernel = kernel
        self._samples: Pcm = np.zeros(MAX_PAYLOAD_BYTES, np.int16)
        self._frame = self._samples[: frame_samples(8000)]

    def decode(self, payload: Payload) -> Pcm:
        size = len(payload)
        if size == len(self._frame):
            self._kernel(payload, self._frame)
            return self._frame
        if not 0 < size <= MAX_PAYLOAD_BYTES:
            raise BadPayload("empty or oversized G.711 payload")
        samples = self._samples[:size]
        self._kernel(payload, samples)
        return samples


class _G722Encoder:
    __slots__ = ("_row",)

    def __init__(self) -> None:
        self._row = np.zeros(g722.COLUMNS, np.int32)
        g722.g722_init(self._row)

    def encode(self, frame: Pcm, into: Payload) -> int:
        octets = len(frame) // 2
        if len(into) < octets:
            raise BadPayload("frame does not fit the packet")
        g722.g722_encode(frame, into, self._row)
        return octets


class _G722Decoder:
    __slots__ = ("_row", "_samples")
    recover = None

    def __init__(self) -> None:
        self._row = np.zeros(g722.COLUMNS, np.int32)
        g722.g722_init(self._row)
        self._samples: Pcm = np.zeros(2 * MAX_PAYLOAD_BYTES, np.int16)

    def decode(self, payload: Payload) -> Pcm:
        size = len(payload)
        if not 0 < size <= MAX_PAYLOAD_BYTES:
            raise BadPayload("empty or oversized G.722 payload")
        g722.g722_decode(payload, self._samples, self._row)
        return self._samples[: 2 * size]


class _OpusEncoder:
    __slots__ = ("_encoder",)

    def __init__(self) -> None:
        try:
            self._encoder = OpusEncoder()
        except PipelineError as error:
            raise LocalError(f"no encoder for opus: {error}") from error

    def encode(self, frame: Pcm, into: Payload) -> int:
        if len(into) < MAX_PACKET_BYTES:
            raise BadPayload("an Opus packet may not fit")
        try:
            return self._encoder.encode_into(frame, into)
        except (ValueError, PipelineError) as error:
            raise BadPayload("frame that Opus does not encode") from error


class _OpusDecoder:
    __slots__ = ("_decoder",)

    def __init__(self) -> None:
        try:
            self._decoder = OpusDecoder()
        except PipelineError as error:
            raise LocalError(f"no decoder for opus: {error}") from error

    def decode(self, payload: Payload) -> Pcm:
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise BadPayload("oversized Opus payload")
        try:
            return self._decoder.decode(payload)
        except BadPacket as error:
            raise BadPayload("payload that its codec cannot decode") from error

    def recover(self, following: Payload, samples: int) -> Pcm:
        return self._decoder.recover(following, samples)
