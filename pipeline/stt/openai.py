"""Speech to text by a server with OpenAI's `/audio/transcriptions`: Whisper, Parakeet and the like on
somebody's GPU.

The whole utterance is sent whenever its text is asked for: at the first pause on speculation, and again if
the caller went on. A long one is cut where it is quiet, and what is before the cut is sent once, and again
only where the server failed.
Confidence is exp(mean log-probability) where the server says it (`verbose_json`), else a constant; not
comparable between servers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import numpy as np
from pydantic import Field

from pipeline.audio import Pcm, wav
from pipeline.audio.resample import resample
from pipeline.engines.tables import read_table
from pipeline.errors import EngineError, EngineRefused
from pipeline.net.model_endpoint import EndpointTable, ModelEndpoint
from pipeline.speech import LONGEST_TEXT, Expected, HeardWord, Hypothesis
from pipeline.stt.whisper.pieces import joined, quietest, shifted
from pipeline.text.fold import plain_words

PATH: Final = "audio/transcriptions"
MODEL_RATE_HZ: Final = 16000
PIECE_S: Final = 30
"""The most that is sent at once: Whisper's window. A longer utterance is cut at its quietest place after
`EARLIEST_S`."""

EARLIEST_S: Final = 15
WINDOW_S: Final = 60
"""What is kept of speech that the server has not answered about: pieces that begin longer ago are dropped,
wherever in the utterance they are, and the oldest of what it was not asked about yet."""

UNRATED: Final = 0.8  # the confidence of a text whose server tells none
_NO_SPEECH: Final = 0.6
_SHORTEST_S: Final = 0.1  # OpenAI refuses less
_PROMPT_CHARACTERS: Final = 600  # Whisper keeps 224 tokens of a prompt


class TranscriptionSettings(EndpointTable):
    """`timeout_s`: for one answer; `deadline_s`: for one where another engine could still answer in time. It
    is asked at the first 100 ms of silence, and a turn waits for its words until 800 ms after its end.
    `hints`: sends the expected phrases as the prompt, `prompt` before them. `min_confidence`: texts below it
    count as not understood."""

    model: str = "whisper-1"
    timeout_s: float = Field(default=4.0, ge=0.1, le=60)
    deadline_s: float = Field(default=0.7, ge=0.1, le=60)
    min_confidence: float = Field(default=0.3, ge=0, le=1)
    hints: bool = True
    prompt: str = ""


class OpenAiSpeechToText:
    """A recogniser for all calls of the process."""

    def __init__(self, endpoint: ModelEndpoint, settings: TranscriptionSettings) -> None:
        self.endpoint = endpoint
        self.settings = settings
        self._format = "verbose_json"

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> OpenAiSpeechToText:
        """Keys: those of `TranscriptionSettings`. Raises `SettingsRefused`."""
        read = read_table("openai", TranscriptionSettings, settings)
        return cls(ModelEndpoint(read.base_url, api_key=read.api_key, timeout_s=read.timeout_s), read)

    @property
    def deadline_s(self) -> float:
        """Seconds after which an answer is late where another engine could still answer in time."""
        return self.settings.deadline_s

    async def start(self) -> None:
        """Nothing: a server that is down now may be up when the first call comes."""

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> OpenAiListening:
        """Starts listening to one utterance."""
        return OpenAiListening(self, rate_hz=rate_hz, language=language, expected=expected)

    async def check(self) -> str:
        """ "" if the server can be reached, or why not."""
        return await self.endpoint.check()

    async def close(self) -> None:
        """Closes the connections to the server."""
        await self.endpoint.close()

    async def transcribe(
        self, samples: Pcm, rate_hz: int, language: str, expected: Expected | None
    ) -> Hypothesis:
        """The words of one utterance. Raises `EngineError`."""
        if samples.size < rate_hz * _SHORTEST_S:
            return Hypothesis("")
        sound = await asyncio.to_thread(_encoded, samples, rate_hz)
        kind = self._format
        try:
            answer = await self._ask(sound, language, expected, kind)
        except EngineRefused:
            if kind == "json":
                raise
            answer = await self._ask(sound, language, expected, "json")
            self._format = "json"  # not every server and model knows verbose_json: it was not the utterance
        return _hypothesis(answer, self.settings.min_confidence)

    async def _ask(self, sound: bytes, language: str, expected: Expected | None, kind: str) -> Any:
        fields = {
            "model": self.settings.model,
            "language": language.lower().split("-")[0],
            "response_format": kind,
            "temperature": "0",
        }
        prompt = self._prompt(expected)
        if prompt:
            fields["prompt"] = prompt

        def form() -> aiohttp.FormData:
            made = aiohttp.FormData(fields)
            made.add_field("file", sound, filename="utterance.wav", content_type="audio/wav")
            return made

        return await self.endpoint.post_form(PATH, form)

    def _prompt(self, expected: Expected | None) -> str:
        hints = ", ".join(expected.phrases) if self.settings.hints and expected is not None else ""
        return f"{self.settings.prompt} {hints}".strip()[:_PROMPT_CHARACTERS]


@dataclass(slots=True, eq=False)
class _Piece:
    """The beginning of a long utterance, or what follows on one. `asked`: the last request about it, `heard`:
    once it is known."""

    samples: Pcm
    start: int
    asked: asyncio.Task[None] | None = None
    heard: Hypothesis | None = None


class OpenAiListening:
    """One utterance: a growing buffer, sent when its text is asked for. Whoever cancels `result` ends the
    request about its end; those about pieces before a cut go on until `close`: they stay as they are."""

    __slots__ = (
        "_closed", "_engine", "_expected", "_known", "_language", "_last", "_one", "_pcm", "_pieces",
        "_rate_hz", "_start",
    )  # fmt: skip

    def __init__(
        self, engine: OpenAiSpeechToText, *, rate_hz: int, language: str, expected: Expected | None
    ) -> None:
        self._engine = engine
        self._rate_hz = rate_hz
        self._language = language
        self._expected = expected
        self._pieces: list[_Piece] = []
        self._pcm = bytearray()  # after the pieces
        self._start = 0  # of that, in samples
        self._known: tuple[int, Hypothesis] | None = None
        self._one = asyncio.Lock()
        self._last: _Piece | None = None  # while it is asked about
        self._closed = False

    def push(self, samples: Pcm) -> None:
        """Keeps a copy; of what is longer than the window, and was never asked about, the end (cut a second
        at a time)."""
        self._pcm += samples.tobytes()
        if len(self._pcm) > (WINDOW_S + 1) * 2 * self._rate_hz:
            self._take(self._rate_hz)

    def partial(self) -> str:
        """Nothing: every text costs a request."""
        return ""

    async def result(self) -> Hypothesis:
        """The text of what was pushed so far, from the last request if nothing came since. Raises
        `EngineError`."""
        async with self._one:
            if self._closed:
                raise EngineError("this utterance was closed", retryable=False)
            length = self._start + len(self._pcm) // 2
            if self._known is not None and self._known[0] == length:
                return self._known[1]
            self._cut()
            self._last = _Piece(np.frombuffer(bytes(self._pcm), np.int16), self._start)
            heard = await self._hear([*self._pieces, self._last])
            self._known = (length, heard)
            return heard

    def close(self) -> None:
        """Frees the audio and ends requests under way."""
        self._closed = True
        self._pcm = bytearray()
        for piece in (*self._pieces, self._last):
            if piece is not None:
                _give_up(piece)
        self._pieces.clear()

    def _cut(self) -> None:
        while len(self._pcm) > PIECE_S * 2 * self._rate_hz:
            samples = np.frombuffer(bytes(self._pcm), np.int16)
            cut = quietest(samples, self._rate_hz, earliest_s=EARLIEST_S, latest_s=PIECE_S)
            self._pieces.append(_Piece(samples[:cut].copy(), self._start))
            self._take(cut)
        waiting = [piece for piece in self._pieces if piece.heard is None]
        while waiting and self._start - waiting[0].start > WINDOW_S * self._rate_hz:
            _give_up(waiting[0])
            self._pieces.remove(waiting.pop(0))

    def _take(self, count: int) -> None:
        del self._pcm[: 2 * count]
        self._start += count

    async def _hear(self, pieces: Sequence[_Piece]) -> Hypothesis:
        """All of it; the last piece is asked about for this answer alone."""
        asked = [self._ask(piece) for piece in pieces if piece.heard is None]
        try:
            await asyncio.wait(asked)
        finally:
            _give_up(pieces[-1])
            self._last = None
        if self._closed:
            raise EngineError("this utterance was closed", retryable=False)
        for request in asked:
            request.result()
        return joined([piece.heard for piece in pieces if piece.heard is not None])

    def _ask(self, piece: _Piece) -> asyncio.Task[None]:
        """The request about a piece; a new one where the last has failed."""
        if piece.asked is None or piece.asked.done():
            piece.asked = asyncio.create_task(self._hear_one(piece), name="transcription")
            piece.asked.add_done_callback(_forget)
        return piece.asked

    async def _hear_one(self, piece: _Piece) -> None:
        heard = await self._engine.transcribe(piece.samples, self._rate_hz, self._language, self._expected)
        piece.heard = shifted(heard, piece.start * 1000 // self._rate_hz)
        piece.samples = np.zeros(0, np.int16)


def _give_up(piece: _Piece) -> None:
    if piece.asked is not None:
        piece.asked.cancel()


def _forget(request: asyncio.Task[None]) -> None:
    """Takes the failure of a request nobody waits for any more, so that it is not reported as lost."""
    if not request.cancelled():
        request.exception()


def _encoded(samples: Pcm, rate_hz: int) -> bytes:
    return wav.encoded(resample(samples, rate_hz, MODEL_RATE_HZ), MODEL_RATE_HZ)


def _hypothesis(answer: object, min_confidence: float) -> Hypothesis:
    """What the server's answer says, as far as it makes sense. Raises `EngineError` for one without a
    text."""
    if not isinstance(answer, Mapping) or not isinstance(answer.get("text"), str):
        raise EngineError("the recogniser answered without a text", retryable=True)
    text = plain_words(answer["text"][: 2 * LONGEST_TEXT])  # what is cut of the rest is cut and told of later
    rated = [
        each for each in _mappings(answer.get("segments")) if _number(each.get("avg_logprob")) is not None
    ]
    if not rated:
        return Hypothesis(text, UNRATED if text else 0.0, _words(answer, UNRATED))
    mean = sum(_number(each["avg_logprob"]) or 0.0 for each in rated) / len(rated)
    confidence = math.exp(min(0.0, mean))
    silent = mean < -1 and all((_number(each.get("no_speech_prob")) or 0.0) > _NO_SPEECH for each in rated)
    if silent or confidence < min_confidence or not text:
        return Hypothesis("", confidence=0.0 if silent or not text else confidence)
    return Hypothesis(text, confidence, _words(answer, confidence))


def _words(answer: Mapping[str, Any], confidence: float) -> tuple[HeardWord, ...]:
    """The words with their times, where the server tells them."""
    words = []
    for each in _mappings(answer.get("words"))[:LONGEST_TEXT]:
        text, start, end = (
            plain_words(str(each.get("word", ""))[:100]),
            _number(each.get("start")),
            _number(each.get("end")),
        )
        if text and start is not None and end is not None:
            words.append(HeardWord(text, round(start * 1000), round(end * 1000), confidence))
    return tuple(words)


def _mappings(value: object) -> list[Mapping[str, Any]]:
    items: Sequence[object] = value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, Mapping)]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
