"""The server's side of `mediaserver.speech.decoding`: a stranger's file in, samples at 16 kHz out."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np

from mediaserver.errors import SpeechFailed
from mediaserver.refusals import InvalidRequest, TooLarge
from mediaserver.speech.decoding import RATE_HZ, WALL_S
from pipeline.audio import Pcm

log = logging.getLogger(__name__)

AT_ONCE = 2
"""Files read at a time: what is beyond waits."""

START_S = 15.0
"""A reader that has not said "ready" by then is not going to (0.3 s on an idle machine)."""

_ROOT = str(Path(__file__).resolve().parents[2])
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What reading one file may take: seconds of audio, seconds of CPU, MiB of memory."""

    audio_s: float
    cpu_s: int = 5
    memory_mb: int = 256

    @classmethod
    def for_audio(cls, audio_s: int) -> Self:
        """What files of up to `audio_s` need: decoding is at least 100 times faster than listening, and an
        hour of samples is 115 MB, held twice for a moment."""
        return cls(audio_s=audio_s, cpu_s=5 + audio_s // 100, memory_mb=256 + audio_s // 12)


@dataclass(frozen=True, slots=True)
class Audio:
    """What was in a file: mono samples at 16 kHz, and how long it was before resampling."""

    samples: Pcm
    duration_ms: float


class Reader:
    """Reads files in forks of a process of its own, which is started again should it die."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._control: socket.socket | None = None
        self._starting = asyncio.Lock()
        self._room = asyncio.Semaphore(AT_ONCE)

    @property
    def pid(self) -> int | None:
        """Of the process while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Starts the process. Raises `SpeechFailed`."""
        await self._running()

    async def read(self, file: int, limits: Limits) -> Audio:
        """The audio in the open file `file`, which stays open.

        Raises `InvalidRequest` for what is not audio or does not want to be read, `TooLarge` for what is too
        long, `SpeechFailed` where the process cannot be started.
        """
        async with self._room:
            control = await self._running()
            ours, theirs = socket.socketpair()
            with ours:
                ours.setblocking(False)
                with theirs:
                    try:
                        socket.send_fds(
                            control, [json.dumps(asdict(limits)).encode()], [file, theirs.fileno()]
                        )
                    except OSError as error:
                        await self.close()
                        raise SpeechFailed("The reader of audio files is not there") from error
                return await _received(ours, limits)

    async def close(self) -> None:
        """Ends the process."""
        control, self._control = self._control, None
        process, self._process = self._process, None
        if control is not None:
            control.close()
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _running(self) -> socket.socket:
        async with self._starting:
            if self.pid is not None and self._control is not None:
                return self._control
            await self.close()
            return await self._start()

    async def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        environment = {**os.environ, **dict.fromkeys(_THREADS, "1")}  # it forks: no threads
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (_ROOT, environment.get("PYTHONPATH"))))
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "mediaserver.speech.decoding"),
                stdin=theirs.fileno(),
                stdout=DEVNULL,
                env=environment,
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


async def _received(answer: socket.socket, limits: Limits) -> Audio:
    """What a fork says before it closes its end."""
    most = int((limits.audio_s + 2) * RATE_HZ * 2)
    reader, writer = await asyncio.open_connection(sock=answer)
    try:
        async with asyncio.timeout(WALL_S + 5):
            head = json.loads(await reader.readline())
            if "error" in head:
                raise TooLarge(head["error"]) if head["too_long"] else InvalidRequest(head["error"])
            octets = await reader.readexactly(min(int(head["octets"]), most))
    except (ValueError, TypeError, KeyError, EOFError, OSError, TimeoutError) as error:
        log.warning("audio file could not be read within its limits", extra={"reason": type(error).__name__})
        raise InvalidRequest("Invalid audio file: it cannot be decoded within the limits") from None
    finally:
        writer.close()
    return Audio(np.frombuffer(octets, "<i2").astype(np.int16, copy=False), float(head["duration_ms"]))
