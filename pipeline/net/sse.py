"""Parses server-sent events (WHATWG HTML, 9.2.6) from bytes in pieces of any length, sans I/O."""

from __future__ import annotations

from typing import Final

_MARK: Final = b"\xef\xbb\xbf"  # a byte order mark, which may precede the first line


class EventReader:
    """Reads events from pieces of a stream: `feed` returns the data of each event that a piece completes."""

    __slots__ = ("_begun", "_data", "_line", "_returned")

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[str] = []
        self._begun = False
        self._returned = False  # the last piece ended with CR: a leading LF belongs to that CR

    @property
    def held(self) -> int:
        """Size of the incomplete event, in bytes and characters, line ends included."""
        return len(self._line) + sum(map(len, self._data)) + len(self._data)

    def feed(self, piece: bytes) -> list[str]:
        """Takes a piece of the stream; returns the data of each event that it completes."""
        if not piece:
            return []
        if self._returned:
            piece = piece.removeprefix(b"\n")
        self._returned = piece.endswith(b"\r")
        first, *others = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._line += first
        events = []
        for rest in others:
            line, self._line = self._line, bytearray(rest)
            self._take(line)
            if not line and self._data:
                events.append("\n".join(self._data))
                self._data.clear()
        return events

    def finish(self) -> list[str]:
        """Ends the stream; returns the data of an event that lacks only its empty line."""
        self._take(self._line)
        return ["\n".join(self._data)] if self._data else []

    def _take(self, line: bytes | bytearray) -> None:
        if not self._begun:
            line, self._begun = line.removeprefix(_MARK), True
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" ").decode("utf-8", "replace"))
