"""Speech to text by a server with OpenAI's `/audio/transcriptions`, such as Whisper or Parakeet on a GPU.

Each request for the text sends the whole utterance: at the first pause, and again if the caller goes on. A
long utterance is cut at a quiet place, and the audio before the cut is sent once, and again only after a
failure. Confidence is exp(mean log-probability) if the server gives it (`verbose_json`), else a constant; the
values of different servers are not comparable.
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
from pipeline.net.socket_service import number
from pipeline.speech import LONGEST_TEXT, Expected, HeardWord, Hypothesis
from pipeline.stt.whisper.pieces import joined, quietest, shifted
from pipeline.text.fold import plain_words

PATH: Final = "audio/transcriptions"
MODEL_RATE_HZ: Final = 16000
PIECE_S: Final = 30
"""Longest audio of a request: Whisper's window. A longer utterance is cut at its quietest place after
`EARLIEST_S`."""

EARLIEST_S: Final = 15
WINDOW_S: Final = 60
"""Longest audio kept that the server has not yet recognised; older pieces are dropped, and so is the oldest
audio that was not sent."""

LATEST_S: Final = 86_400  # of a word's times
UNRATED: Final = 0.8  # the confidence of a text from a server that gives none
_NO_SPEECH: Final = 0.6
_SHORTEST_S: Final = 0.1  # OpenAI refuses shorter audio
_PROMPT_CHARACTERS: Final = 600  # Whisper keeps 224 tokens of a prompt


class TranscriptionSettings(EndpointTable):
    """The options of the server. `timeout_s`: longest wait for an answer; `deadline_s`: the same where
    another engine follows, so that the other can still answer within `stt_deadline_ms`. `prompt`: sent as the
    prompt; `hints`: the expected phrases are added to the prompt. `min_confidence`: texts below are taken for
    not understood."""

    model: str = "whisper-1"
    timeout_s: float = Field(default=4.0, ge=0.1, le=60)
    deadline_s: float = Field(default=0.7, ge=0.1, le=60)
    min_confidence: float = Field(default=0.3, ge=0, le=1)
    hints: bool = True
    prompt: str = ""


class OpenAiSpeechToText:
    """A recogniser by a server (`pipeline.speech.SpeechToText`), for all calls of the process."""

    def __init__(self, endpoint: ModelEndpoint, settings: TranscriptionSettings) -> None:
        self.endpoint = endpoint
        self.settings = settings
        self._format = "verbose_json"

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> OpenAiSpeechToText:
        """Keys: those of `TranscriptionSettings`. Raises `SettingsRefused`."""
        read = read_table("openai", TranscriptionSettings, settings)
        return cls(read.endpoint(timeout_s=read.timeout_s), read)

    @property
    def deadline_s(self) -> float:
        """Seconds after which an answer is late where another engine could still answer in time."""
        return self.settings.deadline_s

    async def start(self) -> None:
        """Does nothing, since a server that is down now may be up at the first call."""

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> OpenAiListening:
        """Starts listening to one utterance."""
        return OpenAiListening(self, rate_hz=rate_hz, language=language, expected=expected)

    async def check(self) -> str:
        """Checks whether the server can be reached: gives "" if so, else the reason."""
        return await self.endpoint.check()

    async def close(self) -> None:
        """Closes the connections to the server."""
        await self.endpoint.close()

    async def transcribe(
        self, samples: Pcm, rate_hz: int, language: str, expected: Expected | None
    ) -> Hypothesis:
        """Recognises one utterance, int16 at `rate_hz`. Raises `EngineError`."""
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
            self._format = "json"  # the server or model lacks verbose_json
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
    """A piece of an utterance, from sample `start` on. `asked`: its last request; `heard`: its result, None
    before."""

    samples: Pcm
    start: int
    asked: asyncio.Task[None] | None = None
    heard: Hypothesis | None = None


class OpenAiListening:
    """One utterance: a growing buffer, sent when its text is asked for. Cancelling `result` ends the request
    for the last piece; those for pieces before a cut, which do not change any more, go on until `close`."""

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
        self._start = 0  # first sample of `_pcm`
        self._known: tuple[int, Hypothesis] | None = None
        self._one = asyncio.Lock()
        self._last: _Piece | None = None  # while it is asked about
        self._closed = False

    def push(self, samples: Pcm) -> None:
        """Keeps a copy of the samples; drops the oldest second of unsent audio beyond `WINDOW_S`."""
        self._pcm += samples.tobytes()
        if len(self._pcm) > (WINDOW_S + 1) * 2 * self._rate_hz:
            self._take(self._rate_hz)

    def partial(self) -> str:
        """Gives "", since every text costs a request."""
        return ""

    async def result(self) -> Hypothesis:
        """Recognises all audio so far; gives the last result if no audio came since. Raises
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
        """Recognises all pieces and joins them; the result of the last piece is not kept."""
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
        """Gives the request for a piece; makes a new one if the last has failed."""
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
    """Retrieves the exception of a request without a waiter, so that asyncio does not report it."""
    if not request.cancelled():
        request.exception()


def _encoded(samples: Pcm, rate_hz: int) -> bytes:
    return wav.encoded(resample(samples, rate_hz, MODEL_RATE_HZ), MODEL_RATE_HZ)


def _hypothesis(answer: object, min_confidence: float) -> Hypothesis:
    """Reads the server's answer; parts that are malformed are ignored. Raises `EngineError` for an answer
    without a text."""
    if not isinstance(answer, Mapping) or not isinstance(answer.get("text"), str):
        raise EngineError("the recogniser answered without a text", retryable=True)
    text = plain_words(answer["text"][: 2 * LONGEST_TEXT])  # the final limit is in `FallbackListening`
    rated = [
        each for each in _mappings(answer.get("segments")) if number(each.get("avg_logprob")) is not None
    ]
    if not rated:
        return Hypothesis(text, UNRATED if text else 0.0, _words(answer, UNRATED))
    mean = sum(number(each["avg_logprob"]) or 0.0 for each in rated) / len(rated)
    confidence = math.exp(min(0.0, mean))
    silent = mean < -1 and all((number(each.get("no_speech_prob")) or 0.0) > _NO_SPEECH for each in rated)
    if silent or confidence < min_confidence or not text:
        return Hypothesis("", confidence=0.0 if silent or not text else confidence)
    return Hypothesis(text, confidence, _words(answer, confidence))


def _words(answer: Mapping[str, Any], confidence: float) -> tuple[HeardWord, ...]:
    """The words with their times, () where the server gives none."""
    words = []
    for each in _mappings(answer.get("words"))[:LONGEST_TEXT]:
        text, start, end = (
            plain_words(str(each.get("word", ""))[:100]),
            _time_ms(each.get("start")),
            _time_ms(each.get("end")),
        )
        if text and start is not None and end is not None:
            words.append(HeardWord(text, start, end, confidence))
    return tuple(words)


def _mappings(value: object) -> list[Mapping[str, Any]]:
    items: Sequence[object] = value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, Mapping)]


def _time_ms(value: object) -> int | None:
    seconds = number(value)
    return round(seconds * 1000) if seconds is not None and 0 <= seconds <= LATEST_S else None
