"""Where compiled kernels are kept: a directory of its own for each state of their sources.

numba's cache looks at the file of the function that it has compiled, not at the files of what that function
calls and has inlined. With the directory named by a digest of all sources and by numba's version, a kernel
that calls a changed one is compiled again, whatever the times and sizes of files say.

Imports nothing of numba, so that the command line may ask before it has chosen a place.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Final

SOURCES: Final = tuple(Path(__file__).parent / room for room in ("audio", "plane"))
"""The folders of kernels, and of the constants that are compiled into them."""

VARIABLE: Final = "NUMBA_CACHE_DIR"
"""The environment variable that names another place, as it does for any program with numba."""

KEPT: Final = 3
"""Directories kept in one place, those used last: two versions of the server may run from one place."""

_PREFIX: Final = "kernels-"
_DIGITS: Final = 16
_OURS: Final = re.compile(rf"{_PREFIX}[0-9a-f]{{{_DIGITS}}}")


def users_place() -> Path:
    """Returns the place in the user's cache (XDG base directories), whether it exists or not. `make` and
    `mediaserver compile` fill it at the installation."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "openline-mediaserver" / "kernels"


def place() -> Path:
    """Returns the place of this process: what the environment names, else the user's."""
    return Path(os.environ.get(VARIABLE) or users_place())


def directory_in(place: Path, sources: Iterable[Path] = SOURCES) -> Path:
    """Returns the directory in `place` for kernels compiled from the files below `sources`."""
    digest = sha256(version("numba").encode())
    for folder in sources:
        for path in sorted(folder.rglob("*.py")):
            digest.update(b"\0%s\0" % path.relative_to(folder).as_posix().encode())
            digest.update(path.read_bytes())
    return place / f"{_PREFIX}{digest.hexdigest()[:_DIGITS]}"


def opened() -> Path | None:
    """Makes the directory of this process in its place, and removes all but the `KEPT` that were used last.
    Returns None where nothing can be written."""
    directory = directory_in(place())
    try:
        directory.mkdir(parents=True, exist_ok=True)
        os.utime(directory)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError:
        return None
    _remove_old(directory.parent)
    return directory


def _remove_old(place: Path) -> None:
    """Removes old directories of ours from `place`, which may hold other programs' kernels too."""
    used: dict[Path, float] = {}
    for path in place.glob(f"{_PREFIX}*"):
        if not _OURS.fullmatch(path.name):
            continue
        try:
            used[path] = path.stat().st_mtime
        except OSError:
            continue  # another process has just removed it
    for path in sorted(used, key=used.__getitem__, reverse=True)[KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
