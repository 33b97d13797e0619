"""What the server and a process beside it say to each other: messages over pipes or stream sockets.

A message is the length of its head (4 bytes, big-endian), the length of its payload (4 bytes), the head (a
JSON object) and the payload (samples).
"""

from __future__ import annotations

import json
import os
import signal
import struct
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final, Protocol

LENGTHS: Final = struct.Struct("!II")

HEAD_LIMIT: Final = 16 * 1024 * 1024
ANSWER_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of a head, and of a head and of a payload that a process sends to the server: no honest message comes
near it, a longer one means that the stream is out of step."""


class Stream(Protocol):
    """What `receive_from` needs of `asyncio.StreamReader`, which no process beside the server loads."""

    async def readexactly(self, n: int) -> bytes:
        """So many bytes. Raises EOFError."""


def pack(head: Mapping[str, Any], payload: bytes = b"") -> bytes:
    """One message."""
    text = json.dumps(head).encode()
    return LENGTHS.pack(len(text), len(payload)) + text + payload


def receive(read: Callable[[int], bytes]) -> tuple[dict[str, Any], bytes]:
    """One message, from `read`, which gives so many bytes, or fewer at the end. Raises EOFError there, and
    ValueError for what is no message."""
    length, size = _lengths(_whole(read, LENGTHS.size))
    head = _object(_whole(read, length))
    return head, _whole(read, size) if size else b""


async def receive_from(stream: Stream) -> tuple[dict[str, Any], bytes]:
    """One message of a process to the server. Raises EOFError and ValueError as `receive` does."""
    length, size = _lengths(await stream.readexactly(LENGTHS.size))
    if max(length, size) > ANSWER_LIMIT:
        raise ValueError("the messages of a process are out of step")
    head = _object(await stream.readexactly(length))
    return head, await stream.readexactly(size) if size else b""


def answers() -> BinaryIO:
    """Of a process beside the server: where its messages go, which is what its standard output was. Whatever
    a library prints lands in standard error. Ctrl-C, which reaches the whole group, is left to the server."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return sink


def _lengths(data: bytes) -> tuple[int, int]:
    length, size = LENGTHS.unpack(data)
    if length > HEAD_LIMIT:
        raise ValueError("the messages of a process are out of step")
    return length, size


def _object(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text)
    except RecursionError:
        raise ValueError("a message nested too deeply") from None
    if not isinstance(head, dict):
        raise ValueError("a message without an object")
    return head


def _whole(read: Callable[[int], bytes], size: int) -> bytes:
    data = read(size)
    if len(data) < size:
        raise EOFError
    return data
