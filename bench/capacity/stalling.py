"""The server under test, whose Python stands still: `python -m bench.capacity.stalling serve --config FILE`.

Between two SIGUSR2 a thread keeps the GIL for `STALL_MS` of each second and burns a core meanwhile, as a full
garbage collection or an extension that does not give way would. Native threads go on. Calls are set up
before: a server whose loop is that late takes no new ones."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numba
import numpy as np

from bench.call.server import register
from mediaserver.__main__ import main
from pipeline.audio.compiled import compiled

STALL_MS: Final = 200
PERIOD_S: Final = 1.0

_T: Final[Any] = numba.types
_CLOCK_MONOTONIC: Final = 1
_clock_gettime: Final = _T.ExternalFunction("clock_gettime", _T.int32(_T.int32, _T.uintp))


@compiled(_T.void(_T.int64[::1], _T.int64))
def burn(pair: Any, ns: int) -> None:
    """Reads the clock for `ns`. The GIL is not given up."""
    end = 0
    now = 0
    while now <= end:
        _clock_gettime(_T.int32(_CLOCK_MONOTONIC), pair.ctypes.data)
        now = pair[0] * 1_000_000_000 + pair[1]
        if end == 0:
            end = now + ns


class Stalls:
    """The thread that stands still once a second, while it is told to."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def turn(self, *_: object) -> None:
        """Begins, or ends: a handler of signals."""
        if self._wanted.is_set():
            self._wanted.clear()
        else:
            self._wanted.set()

    def _run(self) -> None:
        pair = np.zeros(2, np.int64)
        while self._wanted.wait():
            time.sleep(PERIOD_S - STALL_MS / 1000)
            burn(pair, STALL_MS * 1_000_000)


@contextmanager
def stalls(pid: int) -> Iterator[None]:
    """The Python of server `pid` stands still once a second during the block."""
    os.kill(pid, signal.SIGUSR2)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGUSR2)


if __name__ == "__main__":
    register()
    signal.signal(signal.SIGUSR2, Stalls().turn)
    main(prog_name="mediaserver")
