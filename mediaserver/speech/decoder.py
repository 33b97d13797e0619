"""The server's side of `mediaserver.speech.decoder_process`: a stranger's file in, samples at 16 kHz out."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from dataclasses import asdict, dataclass
from typing import Self

import numpy as np

from mediaserver.errors import InvalidRequest, SpeechFailed, TooLarge, Unavailable
from mediaserver.speech.decoder_process import RATE_HZ, WALL_S
from pipeline.audio import Pcm
from pipeline.confinement.confined_process import start_confined

log = logging.getLogger(__name__)

AT_ONCE = 2
"""The most files read at a time; further ones wait."""

START_S = 15.0
"""The longest start of the process, in seconds (0.3 s on an idle machine)."""

ATTEMPTS = 2
"""How often a file is read when the process that read it was killed, which was not the file's fault."""

RETRY_S = 5
FATE_S = 2.0
"""The longest wait for the report of a fork's end, in seconds."""

THE_FILES_FAULT = frozenset(
    {
        *(signal.SIGPROF, signal.SIGALRM, signal.SIGXCPU),  # the limits of `decoder_process.confine`
        *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP),
    }
)
"""Signals by which a file makes a codec end. Any other signal comes from outside."""

OUT_OF_LIMITS = "Invalid audio file: it cannot be decoded within the limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits for reading one file: seconds of audio, seconds of CPU, MiB of memory."""

    audio_s: float
    cpu_s: int = 5
    memory_mb: int = 256

    @classmethod
    def for_audio(cls, audio_s: int) -> Self:
        """Returns the limits for files of up to `audio_s`: decoding is at least 100 times faster than
        listening, and an hour of samples is 115 MB, held twice for a moment."""
        return cls(audio_s=audio_s, cpu_s=5 + audio_s // 100, memory_mb=256 + audio_s // 12)


@dataclass(frozen=True, slots=True)
class Audio:
    """The audio of a file: mono samples at 16 kHz, and the length before resampling."""

    samples: Pcm
    duration_ms: float


class Reader:
    """Reads files in forks of a process of its own, which is started again when it dies."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._control: socket.socket | None = None
        self._starting = asyncio.Lock()
        self._room = asyncio.Semaphore(AT_ONCE)

    @property
    def pid(self) -> int | None:
        """The id of the process, None while it does not run."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Starts the process. Raises `SpeechFailed`."""
        await self._running()

    async def read(self, file: int, limits: Limits) -> Audio:
        """Decodes the audio in the open file `file`, which stays open.

        Raises `InvalidRequest` for a file that is not audio or cannot be decoded within the limits,
        `TooLarge` for one that is too long, `Unavailable` where the process was killed, or did not start,
        twice."""
        async with self._room:
            for _ in range(ATTEMPTS):
                try:
                    return await self._read(file, limits)
                except (_Killed, SpeechFailed) as error:
                    log.warning("reader of audio files ended", extra={"reason": str(error)})
            raise Unavailable("Audio files cannot be read at the moment", retry_after_s=RETRY_S)

    async def _read(self, file: int, limits: Limits) -> Audio:
        """Does one attempt of `read`. Raises `_Killed` too, `SpeechFailed` where the process does not
        start."""
        control = await self._running()
        answer, theirs = _pair()
        ended, end = _pair()
        with answer, ended:
            try:
                with theirs, end:
                    _hand_over(control, file, limits, (theirs.fileno(), end.fileno()))
                return await _received(answer, ended, limits)
            except (OSError, _ReaderKilled):
                await self._forget(control)
                raise _Killed("the process is gone") from None

    async def close(self) -> None:
        """Kills the process that reads files, and waits for its end."""
        control, self._control = self._control, None
        process, self._process = self._process, None
        if control is not None:
            control.close()
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _forget(self, control: socket.socket) -> None:
        """Ends the process behind `control`, unless another one has replaced it."""
        async with self._starting:
            if self._control is control:
                await self.close()

    async def _running(self) -> socket.socket:
        async with self._starting:
            if self.pid is not None and self._control is not None:
                return self._control
            await self.close()
            return await self._start()

    async def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            self._process = await start_confined(
                "mediaserver.speech.decoder_process", stdin=theirs.fileno(), stdout=DEVNULL
            )
        self._control = ours
        try:
            async with asyncio.timeout(START_S):
                said = await asyncio.get_running_loop().sock_recv(ours, 16)
        except (TimeoutError, OSError):
            said = b""
        if said != b"ready":
            await self.close()
            raise SpeechFailed("The reader of audio files does not start")
        return ours


class _Killed(Exception):
    """The fork that read a file was ended by something that is not the file's fault."""


class _ReaderKilled(_Killed):
    """The process that forks is gone."""


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs


def _hand_over(control: socket.socket, file: int, limits: Limits, ends: tuple[int, int]) -> None:
    """Sends the file, to be read from its beginning and never written, with the sockets for the answer and
    for the fork's end. Raises OSError."""
    opened = os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        socket.send_fds(control, [json.dumps(asdict(limits)).encode()], [opened, *ends])
    finally:
        os.close(opened)


async def _received(answer: socket.socket, ended: socket.socket, limits: Limits) -> Audio:
    """Reads a fork's answer. Raises as `Reader.read`, and `_Killed`."""
    most = int((limits.audio_s + 2) * RATE_HZ * 2)
    reader, writer = await asyncio.open_connection(sock=answer)
    try:
        async with asyncio.timeout(WALL_S + 5):
            head = json.loads(await reader.readuntil(b"\n"))
            if "error" in head:
                raise TooLarge(head["error"]) if head["too_long"] else InvalidRequest(head["error"])
            octets = await reader.readexactly(min(int(head["octets"]), most))
    except (EOFError, ConnectionError):
        raise await _fate(ended) from None
    except (ValueError, TypeError, KeyError, TimeoutError) as error:
        log.warning("audio file could not be read within its limits", extra={"reason": type(error).__name__})
        raise InvalidRequest(OUT_OF_LIMITS) from None
    finally:
        writer.close()
    return Audio(np.frombuffer(octets, "<i2").astype(np.int16, copy=False), float(head["duration_ms"]))


async def _fate(ended: socket.socket) -> Exception:
    """Returns the exception for a fork that ended without an answer: the file's fault, or a signal from
    outside."""
    try:
        async with asyncio.timeout(FATE_S):
            told = await asyncio.get_running_loop().sock_recv(ended, 1)
    except (TimeoutError, ConnectionError):
        told = b""
    if not told:
        return _ReaderKilled()
    if told[0] and told[0] not in THE_FILES_FAULT:
        return _Killed(f"signal {told[0]}")
    log.warning("audio file could not be read within its limits", extra={"signal": told[0]})
    return InvalidRequest(OUT_OF_LIMITS)
