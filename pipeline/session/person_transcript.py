"""What one person says in a call, in the absence of a turn: each of their utterances becomes text."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from pipeline.audio import FRAME_MS, Pcm
from pipeline.audio.vad import EnergyVad, VadSettings
from pipeline.errors import EngineError, contained
from pipeline.net.untrusted import clean_text
from pipeline.speech import Listening, SpeechToText
from pipeline.stt.fallback import of_call

log = logging.getLogger(__name__)

PAUSE_MS: Final = 700
"""A pause that ends an utterance: nobody waits for an answer, so that words are better kept together."""

PREROLL_MS: Final = 300
MAX_UTTERANCE_S: Final = 30.0

RESULT_S: Final = 10.0
"""How long a recogniser may take for an utterance."""

Told = Callable[[str, float, float, float], None]
"""Takes words, confidence, and the loop times between which they were said."""


class PersonTranscript:
    """Recognises one person's utterances, by a recogniser of their own where that keeps something for a call.
    `push` takes their frames, `told` gets the words of each; `close` waits for those under way."""

    def __init__(self, stt: SpeechToText, *, rate_hz: int, language: str, call_id: str, told: Told) -> None:
        self._stt, self._own = of_call(stt, self._faulty, call_id=call_id, language=language)
        self._rate_hz, self._language, self._call_id = rate_hz, language, call_id
        self._told = told
        self._vad = EnergyVad(rate_hz, VadSettings(hang_ms=PAUSE_MS))
        self._before: deque[Pcm] = deque(maxlen=PREROLL_MS // FRAME_MS)
        self._listening: Listening | None = None
        self._began = self._voiced_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def push(self, frame: Pcm, now: float) -> None:
        """Takes the person's next frame, which is copied."""
        frame = frame.copy()
        verdict = self._vad.push(frame)
        if verdict.voiced:
            self._voiced_at = now
        if self._listening is None:
            self._before.append(frame)
            if verdict.active:
                self._voiced_at = now
                self._open(now)
            return
        self._listening.push(frame)
        paused = now - self._voiced_at > PAUSE_MS / 1000  # who is silent may send nothing
        if not verdict.active or paused or now - self._began > MAX_UTTERANCE_S:
            self._end()

    async def close(self) -> None:
        """Ends the utterance under way and waits until the words of all are told."""
        if self._listening is not None:
            self._end()
        try:
            await asyncio.gather(*self._tasks)
        finally:
            for engine in self._own:
                await engine.close()

    def _open(self, now: float) -> None:
        try:
            listening = self._stt.listen(rate_hz=self._rate_hz, language=self._language, expected=None)
        except EngineError as error:
            log.warning("words not recognised", extra={"call_id": self._call_id, "reason": str(error)})
            self._before.clear()
            return
        self._began = now - len(self._before) * FRAME_MS / 1000
        for each in self._before:
            listening.push(each)
        self._before.clear()
        self._listening = listening

    def _end(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            task = asyncio.create_task(self._recognise(listening, self._began, self._voiced_at))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _faulty(self, reason: str) -> None:
        log.warning("engine fault", extra={"call_id": self._call_id, "role": "stt", "reason": reason})

    async def _recognise(self, listening: Listening, began: float, ended: float) -> None:
        try:
            with contained("the recogniser", call_id=self._call_id):
                async with asyncio.timeout(RESULT_S):
                    heard = await listening.result()
            text = clean_text(heard.text)
            if text:
                self._told(text, heard.confidence, began, max(began, ended))
        except (EngineError, TimeoutError) as error:
            log.warning("words not recognised", extra={"call_id": self._call_id, "reason": str(error)})
        finally:
            listening.close()
