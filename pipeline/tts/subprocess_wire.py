"""What the server and the process of a voice say to each other: length-prefixed messages over pipes.

A message is one byte of kind, four of request number, four of payload length (big-endian), and the payload.

| kind | direction | payload |
|---|---|---|
| SPEAK | to the voice | JSON object: what the voice is asked for; `due`: when (monotonic) it is to be heard |
| CANCEL | to the voice | empty: stop or skip that request (it still ends with DONE) |
| READY | to the server | JSON object: rate_hz; once, request number 0 |
| CHUNK | to the server | count of words (2 bytes), position and sample of each (4 bytes), samples (s16le) |
| DONE | to the server | empty: the request is over |
| FAILED | to the server | UTF-8 reason: the request is over; instead of READY: it cannot start |
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

HEADER = struct.Struct("!BII")
_COUNT = struct.Struct("!H")
_WORD = struct.Struct("!II")

PAYLOAD_LIMIT = 4 * 1024 * 1024
"""No honest message comes near it; a longer one means that the stream is out of step."""


class Kind(enum.IntEnum):
    """Kinds of messages."""

    SPEAK = 1
    CANCEL = 2
    READY = 10
    CHUNK = 11
    DONE = 12
    FAILED = 13


class Word(NamedTuple):
    """A word begins at character `position` of the text and at `sample` of the speech."""

    position: int
    sample: int


def pack(kind: Kind, request: int, payload: bytes = b"") -> bytes:
    """One message."""
    return HEADER.pack(kind, request, len(payload)) + payload


def pack_chunk(samples: bytes, words: list[Word]) -> bytes:
    """The payload of a CHUNK."""
    return _COUNT.pack(len(words)) + b"".join(_WORD.pack(*word) for word in words) + samples


def unpack_chunk(payload: bytes) -> tuple[memoryview, list[Word]]:
    """Samples (s16le) and words of a CHUNK. Raises struct.error for a short one."""
    (count,) = _COUNT.unpack_from(payload)
    start = _COUNT.size + count * _WORD.size
    words = [Word(*_WORD.unpack_from(payload, _COUNT.size + index * _WORD.size)) for index in range(count)]
    return memoryview(payload)[start:], words
