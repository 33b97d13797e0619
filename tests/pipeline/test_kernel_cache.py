"""Compiled kernels are those of the sources that are there, whatever was compiled before."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from pipeline import kernel_cache
from pipeline.audio import compiled
from tests.support.paths import ROOT

# Takes from root the right to read and write what permissions forbid (capabilities(7)).
WITHOUT_OVERRIDE = [] if os.geteuid() else ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]

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


def run(folder: Path, *, log: str = "") -> str:
    """What `caller` prints: the value, and how many kernels of its were compiled. No user is above the
    permissions of files. `log`: what stands in the log."""
    place = folder.parents[1]
    environment = {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {kernel_cache.VARIABLE: str(place / "cache")}
    done = subprocess.run(
        [*WITHOUT_OVERRIDE, sys.executable, "-c", "import pipeline.audio.caller"],
        env={**os.environ, **environment},
        cwd=place,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert log in done.stderr
    assert bool(log) == bool(done.stderr)
    return done.stdout.strip()


def test_a_kernel_is_compiled_again_when_a_file_changes_that_it_calls(copied: Path) -> None:
    """Neither the caller's file nor the time and size of the callee's tell."""
    assert run(copied) == "1 1"
    assert run(copied) == "1 0"
    write(copied / "callee.py", CALLEE.format(2))
    assert run(copied) == "2 1"


def test_a_kernel_of_the_cache_needs_no_compiler_and_can_be_part_of_another(copied: Path) -> None:
    """What only compiling needs is not imported then. Of two kernels, only the caller's is lost."""
    write(copied / "caller.py", CALLER + "import sys; print('numba.np.linalg' in sys.modules)\n")
    assert run(copied).splitlines() == ["1 1", "True"]
    for path in (copied.parents[1] / "cache").rglob("caller.called-*"):
        path.unlink()
    assert run(copied).splitlines() == ["1 1", "True"]
    assert run(copied).splitlines() == ["1 0", "False"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of this process's kernels, empty."""
    monkeypatch.setenv(kernel_cache.VARIABLE, str(tmp_path))
    return tmp_path


def used(folder: Path, *, minutes_ago: int) -> Path:
    """Makes `folder`, used at that time."""
    folder.mkdir()
    moment = time.time() - 60 * minutes_ago
    os.utime(folder, (moment, moment))
    return folder


def test_the_directories_that_were_used_last_are_kept_and_nothing_of_others_is_removed(place: Path) -> None:
    ours = [used(place / f"kernels-{age:016x}", minutes_ago=age) for age in range(1, 6)]
    own = used(kernel_cache.directory_in(place), minutes_ago=60)
    names = ("others_3f2a", "kernels-of-others", "kernels-0123456789abcdef0", "kernels-x")
    others = [used(place / name, minutes_ago=10**6) for name in names]
    assert kernel_cache.opened() == own
    assert set(place.iterdir()) == {own, *ours[: kernel_cache.KEPT - 1], *others}


def test_a_complete_cache_that_cannot_be_written_is_read(copied: Path) -> None:
    """As one that root has filled in an image."""
    assert run(copied) == "1 1"
    closed(copied, 0o555)
    try:
        assert run(copied) == "1 0"
    finally:
        closed(copied, 0o755)


def test_a_cache_that_cannot_be_written_is_told_with_the_reason(copied: Path) -> None:
    (copied.parents[1] / "cache").mkdir()
    closed(copied, 0o555)
    try:
        assert run(copied, log="kernels are compiled at every start") == "1 1"
    finally:
        closed(copied, 0o755)


@pytest.mark.nightly("ci")
def test_a_damaged_file_is_compiled_again(copied: Path) -> None:
    assert run(copied) == "1 1"
    damages: list[Callable[[Path], object]] = [lambda path: path.write_bytes(b""), lambda path: path.chmod(0)]
    for suffix, damage in product(("nbi", "nbc"), damages):
        (path,) = (copied.parents[1] / "cache").rglob(f"*called-*.{suffix}")
        damage(path)
        assert run(copied) == "1 1"
        assert path.stat().st_size
        assert path.stat().st_mode & 0o400
    assert run(copied) == "1 0"


def closed(folder: Path, mode: int) -> None:
    """Gives the directories of the cache the permissions `mode`."""
    place = folder.parents[1] / "cache"
    for path in (place, *place.rglob("*")):
        if path.is_dir():
            path.chmod(mode)
