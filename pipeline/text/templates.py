"""Fills `{{name}}` marks in texts of the configuration with the variables of a call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from pipeline.errors import SettingsRefused

PLACEHOLDER: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_.-]*)\s*\}\}")


def placeholders(text: str) -> list[str]:
    """The names in `{{name}}` marks, in order."""
    return PLACEHOLDER.findall(text)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replaces every `{{name}}` in `text` by its value, "" for a name without one, and reduces white space to
    single spaces."""
    return " ".join(PLACEHOLDER.sub(lambda mark: values.get(mark[1], ""), text).split())


def raise_missing(subject: str, names: Iterable[str]) -> None:
    """Raises `SettingsRefused` for the `names` of variables that a call lacks, unless there are none."""
    missing = sorted(names)
    if missing:
        raise SettingsRefused(
            subject, [(name, "the script uses it and the call brings none") for name in missing]
        )
