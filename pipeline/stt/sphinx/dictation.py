"""Free dictation with pocketsphinx's general language model, in a helper process.

Dictation takes 1 to 2 ms per 20 ms of audio and 90 MB, and 20 to 77 % of the words of a telephone call are
wrong: a fallback for questions without expected answers. One process serves all calls in turn, and a call
waits for 1.3 s at most; the search is therefore narrow.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from asyncio.subprocess import DEVNULL, Process

from pipeline.confinement.confined_process import end_process, start_confined
from pipeline.confinement.messages import pack, receive_from
from pipeline.engines.aio import is_cancelled
from pipeline.errors import EngineError, kind_of
from pipeline.speech import HeardWord, Hypothesis


class _Line:
    """The queue for the process. The shortest utterance is next, so that a word does not wait for a long
    utterance, which would be late in any case."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = itertools.count()
        self._served = False

    async def enter(self, length: int) -> None:
        """Waits for the turn of an utterance of `length` bytes."""
        if not self._served:
            self._served = True
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (length, next(self._arrivals), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the turn came at the moment of the cancellation
                self.leave()
            raise

    def leave(self) -> None:
        """Ends a turn; the next waiting utterance begins."""
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._served = False


class FreeDictation:
    """Decodes in a helper process, which the first request starts, and the next one after its death."""

    def __init__(self) -> None:
        self._process: asyncio.Task[Process] | None = None
        self._jobs: set[asyncio.Task[Hypothesis]] = set()
        self._line = _Line()
        self._closed = False

    async def decode(self, samples: bytes) -> Hypothesis:
        """Decodes int16 at 16 kHz. Raises `EngineError`, retryable when the process died."""
        await self._line.enter(len(samples))
        job = asyncio.create_task(self._exchange(samples), name="free dictation")
        self._jobs.add(job)
        job.add_done_callback(self._done)  # also after a cancellation: the process cannot be stopped
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            if job.cancelled() and not is_cancelled():  # by `close`
                raise EngineError("free dictation was closed", retryable=False) from None
            raise

    def _done(self, job: asyncio.Task[Hypothesis]) -> None:
        self._jobs.discard(job)
        self._line.leave()
        if not job.cancelled():
            job.exception()  # retrieves the exception of a job without a waiter

    async def _exchange(self, samples: bytes) -> Hypothesis:
        """Sends one utterance to the process and receives its hypothesis. Raises `EngineError`."""
        started = None
        try:
            started = self._started()
            process = await asyncio.shield(started)
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(pack({}, samples))
            heard, _ = await receive_from(process.stdout)
        except (OSError, EOFError, ValueError, RuntimeError) as error:  # no memory: no process either
            if started is not None and started is self._process:
                self._process = None
                await _end(started)
            reason = f"free dictation failed ({kind_of(error)})"
            raise EngineError(reason, retryable=not self._closed) from error
        words = tuple(HeardWord(*word) for word in heard["words"])
        return Hypothesis(heard["text"], heard["confidence"], words)

    def warm(self) -> None:
        """Starts the process when the caller begins to speak, so that its model is loaded at the end of the
        utterance."""
        if not self._closed:
            self._started()

    @property
    def pid(self) -> int | None:
        """The process id, None while no process runs."""
        started = self._process
        return started.result().pid if started is not None and _is_running(started) else None

    def _started(self) -> asyncio.Task[Process]:
        if self._closed:
            raise RuntimeError("closed")
        if self._process is None or (self._process.done() and not _is_running(self._process)):
            self._process = asyncio.create_task(_start(), name="free dictation start")
        return self._process

    async def close(self) -> None:
        """Kills the process; the utterance under way and those that wait fail."""
        self._closed = True
        jobs = tuple(self._jobs)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        started, self._process = self._process, None
        if started is not None:
            await _end(started)


async def _start() -> Process:
    """Starts the process. Raises OSError."""
    return await start_confined("pipeline.stt.sphinx.dictation_process", stderr=DEVNULL)


def _is_running(started: asyncio.Task[Process]) -> bool:
    if not started.done() or started.cancelled() or started.exception() is not None:
        return False
    return started.result().returncode is None


async def _end(started: asyncio.Task[Process]) -> None:
    """Kills the process, also one that is being started, and waits for its end."""
    (process,) = await asyncio.gather(started, return_exceptions=True)
    if not isinstance(process, BaseException):
        await end_process(process)
