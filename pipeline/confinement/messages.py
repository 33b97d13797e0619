"""Messages between the server and a process beside it, over pipes or stream sockets.

A message is the length of its head (4 bytes, big-endian), the length of its payload (4 bytes), the head (a
JSON object) and the payload (samples)."""

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
    """The part of `asyncio.StreamReader` that `receive_from` needs: a process beside the server does not
    import asyncio."""

    async def readexactly(self, n: int) -> bytes:
        """Reads exactly `n` bytes. Raises EOFError where the stream ends before."""


def pack(head: Mapping[str, Any], payload: bytes = b"") -> bytes:
    """Returns the bytes of a message with `head` and `payload`."""
    text = json.dumps(head).encode()
    return LENGTHS.pack(len(text), len(payload)) + text + payload


def receive(read: Callable[[int], bytes]) -> tuple[dict[str, Any], bytes]:
    """Reads one message; returns its head and payload. `read` gives as many bytes as asked for, or fewer at
    the end. Raises EOFError at the end, ValueError for what is no message."""
    length, size = _lengths(_whole(read, LENGTHS.size))
    head = _object(_whole(read, length))
    return head, _whole(read, size) if size else b""


async def receive_from(stream: Stream) -> tuple[dict[str, Any], bytes]:
    """Reads one message that a process sent to the server; returns its head and payload. Raises EOFError and
    ValueError as `receive` does."""
    length, size = _lengths(await stream.readexactly(LENGTHS.size))
    if max(length, size) > ANSWER_LIMIT:
        raise ValueError("the messages of a process are out of step")
    head = _object(await stream.readexactly(length))
    return head, await stream.readexactly(size) if size else b""


def answers() -> BinaryIO:
    """Returns the stream that a process beside the server writes its messages to: its former standard output.
    What libraries print goes to standard error from then on. SIGINT, which Ctrl-C sends to the whole process
    group, is ignored: the server handles it."""
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
