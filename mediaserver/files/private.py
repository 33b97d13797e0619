"""Keeps what the server writes for its own user: recordings, transcripts, keys.

Files are 0600 and folders 0700, whatever the umask; what an earlier version or another program left open is
closed at the start. A data directory of another user, or one that others share on purpose (/tmp, the
directory the server was started in), keeps its mode: each file in it is closed instead."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

FOLDER_MODE = 0o700
FILE_MODE = 0o600
RECORDINGS = "recordings"

_OTHERS = 0o077


def make_folder(path: Path) -> None:
    """Makes a folder of mode 0700, or gives an existing one that mode. Raises OSError."""
    path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    if not _shared(path):
        close(path, FOLDER_MODE)


def prepare(data_dir: Path) -> Path:
    """Makes a data directory and its folder of recordings, or closes them to others; returns the folder.
    Raises OSError."""
    make_folder(data_dir)
    recordings = data_dir / RECORDINGS
    recordings.mkdir(mode=FOLDER_MODE, exist_ok=True)
    if _is_open(recordings):
        for path in _below(recordings):
            close(path, FOLDER_MODE if path.is_dir() else FILE_MODE)
        close(recordings, FOLDER_MODE)  # last: an interrupted run begins anew
    return recordings


def close(path: Path, mode: int) -> None:
    """Gives `path` the mode `mode` where others have rights on it; logs a failure and goes on."""
    try:
        if _is_open(path):
            path.chmod(mode)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("others may read it", extra={"path": str(path), "reason": error.strerror or str(error)})


def _is_open(path: Path) -> bool:
    return bool(path.stat(follow_symlinks=False).st_mode & _OTHERS) and not path.is_symlink()


def _shared(path: Path) -> bool:
    status, here = path.stat(), Path.cwd()
    if status.st_uid != os.geteuid() or status.st_mode & stat.S_ISVTX:
        return True
    resolved = path.resolve()
    return resolved == here or resolved in here.parents


def _below(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)
        yield path
