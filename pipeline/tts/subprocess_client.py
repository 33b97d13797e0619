"""The server's side of a voice in a helper process: starts, shares and restarts the process.

A process keeps the licence, memory, crashes and threads of a voice apart from the server."""

from __future__ import annotations

import asyncio
import enum
import logging
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias
from weakref import WeakKeyDictionary

from pipeline.confinement.confined_process import end_process, how_it_ended, restart_pause_s, start_confined
from pipeline.confinement.messages import pack, receive_from
from pipeline.engines.aio import is_cancelled
from pipeline.errors import EngineError, EngineMissing, LocalError
from pipeline.tts.subprocess_wire import Kind, Word

_LOG = logging.getLogger(__name__)

_RESTART_S: Final = 2.0
"""The longest pause before a process that died is restarted, in seconds."""

Spoken: TypeAlias = tuple[bytes, list[Word]]
"""Samples (s16le) and the words that begin in these samples."""


@dataclass(frozen=True, slots=True)
class VoiceProgram:
    """A voice as a program: `python -m module arguments...`, which runs a `VoiceService`.

    `start_s`: longest wait for READY. `hung_s`: longest time without any message while a request, or a
    cancelled one, waits; after that the process is killed. A process that serves other requests first sends
    messages. `hung_s` should be below a session's `tts_stall_ms`, so that a retry gets a new process."""

    name: str
    module: str
    start_s: float
    hung_s: float
    arguments: tuple[str, ...] = ()


class _State(enum.Enum):
    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"


class _Request:
    """The synthesis of one sentence under way, with its messages in order. Their number is bounded by the
    sentence's length, which the engine limits; the engine asks for the next sentence once this one is
    taken."""

    __slots__ = ("arrived", "ended", "messages", "reason")

    def __init__(self) -> None:
        self.messages: deque[Spoken] = deque()
        self.arrived = asyncio.Event()
        self.ended = False
        self.reason: EngineError | None = None

    def end(self, reason: EngineError | None = None) -> None:
        self.ended, self.reason = True, reason
        self.arrived.set()


