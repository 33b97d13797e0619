"""The processes of this machine: their children, and their CPU time and memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mediaserver.engine_pool.warm_up import cpu_s

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of processes: CPU milliseconds since their start, resident bytes now."""

    cpu_ms: float
    rss: int


def children(pid: int) -> list[int]:
    """Returns the running children of `pid`, started by any of its threads; none for a process that has
    ended."""
    found: list[int] = []
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended meanwhile
            found += map(int, each.read_text().split())
    return found


def tree(pid: int) -> Iterator[int]:
    """Yields `pid` and all its running descendants."""
    yield pid
    for child in children(pid):
        yield from tree(child)


def command_of(pid: int) -> list[str]:
    """Returns the command line of a process; empty for one that has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def module_of(pid: int) -> str:
    """Returns the argument of `-m` on the command line of a process, "" without one."""
    words = command_of(pid)
    return words[words.index("-m") + 1] if "-m" in words[:-1] else ""


def usage_of(pid: int, *, whole_tree: bool = True) -> Usage:
    """Returns CPU time and memory of `pid` and, with `whole_tree`, of all its running descendants."""
    cpu_ms, rss = 0.0, 0
    for each in tree(pid) if whole_tree else (pid,):
        with suppress(OSError):
            rss += int(Path(f"/proc/{each}/statm").read_text().split()[1]) * _PAGE
            cpu_ms += cpu_s(each) * 1000
    return Usage(cpu_ms, rss)
