"""The server's side of a Whisper model in a helper process: starts, asks and restarts the process.

The process keeps crashes of C++ code, the model's memory and the interpreter's lock apart from the media
loop. Methods block: they are called from the threads of `pipeline.stt.whisper.batching`.
"""

from __future__ import annotations

import enum
import json
import logging
import queue
import select
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.confinement.confined_process import (
    clean_environment,
    confined_command,
    how_it_ended,
    restart_pause_s,
)
from pipeline.confinement.messages import pack, receive
from pipeline.errors import EngineError, EngineMissing
from pipeline.stt.whisper.wire import Decoded

_LOG = logging.getLogger(__name__)

START_S: Final = 55.0
"""Longest wait for the process's first message, in seconds; less than the start of an engine may take."""

HUNG_S: Final = 5.0
HUNG_TIMES: Final = 20
"""A decode hangs when it takes longer than `HUNG_S` and than `HUNG_TIMES` times the first decode; its process
is then killed."""

_RESTART_S: Final = 5.0
_LOOK_S: Final = 0.2
_ENDS_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class DecoderProgram:
    """A model and its execution. `model`: the directory; `threads`: number of decodes at a time."""

    model: str
    threads: int
    device: str
    compute_type: str


class _State(enum.Enum):
    STOPPED = "stopped"  # not started, or between a death and the next start
    RUNNING = "running"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class _Running:
    """A started process. `free`: the sockets without a request."""

    process: subprocess.Popen[bytes]
    sockets: tuple[socket.socket, ...]
    free: queue.SimpleQueue[socket.socket]


