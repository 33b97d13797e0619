"""Encoders and decoders of the RTP audio formats in `sip.sdp.media_plan`.

G.711 is one table look-up per sample (`pipeline.audio.kernels`); G.722 and Opus are FFmpeg's, through PyAV,
at 7 to 80 µs a frame. FFmpeg's wrapper has no way to decode Opus's in-band FEC of the next packet, so a lost
Opus packet is concealed like any other; we send FEC, which costs nothing.

One instance serves one stream in one direction: all but G.711 carry state from frame to frame.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Protocol, TypeAlias

import av
import av.error
import numpy as np
import numpy.typing as npt

from pipeline.audio import Pcm, frame_samples, kernels
from pipeline.audio.resample import Resampler
from sip.errors import LocalError, SipError
from sip.sdp.media_plan import Codec

Payload: TypeAlias = npt.NDArray[np.uint8]
"""Bytes of an RTP payload as an array over somebody's buffer."""

MAX_PAYLOAD_BYTES = 1440
"""More does not fit an Ethernet frame beside the headers of IPv6, UDP and RTP."""

_OPUS_BIT_RATE = 24_000  # wideband voice, transparent enough for recognition at a third of G.711's bits
_OPUS_DECODED_HZ = 48_000


class BadPayload(SipError):
    """A payload that its codec cannot decode."""


class Encoder(Protocol):
    """Encodes PCM frames of 20 ms to RTP payloads; one instance for one stream."""

    def encode(self, frame: Pcm, into: Payload) -> int:
        """Encodes 20 ms at the codec's `rate_hz` into the start of `into`, returns the bytes written; 0: the
        codec has nothing to send for it. Raises `BadPayload` when `into` is too small."""


class Decoder(Protocol):
    """Decodes RTP payloads to PCM; one instance for one stream."""

    @property
    def delay_samples(self) -> int:
        """By how many samples at the codec's `rate_hz` its own resampler makes the audio late."""

    def decode(self, payload: Payload) -> Pcm:
        """The payload's audio at the codec's `rate_hz`, whatever its duration; valid until the next call.
        Raises `BadPayload`."""


def encoder(codec: Codec) -> Encoder:
    """Creates an encoder for one stream. Raises LocalError for an unsupported codec."""
    match codec.name.lower():
        case "pcmu":
            return _G711Encoder(kernels.ulaw_encode)
        case "pcma":
            return _G711Encoder(kernels.alaw_encode)
        case "g722":
            return _AvEncoder("g722", codec.rate_hz, {})
        case "opus":
            return _AvEncoder("libopus", codec.rate_hz, _OPUS_OPTIONS, _OPUS_BIT_RATE)
    raise LocalError(f"no encoder for {codec.name}")


def decoder(codec: Codec) -> Decoder:
    """Creates a decoder for one stream. Raises LocalError for an unsupported codec."""
    match codec.name.lower():
        case "pcmu":
            return _G711Decoder(kernels.ulaw_decode)
        case "pcma":
            return _G711Decoder(kernels.alaw_decode)
        case "g722":
            return _AvDecoder("g722", codec.rate_hz, codec.rate_hz)
        case "opus":
            return _AvDecoder("libopus", _OPUS_DECODED_HZ, codec.rate_hz)
    raise LocalError(f"no decoder for {codec.name}")


def silent_payload(codec: Codec) -> bytes | None:
    """Returns 20 ms of silence where its encoding is constant (G.711: the code of a sample of 0), else
    None."""
    code = {"pcmu": b"\xff", "pcma": b"\xd5"}.get(codec.name.lower())
    return code * frame_samples(codec.rate_hz) if code else None


# libopus: voice, in-band FEC for a path that loses a tenth, no long look-ahead; complexity 5 halves the time
# of 10 for a difference that a telephone does not carry.
_OPUS_OPTIONS = {
    "application": "voip",
    "frame_duration": "20",
    "fec": "1",
    "packet_loss": "10",
    "compression_level": "5",
}


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
    delay_samples = 0

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


class _AvEncoder:
    """An FFmpeg encoder. Its frame is reused: both encoders read it before `encode` returns."""

    __slots__ = ("_context", "_frame", "_pts", "_samples")

    def __init__(self, name: str, rate_hz: int, options: dict[str, str], bit_rate: int = 0) -> None:
        context: Any = av.CodecContext.create(name, "w")  # its audio half is not in the stubs
        context.sample_rate = rate_hz
        context.layout = "mono"
        context.format = "s16"
        context.time_base = Fraction(1, rate_hz)
        context.options = dict(options)
        if bit_rate:
            context.bit_rate = bit_rate
        context.open()
        self._context = context
        self._samples = frame_samples(rate_hz)
        self._frame: Any = av.AudioFrame(format="s16", layout="mono", samples=self._samples)
        self._frame.sample_rate = rate_hz
        self._pts = 0

    def encode(self, frame: Pcm, into: Payload) -> int:
        if len(frame) != self._samples:
            raise BadPayload("not a frame of 20 ms")
        self._frame.planes[0].update(np.ascontiguousarray(frame))
        self._frame.pts = self._pts
        self._pts += self._samples
        size = 0
        for packet in self._context.encode(self._frame):
            end = size + packet.size
            if end > len(into):
                raise BadPayload("encoded frame does not fit the packet")
            into[size:end] = np.frombuffer(packet, np.uint8)
            size = end
        return size


class _AvDecoder:
    """An FFmpeg decoder that gives mono s16 at `decoded_hz`, brought to `rate_hz`."""

    __slots__ = ("_context", "_resampler")

    def __init__(self, name: str, decoded_hz: int, rate_hz: int) -> None:
        context: Any = av.CodecContext.create(name, "r")
        context.sample_rate = decoded_hz
        context.layout = "mono"
        context.open()
        self._context = context
        self._resampler = Resampler(decoded_hz, rate_hz) if decoded_hz != rate_hz else None

    @property
    def delay_samples(self) -> int:
        """See `Decoder`."""
        return 0 if self._resampler is None else self._resampler.delay_samples

    def decode(self, payload: Payload) -> Pcm:
        if not 0 < len(payload) <= MAX_PAYLOAD_BYTES:
            raise BadPayload("empty or oversized payload")
        try:
            frames = self._context.decode(av.Packet(payload.tobytes()))
        except av.error.FFmpegError as error:
            raise BadPayload("payload that its codec cannot decode") from error
        pieces = [np.frombuffer(frame.planes[0], np.int16, frame.samples) for frame in frames]
        if not pieces:
            raise BadPayload("payload without audio")
        samples: Pcm = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return samples if self._resampler is None else self._resampler(samples)
