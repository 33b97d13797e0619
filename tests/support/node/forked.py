"""Runs `mediaserver`, and the clients of rooms, in a process forked from one that has imported them: a start of
its own takes the server 1.6 s of CPU, of which imports are 1.2 s, and a client 0.5 s."""

from __future__ import annotations

import asyncio
import atexit
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mediaserver.__main__ import main

IMPORTED = (
    "mediaserver.launch",
    "mediaserver.serve",
    "mediaserver.db.postgres",
    "mediaserver.benchmark.command",
    "mediaserver.cli.doctor",
    "mediaserver.cli.upkeep",
    "api.app",
    "tests.support.webrtc.rtc_client",
    "tests.support.webrtc.sdk_client",
    __name__,
)
"""What the commands need, the clients, and this module."""


class Forked:
    """The command line in a process of its own, in the folder `cwd`, that writes to the files `output` and
    `errors`, both to `output` where there is but one. It is asked and ended as a `subprocess.Popen` is."""

    def __init__(
        self, words: Sequence[str], output: Path, errors: Path | None = None, *, cwd: Path | None = None
    ) -> None:
        files = [output, errors or output]
        for file in files:
            file.write_bytes(b"")
        told = (list(words), [str(file.absolute()) for file in files], str(cwd or "."), dict(os.environ))
        self._process = _started(_run, told)

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status, a signal's number below zero, None while it runs."""
        return self._process.exitcode

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits for the exit status. Raises `subprocess.TimeoutExpired`."""
        self._process.join(timeout_s)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("mediaserver", timeout_s or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)


def run_forked(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What a command prints in a process of its own, and ends with."""
    command = [str(each) for each in words]
    with TemporaryDirectory() as folder:
        output, errors = Path(folder) / "output", Path(folder) / "errors"
        process = Forked(command, output, errors, cwd=cwd)
        try:
            status = process.wait(120)
        finally:
            process.kill()
        return subprocess.CompletedProcess(command, status, output.read_text(), errors.read_text())


def forked_client(module: str, stdin: socket.socket, stdout: socket.socket, *, is_quiet: bool) -> BaseProcess:
    """A process that runs `main` of a client's module. `is_quiet`: nobody sees what it writes on stderr."""
    return _started(_run_client, (module, stdin, stdout, is_quiet))


def _started(target: Callable[..., None], arguments: tuple[Any, ...]) -> BaseProcess:
    forking = multiprocessing.get_context("forkserver")
    forkserver.set_forkserver_preload(list(IMPORTED))
    process = forking.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def _run_client(module: str, stdin: socket.socket, stdout: socket.socket, is_quiet: bool) -> None:
    os.dup2(stdin.detach(), 0)
    os.dup2(stdout.detach(), 1)
    if is_quiet:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.stdin = os.fdopen(0, closefd=False)
    asyncio.run(import_module(module).main())


def _run(words: Sequence[str], files: Sequence[str], cwd: str, environment: Mapping[str, str]) -> None:
    """Does in the child what a start of its own would do."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup children ignore it
    for descriptor, file in enumerate(files, start=1):
        opened = os.open(file, os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["mediaserver", *words]
    try:
        main(words, prog_name="mediaserver")
    finally:
        atexit._run_exitfuncs()
