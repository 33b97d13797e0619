"""What somebody would try who has taken over a confined process.

`python -m tests.support.confined_probe JSON`. The object names paths to read that are granted (`read`) and
others (`others`), a port that listens on loopback, a directory, and the server's process id. Prints a JSON
object: for each attempt the name of the error, or what came of it. With `free`, names of attempts, these are
made without any confinement."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.confinement.confinement import Confinement

_IO_URING_SETUP = 425
_PTRACE_ATTACH = 16
_TIOCSTI = 0x5412


def attempts(wanted: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """By name; each raises, or gives what it achieved."""
    server, directory, port = wanted["server"], Path(wanted["directory"]), wanted["port"]
    libc = ctypes.CDLL(None, use_errno=True)

    def called(*arguments: int) -> int:
        result = int(libc.syscall(*arguments))
        if result < 0:
            raise OSError(ctypes.get_errno(), "refused")
        return result

    def traced() -> int:
        if libc.ptrace(_PTRACE_ATTACH, server, 0, 0) < 0:
            raise OSError(ctypes.get_errno(), "refused")
        return 0

    tries: dict[str, Callable[[], object]] = {
        "connect": lambda: socket.create_connection(("127.0.0.1", port), timeout=5),
        "udp socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "unix socket": lambda: socket.socket(socket.AF_UNIX),
        "pair of sockets": socket.socketpair,
        "execve": lambda: os.execv("/bin/true", ["true"]),
        "fork": os.fork,
        "write a file": lambda: (directory / "written").write_text("x"),
        "make a directory": (directory / "made").mkdir,
        "remove a file": (directory / "victim").unlink,
        "open a file's modes": lambda: (directory / "victim").chmod(0o777),
        "rename a file": lambda: (directory / "victim").rename(directory / "elsewhere"),
        "list a directory": lambda: os.listdir(directory),
        "signal the server": lambda: os.kill(server, 0),
        "slow the server": lambda: os.setpriority(os.PRIO_PROCESS, server, 19),
        "limit the server": lambda: resource.prlimit(server, resource.RLIMIT_CPU),
        "have signals sent": lambda: fcntl.fcntl(0, fcntl.F_SETOWN, server),
        "type into a terminal": lambda: fcntl.ioctl(2, _TIOCSTI, b"x"),
        "trace the server": traced,
        "io_uring": lambda: called(_IO_URING_SETUP, 1, 0),
        "the server's environment": lambda: Path(f"/proc/{server}/environ").read_bytes(),
        "the server's memory": Path(f"/proc/{server}/mem").open,
        "by way of proc": lambda: Path("/proc/self/root/etc/passwd").read_text(),
        "a gigabyte": lambda: len(bytearray(1 << 30)),
    }
    for path in wanted["others"]:
        tries[path] = Path(path).read_bytes
    return tries


def outcome(attempt: Callable[[], object]) -> str:
    """The error's name, or what it achieved."""
    try:
        return f"achieved {attempt()!r}"
    except (OSError, MemoryError) as error:
        return type(error).__name__


def main() -> None:
    """Tries everything, from the first thread and from another one."""
    wanted = json.loads(sys.argv[1])
    if "free" in wanted:
        tries = attempts(wanted)
        print(json.dumps({name: outcome(tries[name]) for name in wanted["free"]}))
        return
    inherited = sorted(map(int, os.listdir("/proc/self/fd")))
    Confinement(read=wanted["read"], memory_mb=512).apply()
    found: dict[str, Any] = {name: outcome(attempt) for name, attempt in attempts(wanted).items()}
    thread = threading.Thread(
        target=lambda: found.update({"in a thread": outcome(lambda: socket.socket(socket.AF_INET))})
    )
    thread.start()
    thread.join()
    found["granted"] = [outcome(Path(path).read_text) for path in wanted["read"] if Path(path).is_file()]
    found["granted beneath"] = [
        outcome(each.read_text)
        for path in wanted["read"]
        if Path(path).is_dir()
        for each in sorted(map(Path(path).joinpath, wanted["names"]))
    ]
    found["environment"] = Path("/proc/self/environ").read_text()
    found["status"] = Path("/proc/self/status").read_text()
    found["descriptors"] = inherited[:-1]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
