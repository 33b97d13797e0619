"""Texts of the configuration with places, `{{name}}`, for what a call brings."""

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
    """`text` with every `{{name}}` replaced; a name without a value leaves nothing."""
    return " ".join(PLACEHOLDER.sub(lambda mark: values.get(mark[1], ""), text).split())


def raise_missing(subject: str, names: Iterable[str]) -> None:
    """Raises `SettingsRefused` naming variables that a call did not bring."""
    missing = sorted(names)
    if missing:
        raise SettingsRefused(
            subject, [(name, "the script uses it and the call brings none") for name in missing]
        )
