"""Free dictation with pocketsphinx's general language model, in a process of its own.

It takes 1 to 2 ms per 20 ms of audio, 90 MB, and gets 20 to 77 % of the words of a telephone call wrong: a
stopgap for questions that name no answers, not a recogniser to rely on. One process serves all calls, one
after the other, and a call waits for 1.3 s at most: the search is therefore narrow.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import multiprocessing
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cache
from multiprocessing.connection import wait
from typing import Any

import pocketsphinx

from pipeline.boundary import kind_of
from pipeline.engines.cancelling import is_cancelled
from pipeline.engines.sphinx_decoder import hypothesis
from pipeline.errors import EngineError
from pipeline.speech import Hypothesis

_SEARCH: Mapping[str, Any] = {"maxhmmpf": 3000, "maxwpf": 5, "fwdflat": False}
"""Defaults: 30000, no bound, a second pass. 14 sentences of flite's voices over µ-law: 0.085 s for a second
of audio instead of 0.21, 23 % of the words wrong instead of 17."""


class _Line:
    """Those who wait for the process. The shortest utterance is next: a word is not kept waiting by a story,
    which would be late in any case."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = itertools.count()
        self._served = False

    async def enter(self, length: int) -> None:
        """Returns when it is one's turn."""
        if not self._served:
            self._served = True
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (length, next(self._arrivals), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it came in the same moment
                self.leave()
            raise

    def leave(self) -> None:
        """Whoever's turn it was has had it."""
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._served = False


class FreeDictation:
    """The process, started with the first request and again after it died."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._line = _Line()
        self._closed = False

    async def decode(self, samples: bytes) -> Hypothesis:
        """Decodes int16 at 16 kHz. Raises `EngineError`, retryable when the process died."""
        await self._line.enter(len(samples))
        pool = None
        try:
            pool = self._started()
            job = asyncio.wrap_future(pool.submit(decode, samples))
        except Exception as error:  # a machine without memory or handles starts no process either
            self._line.leave()
            raise self._failed(pool, error) from error
        job.add_done_callback(lambda _: self._line.leave())  # not sooner: a process cannot be told to stop
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError as error:
            if job.cancelled() and not is_cancelled():  # by `close`
                raise self._failed(pool, error) from None
            raise
        except (BrokenProcessPool, RuntimeError) as error:
            raise self._failed(pool, error) from error

    def _failed(self, pool: ProcessPoolExecutor | None, error: BaseException) -> EngineError:
        if pool is self._pool:
            self._pool = None
        return EngineError(f"free dictation failed ({kind_of(error)})", retryable=not self._closed)

    def warm(self) -> None:
        """Somebody begins to speak: the process has its model by the time they stop."""
        if self._pool is None:
            with suppress(BrokenProcessPool, RuntimeError, OSError):  # `decode` will tell
                self._started().submit(_decoder_is_made)

    def _started(self) -> ProcessPoolExecutor:
        if self._closed:
            raise RuntimeError("closed")
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_end_with_parent)
        return self._pool

    async def close(self) -> None:
        """Ends the process when the utterance in it is decoded; those that wait for it fail."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.get_running_loop().run_in_executor(None, lambda: pool.shutdown(cancel_futures=True))


def decode(samples: bytes) -> Hypothesis:
    """In the process: one utterance."""
    decoder = _decoder()
    decoder.start_utt()
    decoder.process_raw(samples, full_utt=True)
    decoder.end_utt()
    return hypothesis(decoder)


@cache
def _decoder() -> pocketsphinx.Decoder:
    return pocketsphinx.Decoder(pocketsphinx.Config(loglevel="FATAL", **_SEARCH))


def _decoder_is_made() -> bool:
    return _decoder() is not None


def _end_with_parent() -> None:
    """A killed server must not leave its process behind: the pool's own pipes do not tell (bpo-39995)."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
