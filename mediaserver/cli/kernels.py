"""`mediaserver compile`, and the compilation that every other command waits for where it was not called: in
either case whoever waits sees how far it is."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pkgutil import resolve_name

import click

from pipeline import kernel_cache

log = logging.getLogger(__name__)

EXIT_UNWRITABLE = 1

Told = Callable[[int, int], None]
"""Called with the number of compilations that are done, and of all."""


@click.command("compile")
def compile_() -> None:
    """Compiles what is computed on audio, once after the installation: the first start need not. Into
    NUMBA_CACHE_DIR where it is set, else into the user's cache."""
    directory = kernel_cache.opened()
    if directory is None:
        click.echo(f"{kernel_cache.place()}: cannot be written", err=True)
        sys.exit(EXIT_UNWRITABLE)
    _compile(_say)
    click.echo(f"compiled: {directory}")


def compile_visibly() -> None:
    """Compiles the kernels that are not in the cache. A terminal shows a bar, the log a line for each
    quarter; nothing where all are in the cache."""
    _compile(_log)


def _compile(told: Told) -> None:
    bar = Bar()
    compiling = bar if sys.stderr.isatty() else Quarters(told)
    resolve_name("mediaserver.compile_kernels:compile_kernels")(compiling)
    if bar.drawn:
        click.echo(err=True)


class Bar:
    """Draws a bar of 32 on the terminal that is the standard error. `drawn`: how many there are."""

    def __init__(self) -> None:
        self.drawn = 0

    def __call__(self, done: int, of: int) -> None:
        if (part := 32 * done // of) > self.drawn:
            self.drawn = part
            line = f"\r{'━' * part:─<32} compiling, once on this machine: {done} of {of}"
            click.echo(line, err=True, nl=False)


class Quarters:
    """Tells `told` of the first compilation that is done, and of every further quarter."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._quarter = -1

    def __call__(self, done: int, of: int) -> None:
        if (quarter := 4 * done // of) > self._quarter:
            self._quarter = quarter
            self._told(done, of)


def _say(done: int, of: int) -> None:
    click.echo(f"compiling, once on this machine: {done} of {of}", err=True)


def _log(done: int, of: int) -> None:
    log.info("compiling kernels, once on this machine", extra={"done": done, "of": of})