class VoiceProcess:
    """One process for all users of a program in one event loop. `acquire` and `release` count the users; the
    process ends with the last. The next request restarts a process that died, after a pause that grows with
    every death in a row."""

    _shared: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[VoiceProgram, VoiceProcess]]] = (
        WeakKeyDictionary()
    )

    def __init__(self, program: VoiceProgram) -> None:
        self.program = program
        self.rate_hz = 0
        self._state = _State.STOPPED
        self._users = 0
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._requests: dict[int, _Request] = {}
        self._number = 0
        self._deaths = 0
        self._heard_at = 0.0
        self._starting: asyncio.Task[Process] | None = None

    @classmethod
    async def acquire(cls, program: VoiceProgram) -> VoiceProcess:
        """Gives the running loop's process of `program`, started; call `release` after use. Raises
        `EngineMissing`."""
        processes = cls._shared.setdefault(asyncio.get_running_loop(), {})
        shared = processes.setdefault(program, cls(program))
        shared._users += 1
        try:
            await shared._ensure_running()
        except EngineError as error:
            await shared.release()
            raise EngineMissing(f"does not start: {error}") from error
        except asyncio.CancelledError:
            await shared.release()
            raise
        return shared

    async def release(self) -> None:
        """Counts one user less; the last user ends the process. Raises `LocalError` without a user."""
        if self._users <= 0:
            raise LocalError("a voice was released more often than acquired")
        self._users -= 1
        if self._users == 0:
            self._forget()
            await self._stop()

    def _forget(self) -> None:
        loop = asyncio.get_running_loop()
        processes = self._shared.get(loop, {})
        processes.pop(self.program, None)
        if not processes:
            self._shared.pop(loop, None)

    @property
    def pid(self) -> int | None:
        """The process id, None while no process runs."""
        return self._process.pid if self._process is not None and self._state is _State.RUNNING else None

    async def speak(self, request: Mapping[str, Any]) -> AsyncGenerator[Spoken, None]:
        """Synthesises `request`, chunk by chunk as they arrive. Closing the generator cancels the synthesis.
        Raises `EngineError`: retryable when the process died, not when it refused the request."""
        process = await self._ensure_running()
        self._number += 1
        number, state = self._number, _Request()
        self._requests[number] = state
        try:
            self._send(process, Kind.SPEAK, number, request=dict(request))
            while True:
                await self._wait(state)
                while state.messages:
                    yield state.messages.popleft()
                if state.ended:
                    break
            if state.reason is not None:
                raise state.reason
        finally:
            self._drop(process, number, state)

    async def _wait(self, state: _Request) -> None:
        """Waits for a message or the end of the request; kills a process that hangs. Raises
        `EngineError`."""
        while not state.messages and not state.ended:
            state.arrived.clear()
            try:
                async with asyncio.timeout(self.program.hung_s):
                    await state.arrived.wait()
            except TimeoutError:
                if self._quiet_s < self.program.hung_s:
                    continue
                self._kill()
                if self._reader is not None:
                    await asyncio.wait({self._reader})  # until the state is STOPPED
                raise EngineError(f"{self.program.name} stopped answering", retryable=True) from None

    @property
    def _quiet_s(self) -> float:
        return asyncio.get_running_loop().time() - self._heard_at

    def _drop(self, process: Process, number: int, state: _Request) -> None:
        """Drops a request; cancels one under way, which must end within `hung_s`."""
        if state.ended or process is not self._process or self._state is not _State.RUNNING:
            self._requests.pop(number, None)
            return
        self._send(process, Kind.CANCEL, number)
        asyncio.get_running_loop().call_later(self.program.hung_s, self._check_cancelled, number, state)

    def _check_cancelled(self, number: int, state: _Request) -> None:
        if self._requests.get(number) is not state or state.ended:
            return
        left_s = self.program.hung_s - self._quiet_s
        if left_s > 0:
            asyncio.get_running_loop().call_later(left_s, self._check_cancelled, number, state)
        else:
            self._kill()

    def _send(self, process: Process, kind: Kind, number: int, **fields: Any) -> None:
        assert process.stdin is not None
        # No drain: sentences are short, and the process reads ahead (its queue holds 1024 requests).
        process.stdin.write(pack({"kind": kind, "number": number, **fields}))

    async def _ensure_running(self) -> Process:
        """Gives the process, started if needed. The start is a task that goes on when the caller is
        cancelled, since it may take longer than a caller waits. Raises `EngineError`."""
        if self._state is _State.RUNNING and self._process is not None:
            return self._process
        if self._starting is None:
            self._starting = asyncio.create_task(self._restart(), name=f"{self.program.name} start")
        starting = self._starting
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            if starting.cancelled() and not is_cancelled():  # by `_stop`
                raise EngineError(f"{self.program.name} was closed", retryable=False) from None
            raise

    async def _restart(self) -> Process:
        try:
            await asyncio.sleep(restart_pause_s(self._deaths, limit_s=_RESTART_S))
            return await self._start()
        finally:
            self._starting = None

    async def _start(self) -> Process:
        self._state = _State.STARTING
        try:
            process = await start_confined(self.program.module, *self.program.arguments)
        except OSError as error:  # the system has no process, memory or descriptor left
            self._deaths, self._state = self._deaths + 1, _State.STOPPED
            reason = f"its process does not start: {error.strerror or error}"
            raise EngineError(reason, retryable=True) from error
        self._process = process
        try:
            async with asyncio.timeout(self.program.start_s):
                self.rate_hz = _ready((await _received(process))[0])
        except (TimeoutError, EOFError, ValueError, KeyError, EngineError) as error:
            self._deaths += 1
            await self._end_process()
            raise EngineError(self._why(error, process), retryable=True) from error
        self._state = _State.RUNNING
        self._reader = asyncio.create_task(self._read(process), name=f"{self.program.name} reader")
        return process

    def _why(self, error: Exception, process: Process) -> str:
        """The reason that a process did not start."""
        if isinstance(error, EngineError):
            return str(error)
        if isinstance(error, TimeoutError):
            return f"its process was not ready after {self.program.start_s:.0f} s"
        if isinstance(error, ValueError | KeyError):
            return "its messages are out of step"
        return how_it_ended(process.returncode or 0)

    async def _read(self, process: Process) -> None:
        """Passes messages to their requests until the process ends."""
        try:
            while True:
                self._deal(*await _received(process))
        except (EOFError, ConnectionError, ValueError, KeyError, TypeError):
            pass  # the process ended, or sent an invalid message
        self._deaths += 1
        self._state = _State.STOPPED
        await end_process(process)
        _LOG.warning(
            "voice process ended",
            extra={
                "engine": self.program.name,
                "exit_code": process.returncode,
                "requests": len(self._requests),
            },
        )
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.end(EngineError(f"the {self.program.name} process died", retryable=True))

    def _deal(self, head: Mapping[str, Any], samples: bytes) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        kind, number = head["kind"], head["number"]
        request = self._requests.get(number)
        if request is None:
            return
        if kind == Kind.CHUNK:
            request.messages.append((samples, [Word(*word) for word in head["words"]]))
            request.arrived.set()
            return
        refusal = None
        if kind == Kind.DONE:
            self._deaths = 0
        else:
            refusal = EngineError(f"{self.program.name} refused: {head['reason']}", retryable=False)
        del self._requests[number]
        request.end(refusal)

    def _kill(self) -> None:
        if self._process is not None:
            _LOG.warning(
                "voice process hangs and is killed",
                extra={"engine": self.program.name, "pid": self._process.pid},
            )
            if self._process.returncode is None:
                self._process.kill()

    async def _stop(self) -> None:
        """Ends the process and its reader for good."""
        await _ended(self._starting)
        await _ended(self._reader)
        self._reader = None
        await self._end_process()
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.end(EngineError(f"{self.program.name} was closed", retryable=False))

    async def _end_process(self) -> None:
        self._state = _State.STOPPED
        process, self._process = self._process, None
        if process is not None:
            await end_process(process)


async def _ended(task: asyncio.Task[Any] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _ready(head: Mapping[str, Any]) -> int:
    """Gives the rate of a READY message. Raises `EngineError` with the reason of a FAILED one."""
    if head.get("kind") == Kind.FAILED:
        raise EngineError(head["reason"], retryable=False)
    if head.get("kind") != Kind.READY:
        raise LocalError(f"a voice began with message {head.get('kind')}")
    return int(head["rate_hz"])


async def _received(process: Process) -> tuple[dict[str, Any], bytes]:
    assert process.stdout is not None
    return await receive_from(process.stdout)
