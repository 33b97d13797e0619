"""Confines a process before it reads strangers' input: called in the process that
`pipeline.confinement.confined_process` starts.

A program that decodes, recognises or speaks what comes from outside begins with

    Confinement(read=("models/voice.onnx",), memory_mb=2048).apply()

as long as it has one thread, and before it opens a model or reads a request. From then on it, its threads and
its forks

- gain no privileges by running another program (`no_new_privs`), and run none,
- open no file but, for reading, those of Python, its packages and the system's libraries, and those named,
- open no socket, send no signal and change nothing of another process (a list of system calls, `seccomp`),
- have only the descriptors 0, 1, 2 and those named, no core dump, and bounds on descriptors and memory,
- have a lower priority than the server where they share a core.

The existence of files can still be seen (`stat`), and what was opened before stays open. docs/decisions.md
says why ctypes and no library. Sources: landlock(7), seccomp(2), networking/filter.rst of Linux."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import site
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pipeline.confinement.system_calls import (
    ARCHITECTURES,
    CALLS,
    CLONE3,
    CONDITIONS,
    DATAGRAM,
    FORK,
    IOCTL,
    OF_COMPUTING,
    OF_DATAGRAMS,
    OF_FORKING,
    Condition,
)

PACKAGE_ROOT: Final = Path(__file__).resolve().parents[2]
"""The directory of `pipeline` and the packages beside it: a checkout, or site-packages."""

DESCRIPTORS: Final = 256

NICE: Final = 5
"""The niceness of a helper process, so that the server goes first where they share a core."""

CUDA_DEVICES: Final = (
    *("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"),
    *(f"/dev/nvidia{number}" for number in range(16)),
)
"""Devices that a model on a GPU writes to, besides `ioctl` of every kind."""

_OWN_PACKAGES = ("pipeline", "mediaserver")

_LIBRARIES = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store", "/etc/ld.so.cache",
    "/etc/localtime", "/usr/share/zoneinfo", "/dev/urandom", "/dev/zero", "/proc/self", "/proc/cpuinfo",
    "/proc/meminfo", "/proc/stat", "/sys/devices", "/sys/bus/pci",
)  # fmt: skip
_DRIVERS = (
    "/proc/driver/nvidia",
    "/proc/devices",
    "/proc/modules",
    "/sys/bus/pci",
    "/sys/devices",
    "/sys/module",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """What one process may still use. A path in `read` that does not exist is skipped.

    `read`: files, and directories with all below them. `descriptors`: kept open besides 0, 1 and 2.
    `memory_mb`: bound of the process's own data, None for no bound. `forks`: the process may fork, and get
    work over a socket. `cuda`: it uses an NVIDIA GPU, whose driver takes any `ioctl`. `datagrams`: it opens
    sockets of datagrams."""

    read: Sequence[str | Path] = ()
    descriptors: Sequence[int] = ()
    memory_mb: int | None = None
    forks: bool = False
    cuda: bool = False
    datagrams: bool = False

    def apply(self) -> None:
        """Confines this process for good, as far as the kernel can (`lacking`).

        Raises RuntimeError in a process of several threads, since the others would not be confined. Raises
        OSError."""
        if len(os.listdir("/proc/self/task")) != 1:
            raise RuntimeError("a process is confined before it starts threads")
        _step_back()
        _close_others((0, 1, 2, *self.descriptors))
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_NOFILE, DESCRIPTORS)
        if self.memory_mb is not None:
            _limit(resource.RLIMIT_DATA, self.memory_mb * 1024 * 1024)
        _gain_nothing()
        if landlock_abi():
            _restrict_files(self._readable(), ("/dev/null", *(CUDA_DEVICES if self.cuda else ())))
        if seccomp_filters():
            _filter(self._program())

    def _readable(self) -> Iterator[str | Path]:
        yield from _runtime()
        yield from _DRIVERS if self.cuda else ()
        for path in self.read:
            yield path
            if os.path.isdir(path):  # models in a hub's cache are links to files elsewhere
                yield from (each for each in Path(path).iterdir() if each.is_symlink())

    def _program(self) -> bytes:
        column, architecture = ARCHITECTURES[os.uname().machine]
        calls = {**CALLS, **(OF_FORKING if self.forks else {}), **(OF_DATAGRAMS if self.datagrams else {})}
        conditions = {**CONDITIONS, **({"clone": FORK} if self.forks else {})}
        if self.datagrams:
            conditions["socket"] = DATAGRAM
        numbers = [each[column] for each in calls.values()]
        if self.cuda:
            del conditions["ioctl"]
            numbers.append(IOCTL[column])
        return _program(architecture, column, numbers, conditions)


def compute_only() -> None:
    """Reduces a process whose input is open to computing: from then on it can open nothing, not even what a
    confined process may read. Raises OSError."""
    _gain_nothing()
    if seccomp_filters():
        column, architecture = ARCHITECTURES[os.uname().machine]
        _filter(_program(architecture, column, [CALLS[name][column] for name in OF_COMPUTING], {}))


def lacking() -> tuple[str, ...]:
    """Returns the parts of confinement that this machine's kernel lacks, with what to do, for the log and the
    operator."""
    lacks = []
    if not landlock_abi():
        lacks.append('no Landlock, so files are open to it: Linux 5.13, booted with "landlock" in lsm=')
    if os.uname().machine not in ARCHITECTURES:
        lacks.append(f"no list of system calls for {os.uname().machine}, so sockets are open to it")
    elif not seccomp_filters():
        lacks.append("no seccomp filters, so sockets are open to it: a kernel with CONFIG_SECCOMP_FILTER")
    return tuple(lacks)


@cache
def landlock_abi() -> int:
    """Returns the kernel's version of Landlock, 0 without Landlock."""
    try:
        return _call(_libc().syscall, _LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION)
    except OSError:
        return 0


