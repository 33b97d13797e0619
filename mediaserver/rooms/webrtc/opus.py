"""Opus by libopus through ctypes: FFmpeg's wrapper decodes neither the in-band FEC of the packet after a lost
one nor straight to 16 kHz (RFC 6716: any packet decodes at any of five rates).

The library is the one inside PyAV's wheel, else the system's. Calls keep the interpreter's lock (`PyDLL`): a
call takes 15 to 60 µs, and getting the lock back while another thread computes takes up to 5 ms.

Measured per frame of 20 ms on a shared 2-core machine: decoding to 16 kHz 16 µs (PyAV and a resampler: 52),
encoding 16 kHz at complexity 1 35 µs, FEC included (complexity 3: 85)."""

from __future__ import annotations

import ctypes
import ctypes.util
from functools import cache
from pathlib import Path
from typing import Any, Final

import av
import numpy as np

from mediaserver.rooms.errors import RoomError
from pipeline.audio import Pcm, frame_samples

RATE_HZ: Final = 16000
"""The rate of a room's legs: wideband, which recognisers use."""

CLOCK_HZ: Final = 48000
"""The clock of Opus timestamps, whatever the audio's rate (RFC 7587 4.1)."""

MAX_PACKET_BYTES: Final = 1275
MAX_PACKET_MS: Final = 120

BIT_RATE: Final = 28_000
COMPLEXITY: Final = 1
"""The encoder's complexity, 0 to 10. One voice at 16 kHz gains little above 1, and 2 costs twice as much."""

_VOIP: Final = 2048
_SET_BITRATE: Final = 4002
_SET_COMPLEXITY: Final = 4010
_SET_INBAND_FEC: Final = 4012
_SET_LOSS_PERC: Final = 4014
_SET_SIGNAL: Final = 4024
_SIGNAL_VOICE: Final = 3001
_EXPECTED_LOSS_PERCENT: Final = 5


class OpusMissing(RoomError):
    """This machine has no libopus."""


class BadPacket(RoomError):
    """An RTP payload is not a valid Opus packet."""


@cache
def library() -> ctypes.PyDLL:
    """Loads libopus: PyAV's own, else the system's. Raises `OpusMissing`."""
    bundled = sorted((Path(av.__file__).parent.parent / "av.libs").glob("libopus*"))
    name = str(bundled[0]) if bundled else ctypes.util.find_library("opus")
    if name is None:
        raise OpusMissing("libopus is missing: install PyAV's wheel (av) or the package libopus0")
    try:
        opus = ctypes.PyDLL(name)
    except OSError as error:
        raise OpusMissing(f"libopus cannot be loaded: {error}") from error
    state, integer, pointer = ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p
    signatures: tuple[tuple[Any, Any, list[Any]], ...] = (
        (opus.opus_encoder_create, state, [ctypes.c_int32, integer, integer, pointer]),
        (opus.opus_decoder_create, state, [ctypes.c_int32, integer, pointer]),
        (opus.opus_encoder_destroy, None, [state]),
        (opus.opus_decoder_destroy, None, [state]),
        (opus.opus_encode, ctypes.c_int32, [state, pointer, integer, pointer, ctypes.c_int32]),
        (opus.opus_decode, integer, [state, ctypes.c_char_p, ctypes.c_int32, pointer, integer, integer]),
    )
    for function, result, arguments in signatures:
        function.restype = result
        function.argtypes = arguments
    opus.opus_encoder_ctl.argtypes = [state, integer]  # and variadic arguments after these
    return opus


class OpusEncoder:
    """Encodes mono voice at `RATE_HZ` into packets of 20 ms, each with FEC of the packet before."""

    __slots__ = ("_address", "_encode", "_opus", "_out", "_samples", "_state")

    def __init__(self) -> None:
        self._opus = opus = library()
        error = ctypes.c_int()
        self._state = opus.opus_encoder_create(RATE_HZ, 1, _VOIP, ctypes.byref(error))
        if not self._state:
            raise RoomError(f"libopus makes no encoder: error {error.value}")
        self._encode = opus.opus_encode
        self._samples = frame_samples(RATE_HZ)
        self._out = np.zeros(MAX_PACKET_BYTES, np.uint8)
        self._address = self._out.ctypes.data
        for request, value in (
            (_SET_BITRATE, BIT_RATE),
            (_SET_COMPLEXITY, COMPLEXITY),
            (_SET_SIGNAL, _SIGNAL_VOICE),
            (_SET_INBAND_FEC, 1),
            (_SET_LOSS_PERC, _EXPECTED_LOSS_PERCENT),
        ):
            opus.opus_encoder_ctl(self._state, request, ctypes.c_int(value))

    def encode(self, frame: Pcm) -> bytes:
        """Returns the packet of a 20 ms frame. Raises ValueError for another length, `RoomError` where
        libopus fails."""
        if frame.shape[0] != self._samples or not frame.flags.c_contiguous:
            raise ValueError("a frame is 20 ms of contiguous samples")
        size = self._encode(self._state, frame.ctypes.data, self._samples, self._address, MAX_PACKET_BYTES)
        if size < 0:
            raise RoomError(f"libopus does not encode: error {size}")
        return self._out[:size].tobytes()

    def __del__(self) -> None:
        if getattr(self, "_state", None):
            self._opus.opus_encoder_destroy(self._state)


class OpusDecoder:
    """Decodes any Opus packet to mono int16 at `RATE_HZ`. A returned array is valid until the next call."""

    __slots__ = ("_address", "_decode", "_frame", "_limit", "_opus", "_out", "_state")

    def __init__(self) -> None:
        self._opus = opus = library()
        error = ctypes.c_int()
        self._state = opus.opus_decoder_create(RATE_HZ, 1, ctypes.byref(error))
        if not self._state:
            raise RoomError(f"libopus makes no decoder: error {error.value}")
        self._decode = opus.opus_decode
        self._limit = RATE_HZ * MAX_PACKET_MS // 1000
        self._frame = frame_samples(RATE_HZ)
        self._out: Pcm = np.zeros(self._limit, np.int16)
        self._address = self._out.ctypes.data

    def decode(self, packet: bytes) -> Pcm:
        """Returns the audio of a packet, 2.5 to 120 ms. Raises `BadPacket`."""
        count = self._decode(self._state, packet, len(packet), self._address, self._limit, 0)
        if count <= 0:
            raise BadPacket(f"not an Opus packet: error {count}")
        return self._out[:count]

    def recover(self, following: bytes) -> Pcm:
        """Returns 20 ms for the lost packet before `following`, from the FEC in `following` where there is
        any, else concealed."""
        count = self._decode(self._state, following, len(following), self._address, self._frame, 1)
        return self._out[:count] if count > 0 else self.conceal()

    def conceal(self) -> Pcm:
        """Returns 20 ms of concealment for a lost packet; it fades to silence after several."""
        count = self._decode(self._state, None, 0, self._address, self._frame, 0)
        return self._out[: max(count, 0)]

    def __del__(self) -> None:
        if getattr(self, "_state", None):
            self._opus.opus_decoder_destroy(self._state)
