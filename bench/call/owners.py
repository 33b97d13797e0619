"""Says what holds the memory of a server: allocations by the line that made them, and the pages of the rows
of the media plane by field.

`BENCH_OWNERS=FILE` has `bench.call.server` trace its allocations, numpy's among them; each SIGUSR1 then
writes them to FILE as JSON. A traced server is larger and slower: its resident memory says nothing."""

from __future__ import annotations

import gc
import json
import mmap
import os
import signal
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, Final

import numpy as np

from pipeline.plane.drive.plane import Plane
from pipeline.plane.rows import LINE

VARIABLE: Final = "BENCH_OWNERS"
"""Of the environment: the file to write."""

_CHECKOUT: Final = f"{Path(__file__).parents[2]}/"
_PRESENT: Final = np.uint64(1 << 63)
_NO_FIELDS: Final[Mapping[str, Any]] = MappingProxyType({})


def trace() -> None:
    """Traces allocations from now on, where `VARIABLE` is set."""
    if file := os.environ.get(VARIABLE):
        tracemalloc.start()
        signal.signal(signal.SIGUSR1, lambda number, frame: _write(Path(file), frame))


def _write(file: Path, frame: FrameType | None) -> None:
    gc.unfreeze()
    gc.collect()
    allocations: Counter[str] = Counter()
    for each in tracemalloc.take_snapshot().statistics("lineno"):
        allocations[_place(each.traceback[0])] += each.size
    told = {"allocations": allocations, "row_pages": _row_pages()}
    whole = file.with_suffix(".part")
    whole.write_text(json.dumps(told), encoding="utf-8")
    whole.rename(file)


def _place(at: tracemalloc.Frame) -> str:
    own = at.filename.startswith(_CHECKOUT) and "/.venv/" not in at.filename
    file = at.filename.removeprefix(_CHECKOUT) if own else "/".join(at.filename.split("/")[-2:])
    return f"{file}:{at.lineno}"


def _row_pages() -> dict[str, int]:
    """Resident bytes of all rows, by the field that lies there."""
    held: Counter[str] = Counter()
    for plane in (each for each in gc.get_objects() if isinstance(each, Plane)):
        first = plane.rows.__array_interface__["data"][0]
        pages = _resident(first, plane.rows.nbytes)
        for number in range(len(plane.rows)):
            for name, (dtype, offset, *_) in (LINE.fields or _NO_FIELDS).items():
                at = number * LINE.itemsize + offset
                held[name] += _overlap(pages, at, at + dtype.itemsize)
    return dict(held)


def _resident(first: int, size: int) -> Any:
    """Whether each page from the address `first` on is in memory, from /proc/self/pagemap (proc(5))."""
    with open("/proc/self/pagemap", "rb") as pagemap:
        pagemap.seek(first // mmap.PAGESIZE * 8)
        entries = np.frombuffer(pagemap.read(-(-size // mmap.PAGESIZE) * 8), np.uint64)
    return entries & _PRESENT != 0


def _overlap(pages: Any, begin: int, end: int) -> int:
    held = 0
    for page in range(begin // mmap.PAGESIZE, -(-end // mmap.PAGESIZE)):
        if pages[page]:
            held += min(end, (page + 1) * mmap.PAGESIZE) - max(begin, page * mmap.PAGESIZE)
    return held
