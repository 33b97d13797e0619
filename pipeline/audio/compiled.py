"""How kernels are compiled: by numba, for explicit signatures, into a cache where one can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba

from pipeline import kernel_cache

_F = TypeVar("_F", bound=Callable[..., Any])

_CONFIG: Final[Any] = numba.config  # its own stubs cover a part of it only
_DIRECTORY: Final = kernel_cache.opened()
if _DIRECTORY is not None:
    _CONFIG.CACHE_DIR = str(_DIRECTORY)


def compiled(*signatures: Any, fastmath: bool = False, inner: bool = False) -> Callable[[_F], _F]:
    """`numba.njit` with the types kept for mypy, and without the cache where there is nowhere to put it.
    `inner`: other kernels alone call the function, so that the wrapper by which Python would call it is not
    compiled."""
    options: dict[str, Any] = {"fastmath": fastmath, "no_cpython_wrapper": inner, "no_cfunc_wrapper": inner}

    def decorate(function: _F) -> _F:
        made = numba.njit(list(signatures), cache=_DIRECTORY is not None, **options)(function)
        return cast(_F, made)

    return decorate
