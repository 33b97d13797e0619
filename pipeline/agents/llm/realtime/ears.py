"""The caller's audio on its way to the model, beside the agent's own recogniser."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.agents.llm.realtime.line import RealtimeLine
from pipeline.agents.llm.realtime.messages import NARROW_HZ, WIDE_HZ
from pipeline.audio import Pcm
from pipeline.audio.kernels import ulaw_encode
from pipeline.audio.resample import Resampler
from pipeline.speech import Expected, Hypothesis, Listening, SpeechToText


class RealtimeEars:
    """The recogniser `words` of one call (`pipeline.speech.SpeechToText`), whose utterances `line` hears too:
    from the caller's first sound, with silence for the agent's echo. What turns out to be nothing said is
    dropped there. `is_private`: whether the caller is saying what is not for the model."""

    def __init__(self, words: SpeechToText, line: RealtimeLine, is_private: Callable[[], bool]) -> None:
        self._words = words
        self._line = line
        self._is_private = is_private

    async def start(self) -> None:
        """Does nothing: the line opens by itself."""

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Listening:
        """Begins an utterance, which the line hears too unless it is private."""
        words = self._words.listen(rate_hz=rate_hz, language=language, expected=expected)
        if self._line.failure is not None or self._is_private():
            return words
        return _HeardTwice(words, self._line, self._is_private, rate_hz=rate_hz)

    async def close(self) -> None:
        """Ends the call for the model."""
        await self._line.close()


class _HeardTwice:
    """One utterance, which the recogniser and the line hear."""

    def __init__(
        self, words: Listening, line: RealtimeLine, is_private: Callable[[], bool], *, rate_hz: int
    ) -> None:
        self._words = words
        self._line: RealtimeLine | None = line
        self._is_private = is_private
        to_hz = NARROW_HZ if line.narrow else WIDE_HZ
        self._resample = None if rate_hz == to_hz else Resampler(rate_hz, to_hz)
        line.clear()

    def push(self, samples: Pcm) -> None:
        """Takes more audio, in order."""
        self._words.push(samples)
        line = self._line
        if line is None:
            return
        if self._is_private():
            self._line = None
            line.clear()
            return
        made = samples if self._resample is None else self._resample(samples)
        line.hear(_ulaw(made) if line.narrow else made.tobytes())

    def partial(self) -> str:
        """The recogniser's interim words."""
        return self._words.partial()

    async def result(self) -> Hypothesis:
        """The recogniser's words. Raises `EngineError`."""
        return await self._words.result()

    def close(self) -> None:
        """Ends the utterance; what was not taken as something said is dropped."""
        self._words.close()
        if self._line is not None:
            self._line.clear()


def _ulaw(samples: Pcm) -> bytes:
    octets = np.empty(samples.shape[0], np.uint8)
    ulaw_encode(samples, octets)
    return octets.tobytes()
