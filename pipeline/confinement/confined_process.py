"""Starts processes that read what strangers sent: the server's side of `pipeline.confinement.confinement`.

Every program that the server runs beside itself is started here. It gets none of the server's environment,
where secrets are (`env:NAME` in the configuration), and none of its descriptors; the program itself calls
`Confinement(...).apply()` before anything else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from functools import cache
from typing import Final

from pipeline.confinement.confinement import PACKAGE_ROOT, lacking

_LOG = logging.getLogger(__name__)

PASSED_ON: Final = (
    "LANG", "LC_ALL", "LC_CTYPE", "TZ", "HOME", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
)  # fmt: skip
"""Variables of the server's environment that a confined process gets, PYTHONPATH beside them."""

_PAUSE_S: Final = 0.1
_DOUBLINGS: Final = 10
_CAUSES: Final[Mapping[int, str]] = {
    signal.SIGILL: ": this CPU lacks instructions that its libraries were built for (AVX, most likely)",
    signal.SIGKILL: ": by the kernel, for want of memory, most likely",
}

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


async def start_confined(
    module: str,
    *arguments: str,
    stdin: int = asyncio.subprocess.PIPE,
    stdout: int = asyncio.subprocess.PIPE,
    stderr: int | None = None,
) -> Process:
    """Runs `python -m module arguments...` in a clean environment. `stdin`, `stdout`, `stderr`: as
    `asyncio.create_subprocess_exec` has them. Raises OSError."""
    return await asyncio.create_subprocess_exec(
        *confined_command(module, *arguments),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=clean_environment(),
    )


def confined_command(module: str, *arguments: str) -> list[str]:
    """Returns the command line of `start_confined`, for a caller that starts the process in a thread with
    `clean_environment`."""
    _tell_what_is_lacking()
    return [sys.executable, "-P", "-m", module, *arguments]


def close_pipes(process: Process) -> None:
    """Closes the server's ends of the process's pipes, which asyncio leaves to the garbage collector
    otherwise."""
    if process.stdin is not None:
        process.stdin.close()
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


async def end_process(process: Process) -> None:
    """Kills a process that still runs, and waits for its end."""
    if process.returncode is None:
        process.kill()
    await process.wait()
    close_pipes(process)


def restart_pause_s(deaths: int, *, limit_s: float) -> float:
    """Returns the seconds before the next start after `deaths` in a row: doubled with each, up to `limit_s`;
    0.0 after none."""
    return min(_PAUSE_S * 2.0 ** min(deaths - 1, _DOUBLINGS), limit_s) if deaths else 0.0


def how_it_ended(status: int) -> str:
    """Describes an exit status, negative for a signal as in `subprocess`."""
    if status >= 0:
        return f"its process ended with status {status}"
    return f"its process ended with {signal_name(-status)}{_CAUSES.get(-status, '')}"


def signal_name(number: int) -> str:
    """Returns the name of a signal, such as "SIGSEGV" for 11; "signal 40" for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def clean_environment() -> dict[str, str]:
    """Returns the whole environment of a confined process. Linear algebra has one thread: a process is
    confined before it has threads, and an engine that needs more sets its own number."""
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    path = os.pathsep.join(filter(None, (str(PACKAGE_ROOT), os.environ.get("PYTHONPATH"))))
    return {**kept, **dict.fromkeys(_THREADS, "1"), "PYTHONPATH": path}


@cache
def _tell_what_is_lacking() -> None:
    """Logs what the kernel lacks, once in the life of the server."""
    for lack in lacking():
        _LOG.warning("helper processes are less confined", extra={"lacks": lack})
