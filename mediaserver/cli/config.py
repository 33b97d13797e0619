"""What every command does first: read the file, say everything that is wrong with it, or go on.

This module and `__main__` import nothing heavy: the place of compiled kernels is settled when the first of
them is imported, so the file that names the data directory has to be read before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

import click

from mediaserver.cli.kernels import compile_visibly
from mediaserver.errors import SettingsError
from mediaserver.files import private
from mediaserver.settings import Settings, load
from pipeline import kernel_cache

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
    first: Callable[[Settings], object] | None = None,
) -> Settings:
    """Returns the settings of `config` with `--data` applied; makes the data directory where the command
    `writes`.

    Exits with 2 and "FILE: key: reason" per line on standard error when the file cannot be used. With
    `engines` the engines and scripts of the agents check their own tables too; with `hearing`, an agent whose
    callers no recogniser on this machine understands, or whose voice detector is not installed, is a mistake
    as well. `first` is called with the settings before anything is compiled."""
    checks = ["mediaserver.wiring:engine_problems"] if engines else []
    hears = ["mediaserver.engine_pool.auto:hearing_problems", "mediaserver.wiring:missing_voice_detectors"]
    checks += hears if hearing else []
    try:
        settings = with_data_dir(load(config), data)
        if writes:
            make_data_dir(config, settings)
        cache_kernels(Path(settings.server.data_dir))
        if first is not None:
            first(settings)
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


def cache_kernels(data_dir: Path) -> None:
    """Keeps compiled kernels in the data directory if there is one yet, unless the environment points
    elsewhere or the installation has compiled them into the user's cache. Has no effect once the pipeline is
    imported."""
    if data_dir.is_dir() and not _compiled_by_user():
        os.environ.setdefault(kernel_cache.VARIABLE, str(data_dir.absolute() / "kernels"))


def _compiled_by_user() -> bool:
    """Whether the user's cache has kernels of this version, and can be written to."""
    return os.access(kernel_cache.directory_in(kernel_cache.users_place()), os.W_OK)
