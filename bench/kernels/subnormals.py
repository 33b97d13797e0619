"""Detects subnormal numbers by the processor's floating-point flags.

Their cost depends on the processor: some take a hundred times as long for a product, some hardly longer. The
flags are the same on all."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from typing import Final

_DENORMAL: Final = 0x02  # __FE_DENORM: an operand was subnormal
_UNDERFLOW: Final = 0x10  # FE_UNDERFLOW: a result was subnormal and rounded
_ALL: Final = 0x3F
_C: Final = ctypes.CDLL(None)

KNOWN: Final = platform.machine() in {"x86_64", "AMD64"} and hasattr(_C, "fetestexcept")
"""Whether `met` works: both flags are those of x86-64 (fenv.h of glibc)."""


def met(run: Callable[[], object]) -> bool:
    """Whether `run`, in this thread, had a subnormal operand or result."""
    _C.feclearexcept(_ALL)
    run()
    return bool(_C.fetestexcept(_DENORMAL | _UNDERFLOW))
