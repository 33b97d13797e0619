"""The CPU time of a server, thread by thread."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.support.processes import children, tree

LOOP = "event loop"
PLANE = "media plane"
OTHERS = "other threads"
HELPERS = "helper processes"


def cpu_ms_of(pid: int) -> dict[str, float]:
    """CPU milliseconds of `pid` since its start: the event loop's thread, which is the first; the media
    plane's; its other threads; its child processes."""
    found = dict.fromkeys((LOOP, PLANE, OTHERS), 0.0)
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # the thread has ended meanwhile
            name = (task / "comm").read_text().strip()
            kind = LOOP if task.name == str(pid) else name if name == PLANE else OTHERS
            found[kind] += _cpu_ms(task)
    helpers = (each for child in children(pid) for each in tree(child))
    return found | {HELPERS: sum(_whole_cpu_ms(each) for each in helpers)}


def policy_of(pid: int) -> str:
    """How the scheduler treats the media plane of `pid`."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == PLANE:
            policy = os.sched_getscheduler(int(task.name)) & ~os.SCHED_RESET_ON_FORK
            return "SCHED_RR" if policy == os.SCHED_RR else f"nice {os.getpriority(0, int(task.name))}"
    return "no thread"


@contextmanager
def shares(pid: int, into: dict[str, float]) -> Iterator[None]:
    """Puts each part's share of a core during the block into `into`."""
    before, began = cpu_ms_of(pid), time.monotonic()
    yield
    ms = (time.monotonic() - began) * 1000
    into.update({name: round((cpu - before[name]) / ms, 4) for name, cpu in cpu_ms_of(pid).items()})


def _cpu_ms(task: Path) -> float:
    return int((task / "schedstat").read_text().split()[0]) / 1e6


def _whole_cpu_ms(pid: int) -> float:
    with suppress(OSError):
        return sum(_cpu_ms(task) for task in Path(f"/proc/{pid}/task").iterdir())
    return 0.0
