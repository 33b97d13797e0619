"""How the kernels of the plane are compiled: without the GIL, from numba's cache, with types that are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_F = TypeVar("_F", bound=Callable[..., Any])


def native(returns: Any, *arguments: Any, called_by_python: bool = False) -> Callable[[_F], _F]:
    """`numba.njit` for one signature. Wrappers for Python are made only where Python calls: they take half of
    the time to compile."""

    def decorate(function: _F) -> _F:
        options: dict[str, Any] = {
            "nogil": True,
            "no_cpython_wrapper": not called_by_python,
            "no_cfunc_wrapper": True,
        }
        signature = [returns(*arguments)]
        try:
            compiled = numba.njit(signature, cache=True, **options)(function)
        except RuntimeError:  # numba: "no locator available": nothing writable to cache in
            compiled = numba.njit(signature, **options)(function)
        return cast(_F, compiled)

    return decorate
