"""Decodes that wait for a thread, taken several at a time: a GPU decodes sixteen utterances of as many calls
in little more time than one. And words that two decodes of a growing utterance agree on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from pipeline.audio import Pcm
from pipeline.speech import Hypothesis

BUSY_S: Final = 0.5
BUSIER_S: Final = 1.0
"""Between two spare decodes of an utterance, where other threads decode, and where all others do."""


@dataclass(frozen=True, slots=True)
class Decode:
    """One utterance to be decoded. Those with the same `group` may be decoded together. `phrases`: answers
    that are expected. `spare`: nobody waits for it."""

    samples: Pcm
    rate_hz: int
    language: str
    hotwords: str = ""
    phrases: tuple[str, ...] = ()
    spare: bool = False
    outcome: Future[Hypothesis] = field(default_factory=Future, compare=False)

    @property
    def group(self) -> Hashable:
        """What one pass of the model has in common."""
        return self.language, self.hotwords


class DecodeQueue:
    """Runs `decode` in `threads` threads, on up to `batch` waiting utterances at once. What `decode` raises
    is the outcome of each of them. The queue is as long as there are utterances: each has at most two
    decodes in it."""

    def __init__(
        self, decode: Callable[[Sequence[Decode]], Sequence[Hypothesis]], *, threads: int, batch: int
    ) -> None:
        self._decode = decode
        self._batch = batch
        self._waiting: deque[Decode] = deque()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="whisper")
        self._threads = self._idle = threads

    def put(self, decode: Decode) -> Future[Hypothesis]:
        """Queues it; the future may be cancelled as long as its turn has not come. Raises RuntimeError after
        `close`."""
        with self._lock:
            ahead = (place for place, each in enumerate(self._waiting) if each.spare and not decode.spare)
            self._waiting.insert(next(ahead, len(self._waiting)), decode)
        self._pool.submit(self._work)
        return decode.outcome

    def pause_s(self, least_s: float) -> float | None:
        """How long after an utterance's last spare decode the next may come: `least_s` where nothing is
        decoded, longer where there is, and None where the only free thread would be taken from results."""
        free = self._idle - len(self._waiting)
        if free == self._threads > 1:
            return least_s
        if free > 1:
            return max(least_s, BUSY_S)
        return max(least_s, BUSIER_S) if free == 1 < self._threads else None

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
        """In a thread: the oldest that waits, and others like it. Nothing where another thread took them."""
        taken = self._take()
        if not taken:
            return
        try:
            heard = self._decode(taken)
        except BaseException as error:
            for decode in taken:
                decode.outcome.set_exception(error)
        else:
            for decode, hypothesis in zip(taken, heard, strict=True):
                decode.outcome.set_result(hypothesis)
        finally:
            with self._lock:
                self._idle += 1

    def _take(self) -> list[Decode]:
        taken: list[Decode] = []
        with self._lock:
            rest: deque[Decode] = deque()
            while self._waiting:
                decode = self._waiting.popleft()
                if len(taken) == self._batch or (taken and decode.group != taken[0].group):
                    rest.append(decode)
                elif decode.outcome.set_running_or_notify_cancel():
                    taken.append(decode)
            self._waiting = rest
            self._idle -= bool(taken)
        return taken


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
