"""Compiles what the processes of a parallel run import. In a fresh clone each of them would do that itself,
all at the same time."""

from __future__ import annotations

import compileall
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.support.paths import ROOT

SOURCES = ("api", "bench", "mediaserver", "pipeline", "sip", "tests/support")


def compile_sources(config: pytest.Config) -> None:
    """Compiles the sources as Python keeps them, and the tests as pytest does, with their asserts rewritten.
    Does nothing for what is compiled already."""
    for folder in SOURCES:
        compileall.compile_dir(ROOT / folder, quiet=1)
    for path in (ROOT / "tests").rglob("test_*.py"):
        _rewrite(path, config)


def _rewrite(path: Path, config: pytest.Config) -> None:
    """As `AssertionRewritingHook.exec_module` does before it runs the test's module."""
    state = config.stash[rewrite.assertstate_key]
    kept = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(path, kept, state.trace) is None and rewrite.try_makedirs(kept.parent):
        found, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(state, code, found, kept)
