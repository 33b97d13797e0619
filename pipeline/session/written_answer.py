"""An answer that is said while it is being written: its text on the way to an incremental voice."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

from pipeline.media.utterance import Utterance

UNHEARD_LIMIT: Final = 200
"""Most characters that a voice is given before any sound of them: an interruption discards what is paid."""

_LOOK_S: Final = 0.1  # how often a voice that waits for text looks whether its sound runs out
_NEARLY_OUT_S: Final = 0.2


class WrittenAnswer:
    """The text of one answer, and how far the voice is with it. `stall_s`: longest wait for sound."""

    def __init__(self, utterance: Utterance, *, stall_s: float) -> None:
        self.utterance = utterance
        self.is_closed = False
        """No more text is taken: what comes is another answer."""
        self.task: asyncio.Task[None] | None = None
        self._stall_s = stall_s
        self._waiting: deque[str] = deque()
        self._is_ended = False
        self._unheard = 0  # characters given since the latest sound
        self._limit: asyncio.Timeout | None = None  # of the wait for sound
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def add(self, piece: str) -> None:
        """Adds a piece of the text."""
        self._waiting.append(piece)
        self._changed.set()

    def end(self) -> None:
        """Notes that there is no more text."""
        self._is_ended = True
        self._changed.set()
        self._expect_sound()

    def close(self) -> None:
        """Takes no more text, and lets go whoever waits for room."""
        self.is_closed = True
        self._changed.set()

    def give_back(self, text: str) -> None:
        """Takes text that a voice did not say, for the next."""
        if text:
            self._waiting.appendleft(text)

    def take(self) -> str:
        """Takes the next piece that waits, for a voice that takes whole texts."""
        return self._waiting.popleft()

    @property
    def waits(self) -> bool:
        """Whether there is text that no voice has."""
        return bool(self._waiting)

    @property
    def is_behind(self) -> bool:
        """Whether there is text of which no sound has come."""
        return bool(self._waiting) or self._unheard > 0

    async def room(self) -> None:
        """Waits while the voice has much text of which no sound has come."""
        while self._unheard > UNHEARD_LIMIT and not self.is_closed:
            self._changed.clear()
            await self._changed.wait()

    async def pieces(self, queued_s: Callable[[], float]) -> AsyncIterator[str]:
        """The pieces as they come. Ends with the text, and where none comes before the sound runs out
        (`queued_s`: seconds of it that are left), since a voice that waits has nothing to say."""
        while self._waiting or not self._is_ended:
            if self._waiting:
                piece = self._waiting.popleft()
                self._unheard += len(piece)
                self._expect_sound()
                yield piece
                continue
            self._changed.clear()
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                if not self._unheard and queued_s() < _NEARLY_OUT_S:
                    return

    def sounds(self) -> None:
        """Notes that sound came of the text that the voice was given."""
        self._unheard = 0
        self._changed.set()

    def begins_anew(self) -> None:
        """Notes another voice, which was given nothing."""
        self._unheard, self._limit = 0, None
        self._changed.set()

    def patience(self) -> asyncio.Timeout:
        """The limit of a wait for the next sound: none while the text that was given has its sound."""
        is_owed = self._unheard > 0 or self._is_ended
        self._limit = asyncio.timeout(self._stall_s if is_owed else None)
        return self._limit

    def _expect_sound(self) -> None:
        limit, due = self._limit, self._loop.time() + self._stall_s
        if limit is not None and limit.when() is None and not limit.expired():
            limit.reschedule(due)

    def waited(self) -> None:
        """Notes the end of a wait for sound."""
        self._limit = None
