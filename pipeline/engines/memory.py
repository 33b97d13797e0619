"""How much memory this process and its children may still take: the machine's, a container's, a limit's."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MB: Final = 1 << 20
_CGROUP: Final = Path("/sys/fs/cgroup")


def free_mb(*, own: bool) -> int:
    """MiB that are left; `own`: to this process rather than to a new one, of a limit that counts for each
    process (RLIMIT_AS)."""
    bounds = [*_machine_mb(), *_container_mb(), *_limit_mb(own=own)]
    return max(0, min(bounds)) if bounds else 1 << 30


def _machine_mb() -> Iterator[int]:
    yield from _of(Path("/proc/meminfo"), "MemAvailable:")


def _container_mb() -> Iterator[int]:
    """Of the control group (v2) of this process, and of those around it."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if path is None:
        return
    group = _CGROUP / path.strip("/")
    for each in (group, *group.parents):
        most, used = _number(each / "memory.max"), _number(each / "memory.current")
        if most is not None and used is not None:
            yield (most - used) // _MB
        if each == _CGROUP:
            return


def _limit_mb(*, own: bool) -> Iterator[int]:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return
    used = sum(_of(Path("/proc/self/status"), "VmSize:")) if own else 0
    yield soft // _MB - used


def _of(path: Path, name: str) -> Iterator[int]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return
    yield from (int(line.split()[1]) // 1024 for line in lines if line.startswith(name))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max": no limit
        return None
