"""Imports libraries that only training needs; a missing one is reported when it is used."""

from __future__ import annotations

import importlib
from typing import Any

import click

REQUIREMENTS = "torch transformers<5 ctranslate2 faster-whisper scipy soxr espeakng-loader"
"""Arguments of `pip install` for the whole way from sentences to a model; flite comes from the system."""


class Absent:
    """Stands for a library that is not installed; raises UsageError when it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        raise click.UsageError(f"{self._name} is not installed; training needs: pip install {REQUIREMENTS}")


def optional(name: str) -> Any:
    """Returns the module `name`, or an `Absent` for it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return Absent(name)
