"""Opus (RFC 6716) by libopus itself: FFmpeg's wrapper cannot decode the in-band FEC of the packet after
a lost one, nor straight to 16 kHz (any packet decodes at any of five rates).

The library is the one inside PyAV's wheel, else the system's. Encoding and decoding are compiled like
`pipeline.audio.kernels`, and call the library by the names that it exports: compiled code calls `opus_encode`
and `opus_decode` without Python in between. The GIL is kept where Python calls: they take 10 to 50 µs, and
getting it back while another thread computes takes up to 5 ms.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeAlias

import llvmlite.binding
import numba
import numpy as np
import numpy.typing as npt

from pipeline.audio.compiled import compiled
from pipeline.audio.frames import Pcm, frame_samples
from pipeline.errors import PipelineError

Octets: TypeAlias = npt.NDArray[np.uint8]
Packet: TypeAlias = bytes | Octets

RATE_HZ: Final = 16000
"""The rate of legs that speak Opus: wideband, what recognisers take."""

CLOCK_HZ: Final = 48000
"""What Opus timestamps count, whatever the audio's rate is (RFC 7587 4.1)."""

MAX_PACKET_BYTES: Final = 1275
MAX_PACKET_MS: Final = 120

BIT_RATE: Final = 28_000
COMPLEXITY: Final = 1
"""Of 10. One voice at 16 kHz gains little above it, and 2 costs twice as much."""

STEP: Final = RATE_HZ // 400
"""Samples in 2.5 ms: durations are whole multiples of it."""

_VOIP: Final = 2048
_SET_BITRATE: Final = 4002
_SET_COMPLEXITY: Final = 4010
_SET_INBAND_FEC: Final = 4012
_SET_LOSS_PERC: Final = 4014
_SET_SIGNAL: Final = 4024
_SIGNAL_VOICE: Final = 3001
_EXPECTED_LOSS_PERCENT: Final = 10
"""With 5 libopus 1.6 puts no FEC into any packet at this bit rate and complexity."""


class OpusMissing(PipelineError):
    """No libopus on this machine."""


class BadPacket(PipelineError):
    """An RTP payload is not a valid Opus packet."""


# --- the library ------------------------------------------------------------------------------------


def _found() -> tuple[ctypes.PyDLL | None, str]:
    """The library, and why there is none. Compiled code finds its functions by their names from then on, in
    this library whatever else the process has loaded."""
    wheel = find_spec("av")
    package = Path(wheel.origin).parent if wheel is not None and wheel.origin else Path()
    folders = (package.parent / "av.libs", package / ".dylibs")
    bundled = [str(path) for folder in folders for path in sorted(folder.glob("libopus*"))]
    name = bundled[0] if bundled else ctypes.util.find_library("opus")
    if name is None:
        return None, "libopus is missing: install PyAV's wheel (av) or the package libopus0"
    try:
        library = ctypes.PyDLL(name)
    except OSError as error:
        return None, f"libopus cannot be loaded: {error}"
    state, integer, pointer = ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p
    signatures: tuple[tuple[Any, Any, list[Any]], ...] = (
        (library.opus_encoder_create, state, [ctypes.c_int32, integer, integer, pointer]),
        (library.opus_decoder_create, state, [ctypes.c_int32, integer, pointer]),
        (library.opus_encoder_destroy, None, [state]),
        (library.opus_decoder_destroy, None, [state]),
        (library.opus_encoder_get_size, integer, [integer]),
        (library.opus_decoder_get_size, integer, [integer]),
        (library.opus_encoder_init, integer, [state, ctypes.c_int32, integer, integer]),
    )
    for function, result, arguments in signatures:
        function.restype = result
        function.argtypes = arguments
    library.opus_encoder_ctl.argtypes = [state, integer]  # and variadic after that
    return library, ""


