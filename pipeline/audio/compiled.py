"""How kernels are compiled: by numba, for explicit signatures, into a cache. One that cannot be written is
read; what cannot be read is compiled, and the server starts."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba
from llvmlite import binding
from numba.core import caching, codegen
from numba.core.runtime.nrt import rtsys

from pipeline import kernel_cache

_F = TypeVar("_F", bound=Callable[..., Any])

_CONFIG: Final[Any] = numba.config  # its own stubs cover a part of it only
_CONFIG.CACHE_DIR = str(kernel_cache.opened() or kernel_cache.directory_in(kernel_cache.place()))

_DAMAGED: Final = (
    OSError,
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    RuntimeError,
)
"""What unpickling a damaged file raises (`pickle.UnpicklingError`'s documentation), or LLVM for it."""

log = logging.getLogger(__name__)

not_kept: list[str] = []
"""Why the first kernel that the cache did not take is compiled at every start; empty: it took all."""


class _Locator(caching.UserProvidedCacheLocator):
    """Keeps to the cache's directory, which numba leaves for another that can be written."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator:
        return cls(py_func, py_file)


class _Loaded(codegen.JITCodeLibrary):
    """A kernel out of the cache. The LLVM code beside its machine code is for kernels that are compiled with
    it inside; numba would parse it in every start, which takes longer than all else of loading."""

    _linkable = b""

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> _Loaded:
        name, _, (machine_code, linkable) = state
        loaded = cls(codegen, name)
        loaded._linkable = linkable
        loaded.enable_object_caching()  # type: ignore[no-untyped-call]
        loaded._set_compiled_object(machine_code)  # type: ignore[no-untyped-call]
        loaded._finalize_final_module()  # type: ignore[no-untyped-call]
        return loaded

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            self._shared_module = binding.parse_bitcode(self._linkable)
        return self._shared_module

    def get_pointer_to_function(self, name: str) -> int:
        """Returns the address of a function of this kernel; numba knows the names from the LLVM code only."""
        return int(self._codegen._engine.get_function_address(name))


class _Files(caching.CompileResultCacheImpl):
    _locator_classes: list[type[object]] = [_Locator]  # noqa: RUF012 - as numba declares it

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Returns the kernel that `payload` is of."""
        with _libraries(target_context.codegen(), _Loaded):
            return super().rebuild(target_context, payload)  # type: ignore[no-untyped-call]


class _Cache(caching.FunctionCache):
    """numba's cache of one kernel. Files that are damaged, or closed to this user, are none."""

    _impl_class = _Files

    # numba's own imports all that it can compile before it reads a file, 0.25 s of every start. Machine code
    # needs numba's runtime alone; who compiles imports the rest.
    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            rtsys.initialize(target_context)
            return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except _DAMAGED as error:
            log.info("compiled kernel not read", extra={"path": self.cache_path, "reason": repr(error)})
            with suppress(OSError):
                Path(self._cache_file._index_path).unlink()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except _DAMAGED as error:  # that of a damaged index which cannot be removed, too
            if not not_kept:
                not_kept.append(str(error) or repr(error))
                where = {"path": self.cache_path, "reason": not_kept[0]}
                log.warning("kernels are compiled at every start", extra=where)


class _Part(codegen.JITCodeLibrary):
    """An inner kernel as LLVM's code, to be linked into its callers. numba would optimise it and make machine
    code of it and of all that it calls, and do that again for each of its callers, up to the outermost, which
    is the only one to run: most of the time of compiling."""

    def _optimize_final_module(self) -> None: ...

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._verify_declare_only_symbols()  # type: ignore[no-untyped-call]
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Returns 0, numba's answer for what has no machine code."""
        return 0

    @property
    def codegen(self) -> Any:
        """Hands out the code generator but for the one thing that needs machine code."""
        return _WithoutEnvironments(self._codegen)


@contextmanager
def _libraries(generator: Any, kind: type[codegen.JITCodeLibrary]) -> Iterator[None]:
    """What numba's code generator makes is of this `kind`, in numba's lock."""
    whole, generator._library_class = generator._library_class, kind
    try:
        yield
    finally:
        generator._library_class = whole


class _WithoutEnvironments:
    """A code generator that keeps no object of Python for a function: compiled code without such objects
    asks for none."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None:
        """Does nothing."""


def compiled(
    *signatures: Any, fastmath: bool = False, inner: bool = False, nogil: bool = False
) -> Callable[[_F], _F]:
    """`numba.njit` with the types kept for mypy, and with a cache that never fails. `inner`: other kernels
    alone call the function. It is compiled only as a part of a kernel that calls it: one out of the cache has
    it inside. `nogil`: Python's other threads run while the kernel does."""
    options: dict[str, Any] = {
        "fastmath": fastmath,
        "nogil": nogil,
        "no_cpython_wrapper": inner,
        "no_cfunc_wrapper": inner or nogil,
    }

    def decorate(function: _F) -> _F:
        made = numba.njit(**options)(function)
        if inner:
            _compile_when_called(made, signatures)
        else:
            made._cache = _Cache(function)  # type: ignore[no-untyped-call]
            _compile(made, signatures)
        return cast(_F, made)

    return decorate


def _compile(kernel: Any, signatures: Iterable[Any]) -> None:
    """Compiles `kernel` for `signatures`, or loads it from the cache; for others it is never compiled."""
    for signature in signatures:
        kernel.compile(signature)
    kernel.disable_compile()


def _compile_when_called(kernel: Any, signatures: Iterable[Any]) -> None:
    """Compiles `kernel` when numba asks for its types, for a kernel that calls it (in numba's lock)."""
    types_of_call = kernel.get_call_template

    def compiled_first(*arguments: Any) -> Any:
        if not kernel.signatures:
            with _libraries(kernel.targetctx.codegen(), _Part):
                _compile(kernel, signatures)
        return types_of_call(*arguments)

    kernel.get_call_template = compiled_first
