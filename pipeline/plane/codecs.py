"""Payloads to samples, frames to payloads. A codec's state lies in the stream's row, that of libopus too."""

from __future__ import annotations

from typing import Any, Final

from pipeline.audio import kernels
from pipeline.audio.compiled import compiled
from pipeline.audio.g722 import g722_decode, g722_encode, g722_init
from pipeline.audio.opus import (
    MAX_PACKET_BYTES,
    opus_decode,
    opus_decoder_init,
    opus_encode,
    opus_encoder_init,
)
from pipeline.plane.native import I16, I64, LINE, SCRATCH, U8, VOID
from pipeline.plane.rows import HISTORY, Kind

MAX_PAYLOAD_BYTES: Final = 1440
"""More does not fit an Ethernet frame beside the headers of IPv6, UDP and RTP."""

_PCMU, _PCMA, _G722, _OPUS = int(Kind.PCMU), int(Kind.PCMA), int(Kind.G722), int(Kind.OPUS)


@compiled(VOID(LINE, I64), inner=True)
def begin_decoder(line: Any, kind: int) -> None:
    """The next payload is of `kind`; its decoder goes on where the same source used it before."""
    if line.decoders >> kind & 1:
        return
    line.decoders |= 1 << kind
    if kind == _G722:
        g722_init(line.g722_heard[:])
    elif kind == _OPUS:
        opus_decoder_init(line.opus_heard[:].ctypes.data)


@compiled(I64(LINE, SCRATCH, U8, I64), inner=True)
def decode(line: Any, scratch: Any, payload: Any, kind: int) -> int:
    """A payload of at most `MAX_PAYLOAD_BYTES` as samples in `scratch.pcm`, at the codec's rate; how many.
    Not above 0: it is none of that codec."""
    size = payload.shape[0]
    pcm = scratch.pcm[:]
    if size == 0:  # to libopus: make something up
        return 0
    if kind == _PCMU:
        kernels.ulaw_decode(payload, pcm[:size])
    elif kind == _PCMA:
        kernels.alaw_decode(payload, pcm[:size])
    elif kind == _G722:
        g722_decode(payload, pcm, line.g722_heard[:])
        size *= 2
    else:
        size = I64(opus_decode(line.opus_heard[:].ctypes.data, payload, pcm, 0))
    return int(size)


@compiled(I64(LINE, I16, U8), inner=True)
def encode(line: Any, frame: Any, payload: Any) -> int:
    """A frame of 20 ms at the codec's rate as a payload; its size, not above 0 where libopus refuses."""
    size = frame.shape[0]
    if line.send_kind == _PCMU:
        kernels.ulaw_encode(frame, payload[:size])
    elif line.send_kind == _PCMA:
        kernels.alaw_encode(frame, payload[:size])
    elif line.send_kind == _G722:
        size //= 2
        g722_encode(frame, payload[:size], line.g722_sent[:])
    else:
        size = I64(opus_encode(line.opus_sent[:].ctypes.data, frame, payload[:MAX_PACKET_BYTES]))
    return int(size)


def begin_encoder(line: Any, kind: Kind, rate_hz: int) -> None:
    """What is sent from now on is of `kind`, at `rate_hz`. Raises `pipeline.audio.opus.OpusMissing`."""
    line["resent"] = 0
    if rate_hz != line["rate_hz"]:  # a page that is written is memory
        line["send_resampling"][:HISTORY] = 0
    if kind is Kind.G722:
        g722_init(line["g722_sent"])
    elif kind is Kind.OPUS:
        opus_encoder_init(line["opus_sent"].ctypes.data)