class WhisperDecoder:
    """A model in a helper process. A thread restarts a process that died; until it is ready, decodes fail,
    and a call asks its next recogniser."""

    def __init__(self, program: DecoderProgram) -> None:
        self.program = program
        self.hung_s = START_S  # the first decode fills caches
        self._state = _State.STOPPED
        self._running: _Running | None = None
        self._multilingual = False
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._supervisor: threading.Thread | None = None
        self._deaths = 0  # deaths and failed starts since the last answer

    def start(self) -> None:
        """Starts the process and blocks until the model is loaded. Raises `EngineMissing` with the reason."""
        try:
            running = self._started()
        except EngineError as error:
            raise EngineMissing(str(error)) from error
        self._supervisor = threading.Thread(
            target=self._supervise, args=(running,), name="whisper process", daemon=True
        )
        self._supervisor.start()

    def took(self, first_decode_s: float) -> None:
        """Sets `hung_s` by the time of the first decode, in seconds."""
        self.hung_s = max(HUNG_S, HUNG_TIMES * first_decode_s)

    @property
    def multilingual(self) -> bool:
        """Whether the model recognises languages other than English."""
        return self._multilingual

    @property
    def pid(self) -> int | None:
        """The process id, None while no process runs."""
        running = self._running
        return None if running is None else running.process.pid

    def decoded(
        self,
        audios: Sequence[npt.NDArray[np.float32]],
        *,
        language: str,
        hotwords: str | None,
        window_s: int,
        most: int,
    ) -> list[Decoded]:
        """Decodes `audios` (float32 at 16 kHz, at most 30 s each) in one pass, with at most `most` tokens
        each. Raises `EngineError`: retryable when the process died, hung or is being restarted."""
        running = self._running
        if running is None:
            raise EngineError("the process of faster-whisper is being started again", retryable=True)
        request = pack(
            {
                "lengths": [len(each) for each in audios],
                "language": language,
                "hotwords": hotwords,
                "window_s": window_s,
                "most": most,
            },
            np.concatenate(audios).astype(np.float32, copy=False).tobytes(),
        )
        answer = self._exchanged(running, request)
        if "failed" in answer:
            raise EngineError(f"faster-whisper failed ({answer['failed']})", retryable=True)
        return [Decoded(**each) for each in answer["texts"]]

    def close(self) -> None:
        """Ends the process for good; `decoded` must not be called after."""
        self._closing.set()
        with self._lock:
            running, self._running, self._state = self._running, None, _State.CLOSED
        if running is not None:
            _end(running)
        if self._supervisor is not None:
            self._supervisor.join()
            self._supervisor = None

    def _exchanged(self, running: _Running, request: bytes) -> dict[str, Any]:
        connection = running.free.get()
        try:
            connection.settimeout(self.hung_s)
            connection.sendall(request)
            answer, _ = receive(partial(_read, connection))
        except TimeoutError:
            if self._lost(running):  # two decodes may find it hanging
                _LOG.warning("recogniser process hangs and is killed", extra=self._named(running.process))
            raise EngineError("the process of faster-whisper hung", retryable=True) from None
        except (OSError, EOFError, ValueError):
            self._lost(running)
            raise EngineError("the process of faster-whisper died", retryable=True) from None
        finally:
            running.free.put(connection)
        self._deaths = 0
        return answer

    def _lost(self, running: _Running) -> bool:
        """Kills the process and takes it out of use; the supervisor restarts it. False: that was done
        before."""
        with self._lock:
            news = self._running is running
            if news:
                self._running, self._state = None, _State.STOPPED
        with suppress(ProcessLookupError):
            running.process.kill()
        return news

    def _supervise(self, running: _Running) -> None:
        """Waits for the end of each process and starts the next, after a pause that grows with every death in
        a row."""
        while not self._closing.is_set():
            code = running.process.wait()
            self._lost(running)
            _close(running)
            if self._closing.is_set():
                return
            self._deaths += 1
            _LOG.warning(
                "recogniser process ended, started again",
                extra={**self._named(running.process), "exit_code": code},
            )
            while not self._closing.wait(restart_pause_s(self._deaths, limit_s=_RESTART_S)):
                try:
                    running = self._started()
                    break
                except EngineError as error:
                    self._deaths += 1
                    _LOG.warning("recogniser process does not start", extra={"reason": str(error)})

    def _started(self) -> _Running:
        """Starts a process and waits until its model is loaded. Raises `EngineError`."""
        program = self.program
        ours, theirs = [], []
        try:
            for _ in range(program.threads):
                here, there = socket.socketpair()
                ours.append(here)
                theirs.append(there)
            numbers = [each.fileno() for each in theirs]
            arguments = json.dumps({**asdict(program), "sockets": numbers})
            process = subprocess.Popen(
                confined_command("pipeline.stt.whisper.process", arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=clean_environment(),
                pass_fds=numbers,
            )
        except OSError as error:
            for each in ours:
                each.close()
            raise EngineError(f"its process cannot be started ({error.strerror})", retryable=True) from error
        finally:
            for each in theirs:
                each.close()
        free: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        for each in ours:
            free.put(each)
        running = _Running(process, tuple(ours), free)
        self._greeted(running)
        return running

    def _greeted(self, running: _Running) -> None:
        """Takes the process's first message. Raises `EngineError`."""
        connection, end = running.sockets[0], time.monotonic() + START_S
        said = select.poll()  # select() takes no descriptor beyond 1023
        said.register(connection, select.POLLIN)
        reason = f"its process says nothing for {START_S:g} s"
        try:
            while not self._closing.is_set() and time.monotonic() < end:
                if not said.poll(_LOOK_S * 1000):
                    continue
                connection.settimeout(HUNG_S)
                head, _ = receive(partial(_read, connection))
                self._multilingual = bool(head["multilingual"])
                with self._lock:
                    if self._state is not _State.CLOSED:
                        self._running, self._state = running, _State.RUNNING
                        return
        except KeyError:
            reason = _reason(self.program, head)
        except (OSError, EOFError, ValueError):
            reason = _ending(running.process)
        _end(running)
        raise EngineError(
            f"the Whisper model in {self.program.model} does not load: {reason}", retryable=True
        )

    def _named(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        return {"engine": "faster-whisper", "pid": process.pid}


def _reason(program: DecoderProgram, head: dict[str, Any]) -> str:
    if "absent" in head:
        return f"faster-whisper is not installed (extra `whisper`): {head['absent']}"
    return str(head.get("failed", "its process says what is no answer"))


def _ending(process: subprocess.Popen[bytes]) -> str:
    """The reason of a process's end."""
    try:
        return how_it_ended(process.wait(_ENDS_S))
    except subprocess.TimeoutExpired:
        return "its process broke off"


def _read(connection: socket.socket, size: int) -> bytes:
    """Reads `size` bytes, or fewer at the end of the stream. Raises OSError, TimeoutError."""
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _end(running: _Running) -> None:
    with suppress(ProcessLookupError):
        running.process.kill()
    running.process.wait()
    _close(running)


def _close(running: _Running) -> None:
    for each in running.sockets:
        each.close()
