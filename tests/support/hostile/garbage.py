"""What a garbage collection finds that reference counts did not free."""

from __future__ import annotations

import asyncio
import gc
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from scipy import sparse

OURS: Final = ("pipeline", "sip", "mediaserver", "api")

OF_LIBRARIES: Final[Mapping[str, frozenset[str]]] = {
    # A transport that is closed keeps the bound method that it read with (CPython's `set_protocol`).
    "asyncio, each TCP connection": frozenset(
        {
            "asyncio.selector_events._SelectorSocketTransport",
            "asyncio.selector_events._SelectorSocketTransport._read_ready__data_received",
            "builtins.dict",
        }
    ),
    # The process of the far end in a test.
    "asyncio, each child process": frozenset(
        {"asyncio.streams.StreamWriter", "asyncio.subprocess.SubprocessStreamProtocol", "builtins.dict"}
    ),
    # A test's caller that finds the port beside its own taken: asyncio's list of what it tried.
    "asyncio, each UDP port that is taken": frozenset(
        {
            "asyncio.base_events.BaseEventLoop.create_datagram_endpoint",
            "builtins.OSError",
            "builtins.list",
            "builtins.traceback",
        }
    ),
    # pyOpenSSL's `set_verify`, which aiortc calls for each connection: the C callback and its closure.
    "pyOpenSSL, each DTLS connection": frozenset(
        {
            "OpenSSL.SSL._VerifyHelper",
            "_cffi_backend.__CDataOwnGC",
            "aiortc.rtcdtlstransport.RTCCertificate._create_ssl_context.<locals>.<lambda>",
            "OpenSSL.SSL._VerifyHelper.__init__.<locals>.wrapper",
            "builtins.cell",
            "builtins.dict",
            "builtins.tuple",
        }
    ),
}
"""Cycles that are not ours to cut: what each is made of."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Nothing is collected within the block; what was there before does not count."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def living(*kinds: type) -> Counter[str]:
    """How many instances of each of these classes there are, reachable or not."""
    return Counter(type(each).__qualname__ for each in gc.get_objects() if type(each) in kinds)


async def freed(*kinds: type, within_s: float = 30.0) -> Counter[str]:
    """Waits until there are none of them; what is left then."""
    for _ in range(round(within_s / 0.25)):
        if not living(*kinds):
            break
        await asyncio.sleep(0.25)
    return living(*kinds)


def unreachable() -> list[str]:
    """What a collection would have to free: objects of ours, and cycles that are not in `OF_LIBRARIES`."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        found = list(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    ours = {_name(each) for each in found if _name(each).partition(".")[0] in OURS}
    cycles = {frozenset(map(_name, cycle)) for cycle in _cycles(found)}
    others = [each for each in cycles if not any(each <= known for known in OF_LIBRARIES.values())]
    return sorted(ours) + sorted(" <> ".join(sorted(each)) for each in others)


def _cycles(found: list[Any]) -> list[list[Any]]:
    """Those of them that keep each other (strongly connected components)."""
    index = {id(each): place for place, each in enumerate(found)}
    edges = [
        (place, index[id(other)])
        for place, each in enumerate(found)
        for other in gc.get_referents(each)
        if id(other) in index
    ]
    if not edges:
        return []
    rows, columns = np.array(edges).T
    graph = sparse.csr_matrix((np.ones(len(edges)), (rows, columns)), shape=(len(found), len(found)))
    count, labels = sparse.csgraph.connected_components(graph, directed=True, connection="strong")
    groups: list[list[Any]] = [[] for _ in range(count)]
    for each, label in zip(found, labels, strict=True):
        groups[label].append(each)
    return [group for group in groups if len(group) > 1]


def _name(each: Any) -> str:
    """Its class; of what belongs to a function, the function."""
    match each:
        case types.MethodType():
            return f"{each.__func__.__module__}.{each.__func__.__qualname__}"
        case types.FunctionType():
            return f"{each.__module__}.{each.__qualname__}"
        case types.FrameType():
            return f"{each.f_globals.get('__name__')}.{each.f_code.co_qualname}"
        case types.CoroutineType() | types.GeneratorType() | types.AsyncGeneratorType():
            return f"coroutine {each.__qualname__}"
    return f"{type(each).__module__}.{type(each).__qualname__}"
