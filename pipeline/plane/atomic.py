"""Memory that two threads look at: fences, and one word that both may change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numba
from llvmlite import ir
from numba.extending import intrinsic

from pipeline.audio.compiled import compiled

T: Final[Any] = numba.types
_HANGS_S: Final = 5.0


def _fence(typing_context: Any) -> Any:
    """What was stored before is seen before what is stored after (free on x86, `dmb` on ARM)."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        builder.fence("acq_rel")
        return context.get_dummy_value()

    return T.void(), generate


def _exchanged(typing_context: Any, address: Any, expected: Any, new: Any) -> Any:
    """Stores `new` in the int64 at `address` if `expected` is there; whether it was."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        pointer = builder.inttoptr(args[0], word.as_pointer())
        pair = builder.cmpxchg(pointer, args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return T.boolean(T.uintp, T.int64, T.int64), generate


fence: Final[Any] = intrinsic(_fence)
exchanged: Final[Any] = intrinsic(_exchanged)

_WORD: Final = T.int64[::1]
FREE, AT_WORK, HELD = 0, 1, 2
"""Who is at a row: nobody, the plane, Python. The plane never waits: a row that Python holds is left out."""


@compiled(T.boolean(_WORD), inner=True)
def enter(owner: Any) -> bool:
    """The plane begins to work on a row; False: Python holds it."""
    address = owner.ctypes.data
    for _ in range(200):  # noqa: SIM110 - numba has no any()
        if exchanged(address, FREE, AT_WORK):
            return True
    return False


@compiled(T.void(_WORD), inner=True)
def leave(owner: Any) -> None:
    """The plane has done with a row."""
    fence()
    owner[0] = FREE


@compiled(T.boolean(_WORD))
def hold(owner: Any) -> bool:
    """Python takes a row; False: the plane is at it, for microseconds."""
    return bool(exchanged(owner.ctypes.data, FREE, HELD))


@compiled(T.void(_WORD))
def let_go(owner: Any) -> None:
    """Python gives a row back."""
    fence()
    owner[0] = FREE


@contextmanager
def held(owner: Any) -> Iterator[None]:
    """A row for Python alone: the plane leaves a stream out that is held. Raises TimeoutError where the plane
    does not leave the row, which it does within microseconds."""
    hangs = time.monotonic() + _HANGS_S
    while not hold(owner):
        if time.monotonic() > hangs:
            raise TimeoutError("the media plane does not leave a row")
        time.sleep(0)
    try:
        yield
    finally:
        let_go(owner)
