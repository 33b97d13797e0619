"""Assembles text streams to the agent from LiveKit's data packets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from livekit.protocol import models

MAX_STREAMS: Final = 8
MAX_TEXT_BYTES: Final = 64 * 1024
"""The most bytes of a text to the agent; a longer one is dropped."""

PATIENCE_S: Final = 30.0
"""Seconds that a stream may take to end."""


@dataclass(slots=True)
class _Stream:
    began_s: float
    chunks: dict[int, bytes] = field(default_factory=dict)
    size: int = 0


class TextStreams:
    """Text streams of one client; `done` gets each complete text."""

    def __init__(self, done: Callable[[str], None]) -> None:
        self._done = done
        self._streams: dict[str, _Stream] = {}

    def __len__(self) -> int:
        """The number of streams that are not complete yet."""
        return len(self._streams)

    def begin(self, header: models.DataStream.Header, now: float) -> None:
        """Begins a text stream; other kinds of streams are ignored. Drops streams older than `PATIENCE_S`."""
        for stream_id in [each for each, it in self._streams.items() if now - it.began_s > PATIENCE_S]:
            del self._streams[stream_id]
        if header.HasField("text_header") and len(self._streams) < MAX_STREAMS:
            self._streams[header.stream_id] = _Stream(now)

    def add(self, chunk: models.DataStream.Chunk, now: float) -> None:
        """Adds a chunk; chunks may arrive in any order and twice."""
        stream = self._streams.get(chunk.stream_id)
        if stream is None or chunk.chunk_index in stream.chunks:
            return
        stream.size += len(chunk.content) + 1
        if stream.size > MAX_TEXT_BYTES:
            del self._streams[chunk.stream_id]
        else:
            stream.chunks[chunk.chunk_index] = chunk.content

    def end(self, trailer: models.DataStream.Trailer, now: float) -> None:
        """Ends a stream; one whose trailer has a reason was given up by the sender and is dropped."""
        stream = self._streams.pop(trailer.stream_id, None)
        if stream is not None and not trailer.reason:
            content = b"".join(stream.chunks[index] for index in sorted(stream.chunks))
            self._done(content.decode("utf-8", "replace"))
