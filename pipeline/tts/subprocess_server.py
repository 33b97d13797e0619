"""The voice's side of `voice_process`: requests from stdin, one at a time, samples to stdout.

The next is the one whose listener will be out of sound soonest: the first sound of a reply goes before the
next sentence of one that is still being heard, and before the later pieces of a sentence of which seconds are
made.

The process ends when its stdin does, so it cannot outlive the server."""

from __future__ import annotations

import json
import math
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Protocol, TypeAlias

from pipeline.confinement.confinement import Confinement
from pipeline.tts.subprocess_wire import HEADER, PAYLOAD_LIMIT, Kind, Word, pack, pack_chunk

_REQUESTS = 1024
"""Bound of the queue: far more sentences than a machine's calls can wait for at once; a full queue stops
reading, and the pipe then holds the server's writes back."""

_NO_FILES = Confinement()

Emit: TypeAlias = Callable[[bytes, list[Word]], bool]
"""Takes samples (s16le) and the words that begin in them; True: nobody wants the rest."""


class Refusal(Exception):
    """A request that no second attempt would help: an unknown voice, an unreadable request."""


@dataclass(frozen=True, slots=True, order=True)
class _Asked:
    """A request; without one it is the end of all."""

    due: float
    number: int
    request: dict[str, Any] | None = field(compare=False)


class Synthesiser(Protocol):
    """What speaks in the process."""

    rate_hz: int

    def speak(self, request: Mapping[str, Any], emit: Emit) -> None:
        """Synthesises, chunk by chunk. Raises `Refusal`, OSError, KeyError, TypeError, ValueError."""


class VoiceService:
    """Serves requests from one stream onto another, in the order in which they are `due`; those without it at
    once."""

    def __init__(self, source: BinaryIO, sink: BinaryIO, synthesiser: Synthesiser) -> None:
        self._source = source
        self._sink = sink
        self._synthesiser = synthesiser
        self._requests: queue.PriorityQueue[_Asked] = queue.PriorityQueue(_REQUESTS)
        self._lock = threading.Lock()
        self._pending: set[int] = set()
        self._cancelled: set[int] = set()

    def run(self) -> None:
        """Serves until the source ends."""
        threading.Thread(target=self._read, name="requests", daemon=True).start()
        self._send(Kind.READY, 0, json.dumps({"rate_hz": self._synthesiser.rate_hz}).encode())
        while (asked := self._requests.get()).request is not None:
            number, request = asked.number, asked.request
            try:
                self._speak(number, request)
                self._send(Kind.DONE, number)
            except Refusal as refusal:
                self._send(Kind.FAILED, number, str(refusal).encode())
            except Exception as error:  # somebody else's library; what it says may quote the text
                self._send(Kind.FAILED, number, type(error).__name__.encode())
            finally:
                with self._lock:
                    self._pending.discard(number)
                    self._cancelled.discard(number)

    def _speak(self, number: int, request: Mapping[str, Any]) -> None:
        def emit(samples: bytes, words: list[Word]) -> bool:
            if samples and number not in self._cancelled:
                self._send(Kind.CHUNK, number, pack_chunk(samples, words))
            return number in self._cancelled

        if number not in self._cancelled:
            self._synthesiser.speak(request, emit)

    def _read(self) -> None:
        while (message := self._next()) is not None:
            kind, number, payload = message
            if kind == Kind.CANCEL:
                with self._lock:
                    self._cancelled |= {number} & self._pending
            elif kind == Kind.SPEAK:
                request = json.loads(payload)
                with self._lock:
                    self._pending.add(number)
                self._requests.put(_Asked(float(request.pop("due", 0.0)), number, request))
        self._requests.put(_Asked(math.inf, 0, None))

    def _next(self) -> tuple[int, int, bytes] | None:
        header = self._source.read(HEADER.size)
        if len(header) < HEADER.size:
            return None
        kind, number, length = HEADER.unpack(header)
        if length > PAYLOAD_LIMIT:
            return None
        return kind, number, self._source.read(length)

    def _send(self, kind: Kind, number: int, payload: bytes = b"") -> None:
        self._sink.write(pack(kind, number, payload))
        self._sink.flush()


def serve(make: Callable[[], Synthesiser], confinement: Confinement = _NO_FILES) -> int:
    """Runs a voice on this process's stdin and stdout, confined before it is made: what `main` of its program
    does. A voice that cannot be made (ImportError, OSError, ValueError, RuntimeError) is reported instead of
    READY."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the server ends us itself
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the library prints must not land between messages
    try:
        try:
            replace(confinement, descriptors=(*confinement.descriptors, sink.fileno())).apply()
            synthesiser = make()
        except (ImportError, OSError, KeyError, ValueError, RuntimeError) as error:
            sink.write(pack(Kind.FAILED, 0, str(error).encode()))
            sink.flush()
            return 1
        VoiceService(sys.stdin.buffer, sink, synthesiser).run()
    except BrokenPipeError:
        return 0  # the server is gone
    return 0
