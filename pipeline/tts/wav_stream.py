"""The samples of a WAV file that is still being sent: 16 bit, mono, cut anywhere.

Servers that make the file as they speak write no length (0), the longest one, or that of the first piece, and
some send a file for every sentence, one behind the other. So the length of the samples is believed only where
something that is no sound follows: another chunk, or another file."""

from __future__ import annotations

import struct
from enum import Enum, auto
from typing import Final

from pipeline.errors import EngineError

MARK: Final = b"RIFF"
"""What a file begins with."""

HEADER_LIMIT: Final = 4096  # before the samples

_NO_LENGTH: Final = 0x7FFFFF00  # and beyond: written by somebody who did not know it
_CHUNK_HEAD: Final = 8
_CHUNKS: Final = frozenset((b"LIST", b"fact", b"cue ", b"smpl", b"bext", b"id3 ", b"ID3 ", b"PEAK", b"JUNK"))


class _Part(Enum):
    HEADER = auto()
    SAMPLES = auto()
    BEHIND = auto()  # what follows the samples is not known yet
    SKIPPED = auto()


class WavStream:
    """Bytes in, bytes of samples out. `rate_hz` is 0 until it is known."""

    __slots__ = ("_left", "_part", "_rest", "rate_hz")

    def __init__(self) -> None:
        self.rate_hz = 0
        self._part = _Part.HEADER
        self._rest = bytearray()
        self._left: int | None = 0  # bytes of the part; None: until the end

    def feed(self, piece: bytes) -> bytes:
        """The samples in `piece`. Raises `EngineError` for another kind of file, or one without samples."""
        self._rest += piece
        out = bytearray()
        while self._rest and self._step(out):
            pass
        return bytes(out)

    def _step(self, out: bytearray) -> bool:
        """Whether there may be more to do."""
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
    """Where the samples of a WAV file begin, its rate, and how many bytes of samples it claims; None while
    that is not known. Raises `EngineError` for what is not 16 bit mono."""
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
