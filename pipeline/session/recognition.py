"""Recognises the caller's utterances: opens each, decodes it in a task and closes it with its turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.endpointing.policy import TurnEvidence
from pipeline.errors import EngineError, contained
from pipeline.session.audio_input import AudioInput
from pipeline.session.turn_log import TurnLog
from pipeline.speech import Expected, Hypothesis
from pipeline.text.word_lists import word_lists
from pipeline.transcript import TranscriptEntry
from pipeline.turns.events import FinalTranscript, PartialTranscript

log = logging.getLogger(__name__)

ASK_AGAIN_S: Final = 0.1  # least time between two decodings of a voice over the agent: a word takes 0.2 s


BACKGROUND_S: Final = 4.0  # an utterance of background speech without words is closed after this time
POLL_S: Final = 2.0  # between two decodings of a voice that goes on, for engines without interim results


NO_WORDS: Final = Hypothesis("")


class Recognition:
    """Asks the recogniser, and the end-of-turn detector `detector`, about the caller's utterances. `tell`
    gets each transcript, on the event loop; `words` are those of `SessionSettings`.

    `words_known`: loop time of the last result. A failure of the recogniser is recorded as a fault and given
    to `tell` as a transcript with `failed`; the conversation goes on."""

    def __init__(
        self,
        audio_input: AudioInput,
        turn_log: TurnLog,
        tell: Callable[[FinalTranscript | PartialTranscript, float], None],
        detector: EndOfTurnDetector | None = None,
        *,
        words: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.words_known = 0.0
        self._audio_input = audio_input
        self._turn_log = turn_log
        self._tell = tell
        self._detector = detector
        self._words = words
        self._expected: Expected | None = None
        self._loop = asyncio.get_running_loop()
        self._hypothesis = Hypothesis("")
        self._task: asyncio.Task[None] | None = None
        self._asked_at = self._opened_at = 0.0
        self._taken = False  # the open utterance has become a turn

    def open(self, expected: Expected | None) -> None:
        """Opens an utterance when the caller begins to speak; no effect on one that is open. A failure of the
        recogniser is recorded as a fault."""
        redaction = self._turn_log.redaction
        if redaction.asked:
            redaction.heard()
        self._expected = expected
        self._opened_at = self._loop.time()
        try:
            self._audio_input.open(expected)
        except EngineError as error:
            self._turn_log.fault("stt", str(error), self._loop.time())

    @property
    def is_open(self) -> bool:
        """Whether an utterance is being recognised."""
        return self._audio_input.is_open

    def close(self) -> None:
        """Closes the utterance and drops its words and a request under way."""
        self.cancel()
        self._audio_input.close()
        self._turn_log.redaction.forgotten(self._loop.time())
        self._hypothesis = Hypothesis("")
        self._taken = False

    def decode(
        self, turn: int, tasks: asyncio.TaskGroup, *, judged: bool = False, noisy: bool = False
    ) -> None:
        """Asks the recogniser for the words so far and, with `judged`, the end-of-turn detector whether the
        turn is over; supersedes a request under way. On a `noisy` line the detector gets the caller's voice
        only if it stands out."""
        self.cancel()
        self._asked_at = self._loop.time()
        self._task = tasks.create_task(self._understand(turn, judged=judged, noisy=noisy))

    def request_partial(self, turn: int, tasks: asyncio.TaskGroup) -> None:
        """Gives `tell` the interim words, and asks the recogniser for the words so far unless a request is
        under way or less than `ASK_AGAIN_S` old."""
        partial = self._audio_input.partial()
        if partial:
            now = self._loop.time()
            self._tell(PartialTranscript(turn, partial, self._audio_input.heard_until(now)), now)
        if (
            self._task is None
            and self._audio_input.is_open
            and self._loop.time() - self._asked_at >= ASK_AGAIN_S
        ):
            self.decode(turn, tasks)

    def poll_partial(self, turn: int, tasks: asyncio.TaskGroup) -> None:
        """Gives `tell` the interim words of a voice that goes on; asks a recogniser without interim words
        every `POLL_S`."""
        now = self._loop.time()
        partial = self._audio_input.partial()
        if partial:
            self._tell(PartialTranscript(turn, partial), now)
        elif self._task is None and now - max(self._asked_at, self._opened_at) >= POLL_S:
            self.decode(turn, tasks)

    def poll_background(self, turn: int, expected: Expected | None, tasks: asyncio.TaskGroup) -> None:
        """Looks for words in background speech; begins a new utterance after `BACKGROUND_S` without
        words."""
        if not self._audio_input.partial() and self._loop.time() - self._opened_at > BACKGROUND_S:
            self.close()
        if not self._audio_input.is_open:
            self.open(expected)
        self.poll_partial(turn, tasks)

    def cancel(self) -> None:
        """Drops a request under way."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def take(self, now: float, presumed: Hypothesis = NO_WORDS) -> TranscriptEntry | None:
        """Takes the utterance as a turn and returns its entry of the transcript, None for no words. A request
        still under way is dropped and recorded as a fault; the words are then those of `presumed`."""
        if self._task is not None:
            self.cancel()
            self._hypothesis, self.words_known = presumed, now
            self._turn_log.fault("stt", "the recogniser was late", now)
        self._taken = True
        return self.said

    @property
    def said(self) -> TranscriptEntry | None:
        """The transcript's entry of the last result; None for no words."""
        said = self._hypothesis
        return self._turn_log.caller_entry(
            said.text, said.confidence, said.words, times=self._audio_input.utterance_times()
        )

    @property
    def is_asking(self) -> bool:
        """Whether a request to the recogniser is under way."""
        return self._task is not None

    def give_back(self) -> None:
        """Takes back `take`, since the caller goes on."""
        self._taken = False

    @property
    def is_pending(self) -> bool:
        """Whether an utterance is open whose turn was not taken."""
        return self._audio_input.is_open and not self._taken

    async def hear_out(self, limit_s: float) -> None:
        """Recognises the caller's last words, which no turn took, for the transcript; waits `limit_s` at
        most. `tell` is not called any more."""
        self.cancel()
        self._tell = _untold
        if self._audio_input.is_open and not self._taken:
            try:
                async with asyncio.timeout(limit_s):
                    self._hypothesis = await self._audio_input.decode()
            except (EngineError, TimeoutError) as error:
                self._turn_log.fault("stt", str(error) or "the recogniser was late", self._loop.time())
            else:
                entry = self.said
                if entry is not None:
                    self._turn_log.caller_said(entry)
        self._audio_input.close()

    async def _understand(self, turn: int, *, judged: bool, noisy: bool) -> None:
        self._hypothesis = Hypothesis("")
        words = FinalTranscript(turn, "", failed=True)
        try:
            with contained("the recogniser", call_id=self._turn_log.call_id):
                self._hypothesis = await self._audio_input.decode()
                said = self._hypothesis
                p_eot = await self._p_eot(said.text, noisy=noisy) if judged else None
                words = FinalTranscript(turn, said.text, said.confidence, p_eot=p_eot, doubtful=said.doubtful)
        except EngineError as error:
            self._turn_log.fault("stt", str(error), self._loop.time())
        self._task = None
        self.words_known = self._loop.time()
        self._turn_log.understood(words.text, self.words_known)
        self._tell(words, self.words_known)

    async def _p_eot(self, text: str, *, noisy: bool) -> float | None:
        if self._detector is None:
            return None
        audio_input = self._audio_input
        evidence = TurnEvidence(
            audio=audio_input.callers_own(noisy=noisy),
            rate_hz=audio_input.rate_hz,
            words=text,
            asked=self._turn_log.heard,
            expected=self._expected,
            silence_ms=audio_input.silence_ms,
            voiced_ms=audio_input.voiced_ms,
            language=audio_input.language,
            lists=word_lists(audio_input.language, self._words),
        )
        return await self._detector.p_eot(evidence)


def _untold(words: FinalTranscript | PartialTranscript, now: float) -> None:
    """Ignores the words of a conversation that is over."""