_LIBRARY, _WHY_NOT = _found()
_REFUSES: Final = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: -1)
for _name in ("opus_encode", "opus_decode", "opus_decoder_init"):
    # A name that cannot be resolved ends the process.
    _function = _REFUSES if _LIBRARY is None else getattr(_LIBRARY, _name)
    llvmlite.binding.add_symbol(_name, ctypes.cast(_function, ctypes.c_void_p).value)


def library() -> ctypes.PyDLL:
    """Returns libopus, loaded at import. Raises `OpusMissing` where this machine has none."""
    if _LIBRARY is None:
        raise OpusMissing(_WHY_NOT)
    return _LIBRARY


ENCODER_BYTES: Final[int] = _LIBRARY.opus_encoder_get_size(1) if _LIBRARY is not None else 0
DECODER_BYTES: Final[int] = _LIBRARY.opus_decoder_get_size(1) if _LIBRARY is not None else 0
"""Of a state that lies in the caller's memory, at a multiple of 8; 0: no libopus."""

# --- kernels ----------------------------------------------------------------------------------------

_TYPES: Final[Any] = numba.types
_I32: Final = _TYPES.int32
_ADDRESS: Final = _TYPES.uintp
_U8_IN: Final = _TYPES.Array(_TYPES.uint8, 1, "C", readonly=True)
_U8: Final = _TYPES.uint8[::1]
_I16_IN: Final = _TYPES.Array(_TYPES.int16, 1, "C", readonly=True)
_I16: Final = _TYPES.int16[::1]

_opus_encode: Final = _TYPES.ExternalFunction("opus_encode", _I32(_ADDRESS, _ADDRESS, _I32, _ADDRESS, _I32))
_opus_decode: Final = _TYPES.ExternalFunction(
    "opus_decode", _I32(_ADDRESS, _ADDRESS, _I32, _ADDRESS, _I32, _I32)
)
_opus_decoder_init: Final = _TYPES.ExternalFunction("opus_decoder_init", _I32(_ADDRESS, _I32, _I32))


@compiled(_I32(_ADDRESS))
def opus_decoder_init(state: int) -> int:
    """Begins a decoder at the address `state`, where `DECODER_BYTES` are free; negative for an error."""
    error: int = _opus_decoder_init(state, RATE_HZ, 1)
    return error


def opus_encoder_init(state: int) -> None:
    """Begins an encoder like that of `OpusEncoder` at the address `state`, where `ENCODER_BYTES` are free.
    Raises `OpusMissing`."""
    error = library().opus_encoder_init(state, RATE_HZ, 1, _VOIP)
    if error:
        raise PipelineError(f"libopus makes no encoder: error {error}")
    _tune(state)


def _tune(state: int) -> None:
    for request, value in (
        (_SET_BITRATE, BIT_RATE),
        (_SET_COMPLEXITY, COMPLEXITY),
        (_SET_SIGNAL, _SIGNAL_VOICE),
        (_SET_INBAND_FEC, 1),
        (_SET_LOSS_PERC, _EXPECTED_LOSS_PERCENT),
    ):
        library().opus_encoder_ctl(state, request, ctypes.c_int(value))


@compiled(_I32(_ADDRESS, _I16, _U8), _I32(_ADDRESS, _I16_IN, _U8))
def opus_encode(state: int, frame: Pcm, packet: Octets) -> int:
    """Encodes all of `frame` (mono) with the encoder at the address `state`. Returns the bytes written to
    `packet`, negative for an error of libopus."""
    size: int = _opus_encode(state, frame.ctypes.data, frame.shape[0], packet.ctypes.data, packet.shape[0])
    return size


@compiled(_I32(_ADDRESS, _U8, _I16, _I32), _I32(_ADDRESS, _U8_IN, _I16, _I32))
def opus_decode(state: int, packet: Octets, out: Pcm, fec: int) -> int:
    """Decodes with the decoder at the address `state`. Returns the samples written to `out`, negative for an
    error of libopus.

    `fec` 0: the audio of `packet`. 1: `out` is filled with what was lost before `packet`, its end from the
    FEC in `packet` where there is any, the rest made up; it is as long as what was lost, in whole 2.5 ms.
    No octets: all of `out` is made up.
    """
    size = packet.shape[0]
    address = packet.ctypes.data if size else 0
    count: int = _opus_decode(state, address, size, out.ctypes.data, out.shape[0], fec)
    return count


