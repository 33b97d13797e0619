"""Compiles all kernels with progress: half a minute of one core, once per machine.

`python -m mediaserver.compile_kernels` prints a line with the progress after each compilation, and nothing
where all kernels come from numba's cache."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from numba.core import event

COMPILATIONS: Final = 277
"""The number of compilations: kernels, each with its signatures, and the functions that they call."""

MODULES: Final = ("pipeline.audio.kernels", "pipeline.plane.called", "pipeline.plane.drive.run")
"""Those whose import compiles, with what these import, every kernel that Python or a thread calls."""

Told = Callable[[int, int], None]


class _Count(event.Listener):
    """Counts the compilations that have ended; one may be inside another."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._done = 0

    def on_start(self, _event: Any) -> None:
        """Does nothing: only ends are counted."""

    def on_end(self, _event: Any) -> None:
        """Counts a compilation and reports the progress."""
        self._done += 1
        self._told(self._done, max(self._done, COMPILATIONS))


def compile_kernels(told: Told) -> None:
    """Compiles what is not in numba's cache, and calls `told` after each with how many are done, and of how
    many. Does nothing where the kernels are imported already. Takes long: not for the event loop."""
    with event.install_listener("numba:compile", _Count(told)):
        for module in MODULES:
            import_module(module)


def main() -> None:
    """Prints the progress on standard output."""
    compile_kernels(lambda done, of: print(done, of, flush=True))


if __name__ == "__main__":
    main()
