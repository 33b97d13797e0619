"""Whether the processor met subnormal numbers, by the flags that it raises.

What they cost is the processor's affair: some take a hundred times as long for a product, some hardly longer.
That they were met is the same on all of them.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from typing import Final

_DENORMAL: Final = 0x02  # __FE_DENORM: an operand was subnormal
_UNDERFLOW: Final = 0x10  # FE_UNDERFLOW: a result was, and was rounded
_ALL: Final = 0x3F
_C: Final = ctypes.CDLL(None)

KNOWN: Final = platform.machine() in {"x86_64", "AMD64"} and hasattr(_C, "fetestexcept")
"""Flags for both are those of x86-64 (fenv.h of glibc); elsewhere `met` cannot be asked."""


def met(run: Callable[[], object]) -> bool:
    """Whether `run`, in this thread, had a subnormal operand or result."""
    _C.feclearexcept(_ALL)
    run()
    return bool(_C.fetestexcept(_DENORMAL | _UNDERFLOW))
