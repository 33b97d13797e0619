"""Kernels that have less than this one, for what is run behind a filter of system calls."""

from __future__ import annotations

WITHOUT_LANDLOCK = """
import ctypes, errno, os, struct, sys
def line(code, value, true=0, false=0): return struct.pack("HBBI", code, true, false, value)
lines = [line(0x20, 0)]
for number in (444, 445, 446): lines += [line(0x15, number, 0, 1), line(6, 0x50000 | errno.ENOSYS)]
program = b"".join([*lines, line(6, 0x7fff0000)])
held = ctypes.create_string_buffer(program, len(program))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack("HP", len(program) // 8, ctypes.addressof(held)), 0, 0) == 0
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""`python -c` this, with the arguments of another `python`: a kernel without Landlock."""
