"""The system calls that a confined process may make, with their numbers.

A call that is not listed is refused: sockets, other programs, signals and limits of other processes, mounts,
tracing, keys, io_uring, owners and modes of files. The selection is systemd's `@system-service` without what
acts on anything but the process itself; Landlock decides which files may be opened. The numbers are
libseccomp's (tests/pipeline/confinement/test_confinement.py compares them)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

X86_64, AARCH64 = 0, 1

ARCHITECTURES: Final[Mapping[str, tuple[int, int]]] = {
    "x86_64": (X86_64, 0xC000003E),
    "aarch64": (AARCH64, 0xC00000B7),
}
"""By `os.uname().machine`: the column of the tables, and the AUDIT_ARCH_* number that the kernel gives to a
filter."""

CALLS: Final[Mapping[str, tuple[int | None, int | None]]] = {
    # descriptors and files
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70), "lseek": (8, 62), "close": (3, 57),
    "close_range": (436, 436), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "fstat": (5, 80),
    "newfstatat": (262, 79), "stat": (4, None), "lstat": (6, None), "statx": (332, 291), "access": (21, None),
    "faccessat": (269, 48), "faccessat2": (439, 439), "open": (2, None), "openat": (257, 56),
    "readlink": (89, None), "readlinkat": (267, 78), "getdents64": (217, 61), "getcwd": (79, 17),
    "pipe": (22, None), "pipe2": (293, 59), "poll": (7, None), "ppoll": (271, 73), "select": (23, None),
    "pselect6": (270, 72), "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, None),
    "epoll_pwait": (281, 22), "eventfd2": (290, 19), "memfd_create": (319, 279), "ftruncate": (77, 46),
    "fadvise64": (221, 223), "statfs": (137, 43), "fstatfs": (138, 44), "flock": (73, 32),
    "umask": (95, 166),
    # memory
    "mmap": (9, 222), "munmap": (11, 215), "mremap": (25, 216), "mprotect": (10, 226), "madvise": (28, 233),
    "brk": (12, 214), "mlock": (149, 228), "munlock": (150, 229), "msync": (26, 227), "mincore": (27, 232),
    "membarrier": (324, 283), "mbind": (237, 235), "get_mempolicy": (239, 236), "set_mempolicy": (238, 237),
    # threads and the process itself
    "futex": (202, 98), "set_robust_list": (273, 99), "get_robust_list": (274, 100), "rseq": (334, 293),
    "set_tid_address": (218, 96), "gettid": (186, 178), "getpid": (39, 172), "getppid": (110, 173),
    "exit": (60, 93), "exit_group": (231, 94), "sched_yield": (24, 124), "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121), "sched_getscheduler": (145, 120), "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126), "getpriority": (140, 141), "getcpu": (309, 168),
    "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
    "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150), "getpgrp": (111, None),
    "getpgid": (121, 155), "getsid": (124, 156), "uname": (63, 160), "sysinfo": (99, 179),
    "getrusage": (98, 165), "getrlimit": (97, 163), "setrlimit": (160, 164), "getrandom": (318, 278),
    "capget": (125, 90), "arch_prctl": (158, None), "prctl": (157, 167), "seccomp": (317, 277),
    # time and signals
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101), "gettimeofday": (96, 169), "time": (201, None), "times": (100, 153),
    "getitimer": (36, 102), "setitimer": (38, 103), "alarm": (37, None), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132),
    "restart_syscall": (219, 128), "pause": (34, None),
}  # fmt: skip
"""System calls that are allowed whatever their arguments: the number on each architecture."""

OF_FORKING: Final[Mapping[str, tuple[int | None, int | None]]] = {
    "wait4": (61, 260), "waitid": (247, 95), "recvmsg": (47, 212), "sendto": (44, 206),
}  # fmt: skip
"""System calls allowed beside `CALLS` where a process forks for each request and gets requests over a
socket."""

OF_DATAGRAMS: Final[Mapping[str, tuple[int | None, int | None]]] = {
    "bind": (49, 200), "connect": (42, 203), "getsockname": (51, 204), "getpeername": (52, 205),
    "sendto": (44, 206), "recvfrom": (45, 207), "sendmsg": (46, 211), "recvmsg": (47, 212),
    "setsockopt": (54, 208), "getsockopt": (55, 209),
}  # fmt: skip
"""System calls allowed beside `CALLS` where a process has sockets of datagrams."""

OF_COMPUTING: Final = frozenset({
    "read", "write", "readv", "writev", "pread64", "lseek", "close", "fstat", "newfstatat", "mmap", "munmap",
    "mremap", "mprotect", "madvise", "brk", "futex", "gettid", "getpid", "exit", "exit_group", "sched_yield",
    "sched_getaffinity", "getcpu", "getrusage", "getrandom", "sysinfo", "uname", "clock_gettime",
    "clock_getres", "gettimeofday", "setitimer", "getitimer", "rt_sigaction", "rt_sigprocmask",
    "rt_sigreturn", "sigaltstack", "restart_syscall", "set_robust_list", "rseq", "prctl",
})  # fmt: skip
"""The part of `CALLS` that is left to a process that only computes: it opens nothing."""


class Condition(NamedTuple):
    """A call that is allowed if `argument & mask` is one of `values`; `numbers` as in `CALLS`."""

    numbers: tuple[int, int]
    argument: int
    mask: int
    values: tuple[int, ...]


_WHOLE = 0xFFFF_FFFF
_CLONE_THREAD = 0x0001_0000
_CLONE_ELSEWHERE = 0x7E02_8000
"""CLONE_PARENT and the namespaces: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""

CONDITIONS: Final[Mapping[str, Condition]] = {
    # F_DUPFD, GETFD, SETFD, GETFL, SETFL, GETLK, SETLK, SETLKW, DUPFD_CLOEXEC, GETPIPE_SZ, GET_SEALS. Not
    # F_SETOWN and F_SETSIG, which send signals to others.
    "fcntl": Condition((72, 25), 1, _WHOLE, (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1032, 1034)),
    # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX. Not TIOCSTI, which types into a terminal.
    "ioctl": Condition((16, 29), 1, _WHOLE, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),
    "prlimit64": Condition((302, 261), 0, _WHOLE, (0,)),  # its own limits
    "clone": Condition((56, 220), 0, _CLONE_THREAD, (_CLONE_THREAD,)),  # threads
}

FORK: Final = Condition((56, 220), 0, _CLONE_ELSEWHERE, (0,))
"""In the place of "clone" where a process forks."""

DATAGRAM: Final = Condition((41, 198), 1, 0xF, (2,))
"""Makes a socket, of SOCK_DGRAM alone: neither TCP nor raw."""

CLONE3: Final = (435, 435)
"""The system call clone3, answered with ENOSYS: its arguments lie in memory, where a filter cannot look, and
libraries then call clone instead."""

IOCTL: Final = (16, 29)
