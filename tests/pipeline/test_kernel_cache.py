"""Compiled kernels are those of the sources that are there, whatever was compiled before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import kernel_cache
from pipeline.audio import compiled
from tests.support.paths import ROOT

CALLEE = """from numba import types
from pipeline.audio.compiled import compiled

@compiled(types.int64(types.int64))
def constant(x):
    return x + {}
"""

CALLER = """from numba import types
from pipeline.audio.callee import constant
from pipeline.audio.compiled import compiled

@compiled(types.int64(types.int64))
def called(x):
    return constant(x)

print(called(0), sum(called.stats.cache_misses.values()))
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder of two kernels, `caller` and `callee`, in a package with the product's cache."""
    package = tmp_path / "pipeline"
    folder = package / "audio"
    folder.mkdir(parents=True)
    for path in (package / "__init__.py", folder / "__init__.py"):
        path.touch()
    for module in (kernel_cache, compiled):
        path = Path(str(module.__file__))
        (package / path.relative_to(ROOT / "pipeline")).write_bytes(path.read_bytes())
    write(folder / "callee.py", CALLEE.format(1))
    write(folder / "caller.py", CALLER)
    return folder


def write(path: Path, text: str) -> None:
    """With the time that hatchling gives every file of a wheel."""
    path.write_text(text)
    os.utime(path, (1580601600, 1580601600))


def run(folder: Path) -> str:
    """What `caller` prints: the value, and how many kernels of its were compiled."""
    place = folder.parents[1]
    environment = {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {kernel_cache.VARIABLE: str(place / "cache")}
    command = [sys.executable, "-c", "import pipeline.audio.caller"]
    done = subprocess.run(
        command, env={**os.environ, **environment}, cwd=place, capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_kernel_is_compiled_again_when_a_file_changes_that_it_calls(copied: Path) -> None:
    """Neither the caller's file nor the time and size of the callee's tell."""
    assert run(copied) == "1 1"
    assert run(copied) == "1 0"
    write(copied / "callee.py", CALLEE.format(2))
    assert run(copied) == "2 1"


def test_the_directories_that_were_used_last_are_kept_and_nothing_of_others_is_removed(copied: Path) -> None:
    others = copied.parents[1] / "cache" / "others_3f2a"
    others.mkdir(parents=True)
    for number in range(1, kernel_cache.KEPT + 3):
        write(copied / "callee.py", CALLEE.format(number))
        assert run(copied) == f"{number} 1"
        for age, path in enumerate(sorted(others.parent.glob("kernels-*"), key=os.path.getmtime)[::-1], 1):
            os.utime(path, (path.stat().st_mtime - 60 * age,) * 2)
    assert others.exists()
    assert len(list(others.parent.glob("kernels-*"))) == kernel_cache.KEPT
    assert run(copied).endswith(" 0")
