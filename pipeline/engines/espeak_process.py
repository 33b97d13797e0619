"""The espeak-ng helper process: `python -m pipeline.engines.espeak_process`, messages on stdin and stdout.

espeak-ng is GPL-3.0-or-later: in a process of its own it stays a program beside the server, and a crash of
its C code costs one sentence instead of every call. Requests are served one after another, in the order of
their numbers (1600 times real time: a sentence is a few milliseconds). The process ends when its stdin does,
so it cannot outlive the server.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from typing import Any, BinaryIO

from pipeline.engines.espeak_library import EspeakLibrary, VoiceUnknown, WordEvent
from pipeline.engines.espeak_wire import HEADER, PAYLOAD_LIMIT, Kind, Word, pack, pack_chunk

_FIRST_CHUNK_MS = 240
_LATER_CHUNK_MS = 500
"""Samples are gathered to these lengths, because every message wakes the server's event loop; the library
gives 60 ms at a time. The first chunk holds a word or two, so that speech can begin."""

_REQUESTS = 1024
"""Bound of the queue: far more sentences than a machine's calls can wait for at once; a full queue stops
reading, and the pipe then holds the server's writes back."""


class Helper:
    """Serves requests from one stream onto another."""

    def __init__(self, source: BinaryIO, sink: BinaryIO, library: EspeakLibrary) -> None:
        self._source = source
        self._sink = sink
        self._library = library
        self._requests: queue.Queue[tuple[int, dict[str, Any]] | None] = queue.Queue(_REQUESTS)
        self._cancelled: set[int] = set()
        self._finished = 0

    def run(self) -> None:
        """Serves until the source ends."""
        threading.Thread(target=self._read, name="espeak requests", daemon=True).start()
        self._send(Kind.READY, 0, json.dumps({"rate_hz": self._library.rate_hz}).encode())
        while (item := self._requests.get()) is not None:
            number, request = item
            try:
                self._speak(number, request)
                self._send(Kind.DONE, number)
            except VoiceUnknown as error:
                self._send(Kind.FAILED, number, f"no voice called {error}".encode())
            except (OSError, KeyError, TypeError, ValueError) as error:
                self._send(Kind.FAILED, number, repr(error).encode())
            finally:
                self._finished = number
                self._cancelled.discard(number)

    def _read(self) -> None:
        while (message := self._next()) is not None:
            kind, number, payload = message
            if kind == Kind.CANCEL and number > self._finished:
                self._cancelled.add(number)
            elif kind == Kind.SPEAK:
                self._requests.put((number, json.loads(payload)))
        self._requests.put(None)

    def _next(self) -> tuple[int, int, bytes] | None:
        header = self._source.read(HEADER.size)
        if len(header) < HEADER.size:
            return None
        kind, number, length = HEADER.unpack(header)
        if length > PAYLOAD_LIMIT:
            return None
        return kind, number, self._source.read(length)

    def _speak(self, number: int, request: dict[str, Any]) -> None:
        gathered, words = bytearray(), list[Word]()
        enough = self._bytes(_FIRST_CHUNK_MS)

        def gather(samples: bytes, events: list[WordEvent]) -> bool:
            nonlocal enough
            words.extend(Word(max(event.position, 0), event.sample) for event in events)
            gathered.extend(samples)
            if len(gathered) >= enough:
                self._send(Kind.CHUNK, number, pack_chunk(bytes(gathered), words))
                gathered.clear()
                words.clear()
                enough = self._bytes(_LATER_CHUNK_MS)
            return number in self._cancelled

        if number in self._cancelled:
            return
        parameters = {name: int(request[name]) for name in ("rate_wpm", "pitch", "volume")}
        self._library.speak(str(request["text"]), gather, voice=str(request["voice"]), parameters=parameters)
        if gathered and number not in self._cancelled:
            self._send(Kind.CHUNK, number, pack_chunk(bytes(gathered), words))

    def _bytes(self, duration_ms: int) -> int:
        return self._library.rate_hz * 2 * duration_ms // 1000

    def _send(self, kind: Kind, number: int, payload: bytes = b"") -> None:
        self._sink.write(pack(kind, number, payload))
        self._sink.flush()


def main() -> int:
    """Runs the helper on this process's stdin and stdout."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the server ends us itself
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the library prints must not land between messages
    try:
        Helper(sys.stdin.buffer, sink, EspeakLibrary()).run()
    except BrokenPipeError:
        return 0  # the server is gone
    return 0


if __name__ == "__main__":
    sys.exit(main())