def opus_warm() -> None:
    """Runs both once, where there is a library."""
    if _LIBRARY is not None:
        OpusDecoder().decode(OpusEncoder().encode(np.zeros(frame_samples(RATE_HZ), np.int16)))


_NOTHING: Final[Octets] = np.zeros(0, np.uint8)

# --- streams ----------------------------------------------------------------------------------------


class OpusEncoder:
    """Mono voice of `RATE_HZ` to packets of 20 ms, each with FEC of the packet before."""

    __slots__ = ("_library", "_out", "_samples", "state")

    def __init__(self) -> None:
        self._library = opus = library()
        error = ctypes.c_int()
        self.state: int = opus.opus_encoder_create(RATE_HZ, 1, _VOIP, ctypes.byref(error))
        if not self.state:
            raise PipelineError(f"libopus makes no encoder: error {error.value}")
        self._samples = frame_samples(RATE_HZ)
        self._out: Octets = np.zeros(MAX_PACKET_BYTES, np.uint8)
        _tune(self.state)

    def encode(self, frame: Pcm) -> bytes:
        """20 ms as a packet. Raises ValueError for any other length."""
        return self._out[: self.encode_into(frame, self._out)].tobytes()

    def encode_into(self, frame: Pcm, packet: Octets) -> int:
        """20 ms as the first octets of `packet`, which has room for MAX_PACKET_BYTES; returns how many.
        Raises ValueError for any other length."""
        if frame.shape[0] != self._samples or packet.shape[0] < MAX_PACKET_BYTES:
            raise ValueError("a frame is 20 ms, a packet 1275 octets at most")
        size = opus_encode(self.state, frame, packet)
        if size < 0:
            raise PipelineError(f"libopus does not encode: error {size}")
        return size

    def __del__(self) -> None:
        if getattr(self, "state", None):
            self._library.opus_encoder_destroy(self.state)


class OpusDecoder:
    """Packets of any kind to mono of `RATE_HZ`. What it returns is valid until the next call."""

    __slots__ = ("_library", "_out", "state")

    def __init__(self) -> None:
        self._library = opus = library()
        error = ctypes.c_int()
        self.state: int = opus.opus_decoder_create(RATE_HZ, 1, ctypes.byref(error))
        if not self.state:
            raise PipelineError(f"libopus makes no decoder: error {error.value}")
        self._out: Pcm = np.zeros(RATE_HZ * MAX_PACKET_MS // 1000, np.int16)

    def decode(self, packet: Packet) -> Pcm:
        """The audio of a packet: 2.5 to 120 ms. Raises `BadPacket`."""
        if len(packet) == 0:  # to libopus: make something up
            raise BadPacket("an empty payload is no Opus packet")
        count = opus_decode(self.state, np.frombuffer(packet, np.uint8), self._out, 0)
        if count <= 0:
            raise BadPacket(f"not an Opus packet: error {count}")
        return self._out[:count]

    def recover(self, following: Packet, samples: int) -> Pcm:
        """What was lost before the packet `following`: `samples`, 120 ms at most, in whole steps of 2.5 ms.
        The end, as long as that packet, comes from its FEC where it has any; the rest is made up, and is
        silence after some 100 ms."""
        lost = self._out[: samples // STEP * STEP]
        if len(following) == 0 or opus_decode(self.state, np.frombuffer(following, np.uint8), lost, 1) < 0:
            opus_decode(self.state, _NOTHING, lost, 0)
        return lost

    def __del__(self) -> None:
        if getattr(self, "state", None):
            self._library.opus_decoder_destroy(self.state)
