"""Decodes that wait for a thread, whoever waits longest first, and taken several at a time: a GPU decodes
sixteen utterances of as many calls in little more time than one. Files wait behind all calls, and leave them
free threads. And words that two decodes of a growing utterance agree on."""

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
"""Between two spare decodes of an utterance, where other threads decode."""

KEPT: Final = 2
"""So many free threads are not for files, where there are more: one for results, one for partial words. Of
two threads one is; a single one serves all."""


class Urgency(enum.IntEnum):
    """Who waits for a decode. The lower goes first, whatever the other has waited."""

    RESULT = 0  # a caller who has stopped
    PARTIAL = 1  # nobody: words while they speak on
    FILE = 2  # somebody who sent a file, and is on no line


@dataclass(frozen=True, slots=True)
class Decode:
    """One utterance to be decoded. Those with the same `group` may be decoded together. `phrases`: answers
    that are expected. `waiting_since`: when it was asked for, by the clock of `time.monotonic`."""

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
        """What one pass of the model has in common: a long piece of a file would make it longer for
        callers."""
        return self.language, self.hotwords, self.urgency is Urgency.FILE

    @property
    def rank(self) -> tuple[int, float]:
        """The lowest is decoded first."""
        return self.urgency, self.waiting_since


class DecodeQueue:
    """Runs `decode` in `threads` threads, on up to `batch` waiting utterances at once. What `decode` raises
    is the outcome of each of them. The queue is as long as there are utterances: each has at most two
    decodes in it."""

    def __init__(
        self, decode: Callable[[Sequence[Decode]], Sequence[Hypothesis]], *, threads: int, batch: int
    ) -> None:
        self._decode = decode
        self._batch = batch
        self._waiting: list[Decode] = []
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="whisper")
        self._threads = self._idle = threads
        self._begun: dict[int, float] = {}  # by thread: when the pass began that it runs
        self._counts = [0] * (len(WAIT_BOUNDS_S) + 1)
        self._waited_s = 0.0

    def put(self, decode: Decode) -> Future[Hypothesis]:
        """Queues it; the future may be cancelled as long as its turn has not come. Raises RuntimeError after
        `close`."""
        with self._lock:
            self._waiting.append(decode)
        self._pool.submit(self._work)
        return decode.outcome

    def pause_s(self, least_s: float) -> float | None:
        """How long after an utterance's last spare decode the next may come: `least_s` where nothing is
        decoded, longer where there is, and None where the last free thread would be taken from results."""
        with self._lock:
            free = self._idle - sum(each.urgency is not Urgency.FILE for each in self._waiting)
        if free <= 1:
            return None
        return least_s if free == self._threads else max(least_s, BUSY_S)

    def stuck_s(self, now: float) -> float:
        """For how long every thread has been at its pass; 0 where one is free."""
        with self._lock:
            return 0.0 if self._idle else now - max(self._begun.values(), default=now)

    def waits(self) -> DecoderWaits:
        """Of all results so far."""
        with self._lock:
            return DecoderWaits(tuple(self._counts), self._waited_s)

    def run(self, job: Callable[[], object]) -> Future[object]:
        """`job` in one of the threads, after what waits."""
        return self._pool.submit(job)

    def close(self) -> None:
        """Cancels what waits and returns when nothing is decoded any more; blocks."""
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
        for decode in waiting:
            decode.outcome.cancel()
        self._pool.shutdown(cancel_futures=True)

    def _work(self) -> None:
        """In a thread: whoever waits longest, and others like it, then whoever waits then: a file may have
        been left waiting for this thread. Nothing where another thread took them."""
        while taken := self._take():
            self._pass(taken)

    def _pass(self, taken: Sequence[Decode]) -> None:
        """The thread counts as free before anybody knows the outcome: who asks next finds it free."""
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
    """LocalAgreement-2: of a text that grows, the words are stable on which two decodes one after the other
    agree from the start (Macháček et al., "Turning Whisper into Real-Time Transcription System", 2023).
    What was stable stays."""

    __slots__ = ("_last", "stable")

    def __init__(self) -> None:
        self.stable: tuple[str, ...] = ()
        self._last: tuple[str, ...] = ()

    def add(self, words: Sequence[str]) -> None:
        """The words of the next decode."""
        agreed = 0
        for one, other in zip(self._last, words, strict=False):
            if one != other:
                break
            agreed += 1
        self._last = tuple(words)
        if agreed > len(self.stable) and self._last[: len(self.stable)] == self.stable:
            self.stable = self._last[:agreed]
