"""Compiles `pipeline.audio.kernels` where somebody waits for it: half a minute of one core, once on a
machine.

`python -m mediaserver.compile_kernels` prints how many are there, a line each, and nothing where all of them
come from numba's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from numba.core import event

COMPILATIONS: Final = 127
"""Kernels, each with its signatures, and what they call."""

Told = Callable[[int, int], None]


class _Count(event.Listener):
    """Counts the compilations that have ended; one may be inside another."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._done = 0

    def on_start(self, _event: Any) -> None:
        """Nothing is to be told yet."""

    def on_end(self, _event: Any) -> None:
        """One more."""
        self._done += 1
        self._told(self._done, max(self._done, COMPILATIONS))


def compile_kernels(told: Told) -> None:
    """Compiles what is not in numba's cache, and calls `told` after each with how many there are, and of how
    many. Does nothing where the kernels are imported already. It takes long: not for the event loop."""
    with event.install_listener("numba:compile", _Count(told)):
        import_module("pipeline.audio.kernels")


def main() -> None:
    """Tells it on standard output."""
    compile_kernels(lambda done, of: print(done, of, flush=True))


if __name__ == "__main__":
    main()
