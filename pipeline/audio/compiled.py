"""How kernels are compiled: by numba, for explicit signatures, into a cache where one can be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    `inner`: other kernels alone call the function. The wrapper by which Python would call it is not compiled,
    and the function itself only with a kernel that calls it: one out of the cache has it inside."""
    options: dict[str, Any] = {"fastmath": fastmath, "no_cpython_wrapper": inner, "no_cfunc_wrapper": inner}

    def decorate(function: _F) -> _F:
        made = numba.njit(cache=_DIRECTORY is not None, **options)(function)
        if inner:
            _compile_when_called(made, signatures)
        else:
            _compile(made, signatures)
        return cast(_F, made)

    return decorate


def _compile(kernel: Any, signatures: Iterable[Any]) -> None:
    """Compiles `kernel` for `signatures`, or loads it from the cache; for others it is never compiled."""
    for signature in signatures:
        kernel.compile(signature)
    kernel.disable_compile()


def _compile_when_called(kernel: Any, signatures: Iterable[Any]) -> None:
    """Compiles `kernel` when numba asks for its types, for a kernel that calls it."""
    types_of_call = kernel.get_call_template

    def compiled_first(*arguments: Any) -> Any:
        if not kernel.signatures:
            _compile(kernel, signatures)
        return types_of_call(*arguments)

    kernel.get_call_template = compiled_first
