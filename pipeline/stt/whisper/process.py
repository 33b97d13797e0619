"""The process of a Whisper model: `python -m pipeline.stt.whisper.process JSON`.

JSON is an object with model (a directory), threads, device, compute_type, and sockets: the descriptors for
requests (`pipeline.stt.whisper.wire`), one for each thread. The process ends when the sockets are closed, so
that it cannot outlive the server.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, BinaryIO, Final

import numpy as np

from pipeline.confinement.confinement import Confinement
from pipeline.confinement.messages import pack, receive
from pipeline.errors import kind_of

_SPARE_MB: Final = 1536  # for libraries and decodes
_COPIES: Final = 4  # of the weights, which are read whole and converted to a wider type


def main() -> int:
    """Serves the model of the process's argument. An exception while loading the files, or an ImportError
    without CTranslate2, is reported as the first message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the server ends this one
    arguments: dict[str, Any] = json.loads(sys.argv[1])
    descriptors: list[int] = arguments.pop("sockets")
    model, cuda = arguments.pop("model"), arguments["device"] != "cpu"
    memory_mb = None if cuda else needs_mb(model)
    Confinement(read=(model,), descriptors=descriptors, memory_mb=memory_mb, cuda=cuda).apply()
    streams = [(os.fdopen(each, "rb"), os.fdopen(os.dup(each), "wb")) for each in descriptors]
    first = streams[0][1]
    decoder: Any = None
    with reported(lambda error: _send(first, _unloaded(error))):
        decoder = resolve_name("pipeline.stt.whisper.model:load")(model, **arguments)
    if decoder is None:
        return 1
    _send(first, {"multilingual": bool(decoder.model.is_multilingual)})
    _serve(decoder, streams)
    return 0


def needs_mb(model: str) -> int:
    """Gives the memory limit, in MB, of a process with the model in the directory `model`."""
    return _SPARE_MB + _COPIES * (_size(model) >> 20)


@contextmanager
def reported(tell: Callable[[Exception], None]) -> Iterator[None]:
    """The boundary of a helper process, which has no log: `tell` reports to the server what breaks within.
    Libraries raise anything: tokenizers a bare `Exception`."""
    try:
        yield
    except Exception as error:
        tell(error)


def _unloaded(error: Exception) -> dict[str, Any]:
    return {"absent" if isinstance(error, ImportError) else "failed": str(error)}


def _serve(decoder: Any, streams: Sequence[tuple[BinaryIO, BinaryIO]]) -> None:
    threads = [threading.Thread(target=_answer, args=(decoder, *each)) for each in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _answer(decoder: Any, source: BinaryIO, sink: BinaryIO) -> None:
    """Serves one socket until the server closes it."""
    try:
        while True:
            head, samples = receive(source.read)
            _send(sink, _decoded(decoder, head, samples))
    except (EOFError, OSError):
        return


def _decoded(decoder: Any, head: dict[str, Any], samples: bytes) -> dict[str, Any]:
    """Decodes the utterances; for an error gives only its type, since the message may quote their words."""
    whole = np.frombuffer(samples, np.float32)
    audios = np.split(whole, np.cumsum(head.pop("lengths"))[:-1])
    found: dict[str, Any] = {}
    with reported(lambda error: found.update(failed=kind_of(error))):
        found["texts"] = [asdict(each) for each in decoder.decoded(audios, **head)]
    return found


def _send(sink: BinaryIO, head: dict[str, Any]) -> None:
    sink.write(pack(head))
    sink.flush()


def _size(model: str) -> int:
    try:
        return Path(model, "model.bin").stat().st_size
    except OSError:
        return 0


if __name__ == "__main__":
    sys.exit(main())
