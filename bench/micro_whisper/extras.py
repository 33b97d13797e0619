"""Imports libraries that only training needs, when they are used; a missing one is reported then."""

from __future__ import annotations

import importlib
from typing import Any

import click

REQUIREMENTS = "torch transformers<5 ctranslate2 faster-whisper scipy soxr espeakng-loader"
"""Arguments of `pip install` for the whole way from sentences to a model; flite comes from the system."""


class LazyModule:
    """Stands for the module `name`, which is imported when it is used. Raises UsageError where it is not
    installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        try:
            module = importlib.import_module(self._name)
        except ImportError as error:
            needs = f"{self._name} is not installed; training needs: pip install {REQUIREMENTS}"
            raise click.UsageError(needs) from error
        return getattr(module, attribute)
