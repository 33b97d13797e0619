"""What every command does first: read the file, say everything that is wrong with it, or go on.

This module and `__main__` import nothing heavy: numba reads NUMBA_CACHE_DIR when it is first imported, so the
file that names the data directory has to be read before anything of the pipeline is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

import click

from mediaserver import private
from mediaserver.errors import SettingsError
from mediaserver.settings import Settings, load

EXIT_CONFIG = 2

Command = TypeVar("Command", bound=Callable[..., Any])

config_option: Callable[[Command], Command] = click.option(
    "--config", required=True, type=click.Path(), help="The configuration file (TOML)."
)


def load_or_exit(
    config: str,
    data: str | None = None,
    *,
    engines: bool = True,
    hearing: bool = False,
    writes: bool = False,
) -> Settings:
    """Returns the settings of `config` with `--data` applied; makes the data directory where the command
    `writes`.

    Exits with 2 and "FILE: key: reason" per line on standard error when the file cannot be used. With
    `engines` the engines and scripts of the agents check their own tables too; with `hearing`, an agent whose
    callers no recogniser on this machine understands is a mistake as well."""
    checks = ["mediaserver.wiring:engine_problems"] if engines else []
    checks += ["mediaserver.engine_pool.auto:hearing_problems"] if hearing else []
    try:
        settings = with_data_dir(load(config), data)
        if writes:
            make_data_dir(config, settings)
        cache_kernels(Path(settings.server.data_dir))
        os.environ.setdefault("AIOHTTP_NOSENDFILE", "1")  # files are read by a thread, not by the event loop
        if engines:
            compile_visibly()
        for each in checks:  # in this order: each may rely on the ones before it
            load(config, checks=[resolve_name(each)])
    except SettingsError as error:
        for problem in error.problems:
            click.echo(problem, err=True)
        sys.exit(EXIT_CONFIG)
    return settings


def load_again(config: str, data: str | None = None) -> Settings:
    """Returns the settings of `config` for a running server. Raises `SettingsError`."""
    checks = [resolve_name("mediaserver.wiring:engine_problems")]
    return with_data_dir(load(config, checks=checks), data)


def make_data_dir(config: str, settings: Settings) -> None:
    """Makes the directory `server.data_dir`, readable by its owner alone. Raises `SettingsError`."""
    try:
        private.make_folder(Path(settings.server.data_dir))
    except OSError as error:
        raise SettingsError(
            [f"{config}: server.data_dir: {(error.strerror or str(error)).lower()}"]
        ) from None


def with_data_dir(settings: Settings, data: str | None) -> Settings:
    """Returns `settings` with everything that the server writes under `data`: an SQLite database moves there,
    a PostgreSQL one stays where it is."""
    if data is None:
        return settings
    server = settings.server
    database = "" if server.database.startswith("sqlite:") else server.database
    moved = server.model_copy(update={"data_dir": data, "database": database})
    return settings.model_copy(update={"server": moved})


def compile_visibly() -> None:
    """Compiles the kernels; where that is not done yet, whoever waits at a terminal sees how far it is."""
    if not sys.stderr.isatty():
        return  # importing the pipeline compiles
    drawn = 0

    def told(done: int, of: int) -> None:
        nonlocal drawn
        if (part := 32 * done // of) > drawn:
            drawn = part
            click.echo(
                f"\r{'━' * part:─<32} compiling, once on this machine: {done} of {of}", err=True, nl=False
            )

    resolve_name("mediaserver.compile_kernels:compile_kernels")(told)
    if drawn:
        click.echo(err=True)


def cache_kernels(data_dir: Path) -> None:
    """Points numba's cache at the data directory if there is one yet, unless the environment already points
    elsewhere. Has no effect once numba is imported."""
    if data_dir.is_dir():
        os.environ.setdefault("NUMBA_CACHE_DIR", str(data_dir.absolute() / "kernels"))