@cache
def seccomp_filters() -> bool:
    """Whether the kernel takes seccomp filters, and this architecture has a list of system calls."""
    if os.uname().machine not in ARCHITECTURES:
        return False
    try:
        _call(_libc().prctl, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, None, 0, 0)
    except OSError as error:
        return error.errno == errno.EFAULT  # it would have taken one
    return False


# Landlock: files ------------------------------------------------------------------------------------------

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446  # on every architecture
_LANDLOCK_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _READ_FILE, _READ_DIR, _IOCTL_DEV = 1 << 1, 1 << 2, 1 << 3, 1 << 15
_FILE_RIGHTS = ((1, 13), (2, 14), (3, 15), (5, 16))
"""From which version on Landlock knows how many rights to files: all that it knows are taken away."""


def _restrict_files(readable: Iterator[str | Path], writable: Sequence[str]) -> None:
    abi = landlock_abi()
    rights = (1 << max(count for version, count in _FILE_RIGHTS if version <= abi)) - 1
    network = 0b11 if abi >= 4 else 0  # bind and connect of TCP
    scopes = 0b11 if abi >= 6 else 0  # abstract UNIX sockets and signals of other processes
    ruleset = struct.pack("QQQ", rights, network, scopes)
    descriptor = _call(_libc().syscall, _LANDLOCK_CREATE_RULESET, ruleset, len(ruleset), 0)
    try:
        for path in readable:
            _permit(descriptor, path, _READ_FILE | _READ_DIR)
        for path in writable:
            _permit(descriptor, path, (_READ_FILE | _WRITE_FILE | _IOCTL_DEV) & rights)
        _call(_libc().syscall, _LANDLOCK_RESTRICT_SELF, descriptor, 0)
    finally:
        os.close(descriptor)


def _permit(ruleset: int, path: str | Path, rights: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= ~_READ_DIR
        rule = struct.pack("=Qi", rights, beneath)
        _call(_libc().syscall, _LANDLOCK_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(beneath)


def _runtime() -> Iterator[str | Path]:
    """Yields what Python reads when it imports. Not every directory of `sys.path`: a checkout, or the
    directory that the server was started in, holds settings and recordings too."""
    yield from _LIBRARIES
    yield from (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    yield from site.getsitepackages()
    if site.ENABLE_USER_SITE:
        yield site.getusersitepackages()
    yield Path(sys.base_exec_prefix, "lib")
    yield from (PACKAGE_ROOT / name for name in _OWN_PACKAGES)
    for variable in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        paths = filter(None, os.environ.get(variable, "").split(os.pathsep))
        yield from (path for path in paths if Path(path).resolve() != PACKAGE_ROOT)


# seccomp: system calls ------------------------------------------------------------------------------------

_LOAD, _AND, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06  # BPF_LD|W|ABS, ALU|AND|K, JMP|JEQ|K, RET|K
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # in struct seccomp_data
_ALLOW, _REFUSE, _KILL = 0x7FFF_0000, 0x0005_0000, 0x8000_0000  # _REFUSE | errno


def _program(
    architecture: int, column: int, numbers: Sequence[int | None], conditions: Mapping[str, Condition]
) -> bytes:
    """Returns the filter, an array of struct sock_filter."""
    lines = [
        _line(_LOAD, _ARCHITECTURE_AT),
        _line(_JUMP_IF_EQUAL, architecture, if_true=1),
        _line(_RETURN, _KILL),
        _line(_LOAD, _NUMBER_AT),
        *_answered(CLONE3[column], _REFUSE | errno.ENOSYS),
    ]
    for number in numbers:
        if number is not None:
            lines += _answered(number, _ALLOW)
    for condition in conditions.values():
        looked_at = [
            _line(_LOAD, _ARGUMENTS_AT + 8 * condition.argument),
            _line(_AND, condition.mask),
            *(line for value in condition.values for line in _answered(value, _ALLOW)),
            _line(_RETURN, _REFUSE | errno.EPERM),
        ]
        lines += [_line(_JUMP_IF_EQUAL, condition.numbers[column], if_false=len(looked_at)), *looked_at]
    return b"".join([*lines, _line(_RETURN, _REFUSE | errno.EPERM)])


def _answered(value: int, answer: int) -> tuple[bytes, bytes]:
    return _line(_JUMP_IF_EQUAL, value, if_false=1), _line(_RETURN, answer)


def _line(code: int, value: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _filter(program: bytes) -> None:
    held = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HP", len(program) // 8, ctypes.addressof(held))
    _call(_libc().prctl, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, described, 0, 0)


# Resources and descriptors --------------------------------------------------------------------------------


def _gain_nothing() -> None:
    _call(_libc().prctl, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _step_back() -> None:
    """Lowers the priority of a helper process, also below a real-time server (`CPUSchedulingPolicy=rr`): a
    packet is due every 20 ms, and a helper computes for 100 ms at a time."""
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.nice(NICE)


def _close_others(kept: Sequence[int]) -> None:
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError:
                continue  # that of the listing itself


def _limit(name: int, most: int) -> None:
    _, hard = resource.getrlimit(name)
    bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(name, (bound, bound))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(function: Callable[..., int], *arguments: object) -> int:
    """Returns the result of a function of the C library. Raises OSError where it is negative."""
    given = function(*(ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments))
    if given < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return given
