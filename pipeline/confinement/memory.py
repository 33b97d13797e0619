"""Memory that this process and its children may still take, by the machine, its container and its limits."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ADDRESSES_MB: Final = 2048
"""MiB of address space that a server maps: libraries, stacks, what malloc sets aside for each thread. A
quarter is used."""

_MB: Final = 1 << 20
_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")


def free_mb(*, own: bool) -> int:
    """Returns the free MiB. `own`: for this process rather than a new one, where limits count for each
    process (`ulimit -v`, `ulimit -d`)."""
    bounds = [*_of(Path("/proc/meminfo"), "MemAvailable:"), *_container_mb(), *_limits_mb(own=own)]
    return max(0, min(bounds)) if bounds else 1 << 30


def too_few_addresses() -> str:
    """Returns what is wrong with the limit of this process's address space, "" where nothing is."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY or soft >= ADDRESSES_MB * _MB:
        return ""
    return (
        f"the address space is limited to {soft // _MB} MB, a server maps {ADDRESSES_MB}: "
        "ulimit -v unlimited, and a control group to limit memory"
    )


def _container_mb(own: Path = _OWN_GROUPS, groups: Path = _CGROUPS) -> Iterator[int]:
    """Yields the free MiB of the control group of this process and of its parents, in both versions."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _group_mb(groups, path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            yield from _group_mb(groups / "memory", path, *names)


def _group_mb(root: Path, path: str, limit: str, usage: str) -> Iterator[int]:
    group = root / path.strip("/")
    for each in (group, *group.parents):
        most, used = _number(each / limit), _number(each / usage)
        if most is not None and used is not None:
            yield (most - used) // _MB
        if each == root:
            return


def _limits_mb(*, own: bool) -> Iterator[int]:
    for limit, name in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            yield soft // _MB - (sum(_of(Path("/proc/self/status"), name)) if own else 0)


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
