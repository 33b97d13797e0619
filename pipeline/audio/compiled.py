"""How kernels are compiled: by numba, for explicit signatures, into a cache where one can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_F = TypeVar("_F", bound=Callable[..., Any])


def compiled(*signatures: Any, fastmath: bool = False, inner: bool = False) -> Callable[[_F], _F]:
    """`numba.njit` with the types kept for mypy, and without the cache where there is nowhere to put it.
    `inner`: other kernels alone call the function, so that the wrapper by which Python would call it is not
    compiled."""
    options: dict[str, Any] = {"fastmath": fastmath, "no_cpython_wrapper": inner, "no_cfunc_wrapper": inner}

    def decorate(function: _F) -> _F:
        try:
            made = numba.njit(list(signatures), cache=True, **options)(function)
        except RuntimeError:  # numba: "no locator available": nothing writable to cache in
            made = numba.njit(list(signatures), **options)(function)
        return cast(_F, made)

    return decorate
