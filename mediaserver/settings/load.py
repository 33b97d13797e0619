"""Reads the configuration file: frozen settings, or every mistake with file, key and reason.

No message contains a value that may be a secret."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mediaserver.errors import SettingsError
from mediaserver.settings.checks import broken_rules
from mediaserver.settings.document import Settings
from pipeline.engines.tables import problem_of

Check = Callable[[Settings], Iterable[tuple[str, str]]]
"""Checks settings that are valid by themselves; yields (key, reason) for what an engine cannot do."""


def load(
    path: str | Path, *, checks: Sequence[Check] = (), environment: Mapping[str, str] | None = None
) -> Settings:
    """Returns the settings in the TOML file at `path`, with `env:NAME` resolved from `environment` (None: the
    process's own).

    Raises `SettingsError`."""
    document = _read(path)
    try:
        settings = Settings.model_validate(
            document, context={"environment": os.environ if environment is None else environment}
        )
    except ValidationError as error:
        raise SettingsError(
            [_line(path, *problem_of(detail)) for detail in error.errors(include_url=False)]
        ) from None
    problems = [problem for check in (broken_rules, *checks) for problem in check(settings)]
    if problems:
        raise SettingsError([_line(path, key, reason) for key, reason in problems])
    return settings


def _read(path: str | Path) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SettingsError([_line(path, "(file)", (error.strerror or str(error)).lower())]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError([_line(path, "(file)", f"not TOML: {error}")]) from None


def _line(path: str | Path, key: str, reason: str) -> str:
    return f"{path}: {key}: {reason}"
