"""The telephone of the called person, on whichever independent SIP stack this machine has: PJSIP where its
wheel exists (Python 3.11 and 3.12 on x86-64), else baresip, a program of the system's packages."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

from mediaserver.errors import LocalError

CLOCK_RATE_HZ = 16000
Report = Callable[[str, Mapping[str, Any]], None]

NONE = (
    "no independent softphone for the other end: PJSIP has no wheel for this Python, and baresip is not "
    "installed (apt-get install baresip)"
)


class Line(Protocol):
    """One call: its number from 0, the WAV file that grows with what is heard, and whether it is over."""

    number: int
    recording: Path
    ended: bool


class Telephone(Protocol):
    """A telephone on loopback that answers every call. Its owner calls `poll` at least every 20 ms.
    `heard_rate_hz`: of the recordings."""

    port: int
    heard_rate_hz: int

    @property
    def lines(self) -> Sequence[Line]:
        """The calls, over or not."""

    def poll(self, timeout_ms: int = 10) -> None:
        """Handles what has happened, for up to `timeout_ms`."""

    def play(self, line: int, file: str) -> None:
        """Plays a 16-bit mono WAV file into the call, once."""

    def close(self) -> None:
        """Hangs up and frees everything."""


class Events:
    """Writes JSON lines to what was standard output. PJSIP, which logs there until it is told not to, gets
    standard error instead."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def __call__(self, event: str, fields: Mapping[str, Any]) -> None:
        self._out.write(json.dumps({"event": event, **fields}) + "\n")


def stack() -> str:
    """Returns the name of the stack, "" for none."""
    if find_spec("pjsua2") is not None:
        return "PJSIP"
    return "baresip" if shutil.which("baresip") else ""


def telephone(directory: Path, report: Report, *, port: int, answer_after_s: float) -> Telephone:
    """Starts a telephone at `port`; its files lie in `directory`. Raises `LocalError`: there is none."""
    found = stack()
    if not found:
        raise LocalError(NONE)
    name = "softphone:Softphone" if found == "PJSIP" else "baresip:Baresip"
    make: Callable[..., Telephone] = resolve_name(f"mediaserver.demo.{name}")
    return make(directory, report, port=port, options={"answer_after_s": answer_after_s})
