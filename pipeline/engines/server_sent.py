"""Server-sent events (WHATWG HTML, 9.2.6) out of bytes that are cut anywhere: sans I/O."""

from __future__ import annotations

from typing import Final

_MARK: Final = b"\xef\xbb\xbf"  # a byte order mark: before the first line


class EventReader:
    """Feed it pieces, get the data of each event that they complete. `held`: how much of an event without its
    end there is, in bytes and characters, line ends among them."""

    __slots__ = ("_begun", "_data", "_line")

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[str] = []
        self._begun = False

    @property
    def held(self) -> int:
        """See above."""
        return len(self._line) + sum(map(len, self._data)) + len(self._data)

    def feed(self, piece: bytes) -> list[str]:
        """The events that are complete now."""
        self._line += piece.replace(b"\r", b"")
        *lines, rest = self._line.split(b"\n")
        self._line = bytearray(rest)
        events = []
        for line in lines:
            self._take(line)
            if not line and self._data:
                events.append("\n".join(self._data))
                self._data.clear()
        return events

    def finish(self) -> list[str]:
        """The stream is over; an event that lacks its end is one all the same."""
        self._take(self._line)
        return ["\n".join(self._data)] if self._data else []

    def _take(self, line: bytes | bytearray) -> None:
        if not self._begun:
            line, self._begun = line.removeprefix(_MARK), True
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" ").decode("utf-8", "replace"))
