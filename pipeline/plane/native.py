"""The types of the plane's memory, as its kernels are compiled for them."""

from __future__ import annotations

from typing import Any, Final

import numba
from llvmlite import ir
from numba.extending import intrinsic

from pipeline.plane import rows

_typeof: Final[Any] = numba.typeof
T: Final[Any] = numba.types  # its own stubs cover a part of it only

ROWS: Final = _typeof(rows.rows(1))
LINE: Final = ROWS.dtype
SCRATCH: Final = _typeof(rows.scratch())
SHARED: Final = _typeof(rows.shared())
I64: Final = T.int64
VOID: Final = T.void
BOOL: Final = T.boolean
I16: Final = T.int16[::1]
U8: Final = T.uint8[::1]
F32: Final = T.float32[::1]


def _pointer(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
    """A record is handed on as its address."""
    return builder.inttoptr(args[0], context.get_value_type(signature.return_type))


def pointer_to(record: Any) -> Any:
    """Returns what gives compiled code the record of that type at an address."""
    return intrinsic(lambda typing_context, address: (record(T.uintp), _pointer))


line_at: Final[Any] = pointer_to(LINE)
