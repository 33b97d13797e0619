"""Reads the samples of a 16-bit mono WAV file from a stream of bytes in pieces of any length.

A server that streams a WAV file writes no length (0), the largest one, or that of the first piece, and some
servers send a file for every sentence, one after the other. The length in the header therefore counts only if
another chunk or another file follows the samples."""

from __future__ import annotations

import struct
from enum import Enum, auto
from typing import Final

from pipeline.errors import EngineError

MARK: Final = b"RIFF"
"""The first bytes of a WAV file."""

HEADER_LIMIT: Final = 4096  # most bytes before the samples

_NO_LENGTH: Final = 0x7FFFFF00  # a length from here on stands for an unknown one
_CHUNK_HEAD: Final = 8
_CHUNKS: Final = frozenset((b"LIST", b"fact", b"cue ", b"smpl", b"bext", b"id3 ", b"ID3 ", b"PEAK", b"JUNK"))


class _Part(Enum):
    HEADER = auto()
    SAMPLES = auto()
    BEHIND = auto()  # after the samples; the next bytes decide
    SKIPPED = auto()


class WavStream:
    """Takes the bytes of a WAV stream and gives those of its samples. `rate_hz`: 0 until known."""

    __slots__ = ("_left", "_part", "_rest", "rate_hz")

    def __init__(self) -> None:
        self.rate_hz = 0
        self._part = _Part.HEADER
        self._rest = bytearray()
        self._left: int | None = 0  # bytes left of the part; None: until the end

    def feed(self, piece: bytes) -> bytes:
        """Takes a piece; returns the bytes of its samples (s16le). Raises `EngineError` for a file that is
        not 16 bit mono, or has no samples."""
        self._rest += piece
        out = bytearray()
        while self._rest and self._step(out):
            pass
        return bytes(out)

    def _step(self, out: bytearray) -> bool:
        """Handles the next part of the bytes; False: more bytes are needed."""
        match self._part:
            case _Part.HEADER:
                return self._begin()
            case _Part.BEHIND:
                return self._look_behind()
            case _:
                taken = len(self._rest) if self._left is None else min(self._left, len(self._rest))
                if self._part is _Part.SAMPLES:
                    out += self._rest[:taken]
                del self._rest[:taken]
                if self._left is not None:
                    self._left -= taken
                    self._part = self._part if self._left else _Part.BEHIND
                return True

    def _begin(self) -> bool:
        header = _header(bytes(self._rest[:HEADER_LIMIT]))
        if header is None:
            if len(self._rest) >= HEADER_LIMIT:
                raise EngineError("the voice sent a WAV file without samples", retryable=False)
            return False
        length, rate_hz, size = header
        if self.rate_hz not in (0, rate_hz):
            raise EngineError("the voice changes its rate", retryable=False)
        self.rate_hz = rate_hz
        del self._rest[:length]
        self._part, self._left = _Part.SAMPLES, size if 0 < size < _NO_LENGTH else None
        return True

    def _look_behind(self) -> bool:
        if len(self._rest) < _CHUNK_HEAD:
            return False
        name, size = self._rest[:4], struct.unpack_from("<I", self._rest, 4)[0]
        if name == MARK:
            self._part = _Part.HEADER
        elif bytes(name) in _CHUNKS:
            self._part, self._left = _Part.SKIPPED, _CHUNK_HEAD + size + (size & 1)
        else:
            self._part, self._left = _Part.SAMPLES, None
        return True


def _header(content: bytes) -> tuple[int, int, int] | None:
    """The offset of a WAV file's samples, the rate, and the header's length of the samples in bytes; None if
    more bytes are needed. Raises `EngineError` for a file that is not 16 bit mono."""
    place, rate_hz = 12, 0
    while place + 8 <= len(content):
        name, size = content[place : place + 4], struct.unpack_from("<I", content, place + 4)[0]
        place += 8
        if name == b"data":
            if not rate_hz:
                raise EngineError("the voice sent a WAV file without a format", retryable=False)
            return place, rate_hz, size
        if name == b"fmt ":
            if place + 16 > len(content):
                return None
            _, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", content, place)
            if (channels, bits) != (1, 16) or not 8000 <= rate_hz <= 48000:
                raise EngineError(
                    f"the voice sends {bits} bit, {channels} channels at {rate_hz} Hz instead of 16 bit mono",
                    retryable=False,
                )
        place += size + (size & 1)
    return None
