"""Queues decodes for threads, in batches, and finds the words that two decodes of an utterance agree on.

The decode that waited longest is first. A GPU decodes sixteen utterances of several calls in little more time
than one. Decodes of files wait behind those of calls, and leave threads free for calls."""

from __future__ import annotations

import enum
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from pipeline.audio import Pcm
from pipeline.latency import WAIT_BOUNDS_S, DecoderWaits
from pipeline.speech import Hypothesis

BUSY_S: Final = 0.5
"""Seconds between two interim decodes of an utterance while other threads decode."""

KEPT: Final = 2
"""Number of threads that files leave free: one for results, one for interim decodes. Of two threads files
leave one free; a single thread serves all."""


class Urgency(enum.IntEnum):
    """The priority of a decode; a lower value goes first, whatever the waiting time."""

    RESULT = 0  # for a caller who has stopped speaking
    PARTIAL = 1  # an interim decode during speech
    FILE = 2  # for a file outside a call


@dataclass(frozen=True, slots=True)
class Decode:
    """One utterance to be decoded: int16 `samples` at `rate_hz`. Decodes of the same `group` may run in one
    pass. `phrases`: the expected answers. `waiting_since`: moment of the request, by `time.monotonic`."""

    samples: Pcm
    rate_hz: int
    language: str
    hotwords: str = ""
    phrases: tuple[str, ...] = ()
    urgency: Urgency = Urgency.RESULT
    waiting_since: float = field(default_factory=time.monotonic, compare=False)
    outcome: Future[Hypothesis] = field(default_factory=Future, compare=False)

    @property
    def group(self) -> Hashable:
        """The key of decodes that may run in one pass. Files are apart, since a long piece of a file makes
        the pass longer for callers."""
        return self.language, self.hotwords, self.urgency is Urgency.FILE

    @property
    def rank(self) -> tuple[int, float]:
        """The place in the queue: the decode of the lowest rank is next."""
        return self.urgency, self.waiting_since


class DecodeQueue:
    """Runs `decode` in `threads` threads, on up to `batch` waiting utterances at once. An exception of
    `decode` is the outcome of each of these utterances. An utterance has at most two decodes in the queue."""

    def __init__(
        self, decode: Callable[[Sequence[Decode]], Sequence[Hypothesis]], *, threads: int, batch: int
    ) -> None:
        self._decode = decode
        self._batch = batch
        self._waiting: list[Decode] = []
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="whisper")
        self._threads = self._idle = threads
        self._begun: dict[int, float] = {}  # begin of the pass under way, by thread
        self._counts = [0] * (len(WAIT_BOUNDS_S) + 1)
        self._waited_s = 0.0

    def put(self, decode: Decode) -> Future[Hypothesis]:
        """Queues `decode` and returns the future of its outcome, which may be cancelled until the decode
        begins. Raises RuntimeError after `close`."""
        with self._lock:
            self._waiting.append(decode)
        self._pool.submit(self._work)
        return decode.outcome

    def pause_s(self, least_s: float) -> float | None:
        """Gives the seconds after an utterance's last interim decode at which the next may follow: `least_s`
        if all threads are free, longer if not, None if it would take the last free thread from results."""
        with self._lock:
            free = self._idle - sum(each.urgency is not Urgency.FILE for each in self._waiting)
        if free <= 1:
            return None
        return least_s if free == self._threads else max(least_s, BUSY_S)

    def stuck_s(self, now: float) -> float:
        """Gives the seconds for which all threads have been decoding; 0 if one is free."""
        with self._lock:
            return 0.0 if self._idle else now - max(self._begun.values(), default=now)

    def waits(self) -> DecoderWaits:
        """Gives the histogram of the waits of all results so far."""
        with self._lock:
            return DecoderWaits(tuple(self._counts), self._waited_s)

    def run(self, job: Callable[[], object]) -> Future[object]:
        """Runs `job` in one of the threads, after the jobs submitted before."""
        return self._pool.submit(job)

    def close(self) -> None:
        """Cancels waiting decodes and blocks until those under way have ended."""
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
        for decode in waiting:
            decode.outcome.cancel()
        self._pool.shutdown(cancel_futures=True)

    def _work(self) -> None:
        """Decodes until the queue gives nothing more; runs in a thread. The loop also serves a file that was
        left waiting for this thread."""
        while taken := self._take():
            self._pass(taken)

    def _pass(self, taken: Sequence[Decode]) -> None:
        """Runs one pass. The thread counts as free before the outcome is set, so that a next request at once
        finds a free thread."""
        heard: Sequence[Hypothesis] = ()
        failure: BaseException | None = None
        try:
            heard = self._decode(taken)
        except BaseException as error:
            failure = error
        with self._lock:
            self._idle += 1
            del self._begun[threading.get_ident()]
        if failure is not None:
            for decode in taken:
                decode.outcome.set_exception(failure)
            return
        for decode, hypothesis in zip(taken, heard, strict=True):
            decode.outcome.set_result(hypothesis)

    def _take(self) -> list[Decode]:
        taken: list[Decode] = []
        now = time.monotonic()
        with self._lock:
            rest: list[Decode] = []
            callers_only = self._idle <= min(KEPT, self._threads - 1)
            for decode in sorted(self._waiting, key=lambda each: each.rank):
                full = len(taken) == self._batch or (taken and decode.group != taken[0].group)
                if full or (decode.urgency is Urgency.FILE and callers_only):
                    rest.append(decode)
                elif decode.outcome.set_running_or_notify_cancel():
                    taken.append(decode)
            self._waiting = rest
            if taken:
                self._idle -= 1
                self._begun[threading.get_ident()] = now
            for decode in taken:
                self._note_wait(decode, now)
        return taken

    def _note_wait(self, decode: Decode, now: float) -> None:
        if decode.urgency is Urgency.RESULT:
            waited_s = max(0.0, now - decode.waiting_since)
            self._counts[bisect_left(WAIT_BOUNDS_S, waited_s)] += 1
            self._waited_s += waited_s


class Agreement:
    """LocalAgreement-2: of a growing text those words are stable on which two decodes in a row agree from the
    start (Macháček et al., "Turning Whisper into Real-Time Transcription System", 2023). Stable words stay
    stable."""

    __slots__ = ("_last", "stable")

    def __init__(self) -> None:
        self.stable: tuple[str, ...] = ()
        self._last: tuple[str, ...] = ()

    def add(self, words: Sequence[str]) -> None:
        """Takes the words of the next decode."""
        agreed = 0
        for one, other in zip(self._last, words, strict=False):
            if one != other:
                break
            agreed += 1
        self._last = tuple(words)
        if agreed > len(self.stable) and self._last[: len(self.stable)] == self.stable:
            self.stable = self._last[:agreed]
