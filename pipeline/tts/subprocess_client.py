"""The server's side of a voice that lives in a process of its own: starts it, shares it, survives its death.

A process keeps somebody's licence, memory, crashes and threads away from the media loop."""

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
"""The longest pause before a process that died is started again."""

Spoken: TypeAlias = tuple[bytes, list[Word]]
"""Samples (s16le) and the words that begin in them."""


@dataclass(frozen=True, slots=True)
class VoiceProgram:
    """A voice as a program: `python -m module arguments...`, which runs a `VoiceService`.

    `start_s`: without READY by then it is not going to start. `hung_s`: no message at all for so long, while
    a request or a cancelled one waits, means that it hangs: one that serves others first does not. It should
    be less than a session's patience with a voice, so that whoever asks again asks the next process."""

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
    """One sentence being synthesised: its messages, in order. Their bound is the sentence's length, which
    the engine limits; it asks for the next sentence only when this one has been taken."""

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
    """One process for all users of a program in one event loop. `acquire` and `release` count them; it ends
    with the last. One that died is started again by the next request, after a pause that grows with every
    death in a row."""

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
        """The running loop's process of `program`, started. Raises `EngineMissing`. Give it back with
        `release`."""
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
        """One user less; the last one ends the process."""
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
        """Its process id while it runs."""
        return self._process.pid if self._process is not None and self._state is _State.RUNNING else None

    async def speak(self, request: Mapping[str, Any]) -> AsyncGenerator[Spoken, None]:
        """What it says, chunk by chunk as they come. Closing the generator cancels the synthesis.
        Raises `EngineError`: retryable when the process died, not when it refused."""
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
        """Returns with a message, or the end."""
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
                    await asyncio.wait({self._reader})  # until then it looks as if it ran
                raise EngineError(f"{self.program.name} stopped answering", retryable=True) from None

    @property
    def _quiet_s(self) -> float:
        return asyncio.get_running_loop().time() - self._heard_at

    def _drop(self, process: Process, number: int, state: _Request) -> None:
        """Forgets a request; one still under way is cancelled and must end soon."""
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
        # Not drained: sentences are short, and the process reads ahead (its queue holds a thousand).
        process.stdin.write(pack({"kind": kind, "number": number, **fields}))

    async def _ensure_running(self) -> Process:
        """The process. It starts on its own account, since it may take longer than a caller waits: whoever
        comes next finds it further on. Raises `EngineError`."""
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
        except OSError as error:  # no process, memory or descriptor is left for it
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
        """Why a process that has ended did not start."""
        if isinstance(error, EngineError):
            return str(error)
        if isinstance(error, TimeoutError):
            return f"its process was not ready after {self.program.start_s:.0f} s"
        if isinstance(error, ValueError | KeyError):
            return "its messages are out of step"
        return how_it_ended(process.returncode or 0)

    async def _read(self, process: Process) -> None:
        """Deals messages out to their requests until the process ends."""
        try:
            while True:
                self._deal(*await _received(process))
        except (EOFError, ConnectionError, ValueError, KeyError, TypeError):
            pass  # its end, or out of step
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
    """The rate of a voice that says READY. Raises `EngineError` with its reason for one that cannot."""
    if head.get("kind") == Kind.FAILED:
        raise EngineError(head["reason"], retryable=False)
    if head.get("kind") != Kind.READY:
        raise LocalError(f"a voice began with message {head.get('kind')}")
    return int(head["rate_hz"])


async def _received(process: Process) -> tuple[dict[str, Any], bytes]:
    assert process.stdout is not None
    return await receive_from(process.stdout)
