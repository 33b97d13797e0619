"""The voice's side of `pipeline.tts.subprocess_client`: takes requests from stdin, one at a time, and writes
samples to stdout.

The next request is the one whose listener runs out of audio first: the first sentence of a reply goes before
the next sentence of a reply that is being heard.

The process ends when its stdin ends, so that it cannot outlive the server."""

from __future__ import annotations

import math
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Protocol, TypeAlias

from pipeline.confinement.confinement import Confinement
from pipeline.confinement.messages import answers, pack, receive
from pipeline.errors import kind_of
from pipeline.tts.subprocess_wire import Kind, Word

_REQUESTS = 1024
"""Most requests in the queue, far more than a machine's calls can have at once; a full queue stops reading,
and the pipe then blocks the server's writes."""

_NO_FILES = Confinement()

Emit: TypeAlias = Callable[[bytes, list[Word]], bool]
"""Takes samples (s16le) and the words that begin in these samples; gives True if the request was
cancelled."""


class Refusal(Exception):
    """A request that would fail again: an unknown voice, an unreadable request."""


@dataclass(frozen=True, slots=True, order=True)
class _Asked:
    """A request in the queue; None stands for the end of the source."""

    due: float
    number: int
    request: dict[str, Any] | None = field(compare=False)


class Synthesiser(Protocol):
    """The engine that synthesises in the process; implemented by each voice."""

    rate_hz: int

    def speak(self, request: Mapping[str, Any], emit: Emit) -> None:
        """Synthesises the request, calling `emit` for each chunk; may stop when `emit` gives True. Raises
        `Refusal`, OSError, KeyError, TypeError, ValueError."""


class VoiceService:
    """Serves requests of the stream `source` with answers to `sink`, in the order of their `due`; a request
    without `due` comes first."""

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
        self._send({"kind": Kind.READY, "rate_hz": self._synthesiser.rate_hz})
        while (asked := self._requests.get()).request is not None:
            number, request = asked.number, asked.request
            self._send({**self._outcome(number, request), "number": number})
            with self._lock:
                self._pending.discard(number)
                self._cancelled.discard(number)

    def _outcome(self, number: int, request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            self._speak(number, request)
        except Exception as error:
            return _failed(error)
        return {"kind": Kind.DONE}

    def _speak(self, number: int, request: Mapping[str, Any]) -> None:
        def emit(samples: bytes, words: list[Word]) -> bool:
            if samples and number not in self._cancelled:
                self._send({"kind": Kind.CHUNK, "number": number, "words": words}, samples)
            return number in self._cancelled

        if number not in self._cancelled:
            self._synthesiser.speak(request, emit)

    def _read(self) -> None:
        with suppress(EOFError, ValueError):
            while True:
                head, _ = receive(self._source.read)
                self._take(head["kind"], head["number"], head.get("request", {}))
        self._requests.put(_Asked(math.inf, 0, None))

    def _take(self, kind: str, number: int, request: dict[str, Any]) -> None:
        with self._lock:
            if kind == Kind.CANCEL:
                self._cancelled |= {number} & self._pending
                return
            self._pending.add(number)
        self._requests.put(_Asked(float(request.pop("due", 0.0)), number, request))

    def _send(self, head: Mapping[str, Any], samples: bytes = b"") -> None:
        self._sink.write(pack(head, samples))
        self._sink.flush()


def _failed(error: Exception) -> Mapping[str, Any]:
    """The FAILED message; the text of a `Refusal` only, since a library's message may quote the caller's
    text."""
    return {"kind": Kind.FAILED, "reason": str(error) if isinstance(error, Refusal) else kind_of(error)}


def serve(make: Callable[[], Synthesiser], confinement: Confinement = _NO_FILES) -> int:
    """Confines the process, makes the voice and serves it on stdin and stdout; gives the exit status for
    `main`. A voice that cannot be made (ImportError, OSError, KeyError, ValueError, RuntimeError) is reported
    instead of READY."""
    sink = answers()
    try:
        try:
            replace(confinement, descriptors=(*confinement.descriptors, sink.fileno())).apply()
            synthesiser = make()
        except (ImportError, OSError, KeyError, ValueError, RuntimeError) as error:
            sink.write(pack({"kind": Kind.FAILED, "reason": str(error)}))
            sink.flush()
            return 1
        VoiceService(sys.stdin.buffer, sink, synthesiser).run()
    except BrokenPipeError:
        return 0  # the server is gone
    return 0
