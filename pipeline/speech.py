"""The interfaces of speech engines: `SpeechToText` and `TextToSpeech`, found by name through entry points.

A third party's engine implements one of the two, exposes `from_settings(mapping) -> engine`, and names that
function in the entry-point group `mediaserver.speech_to_text` or `mediaserver.text_to_speech` (see
`pipeline.registry`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast, runtime_checkable

from pipeline.audio import Pcm


@dataclass(frozen=True, slots=True)
class Expected:
    """The answers that the agent's question allows, for end-pointing, for keyed digits, and for engines that
    can bias their recognition.

    `phrases`: whole answers, in lower-case words. `kinds`: built-in kinds of answer, any of "yes_no",
    "digits", "date", "time", "name", "number", "free". `digits`: number of digits of a complete answer; 0:
    not known. `choices`: complete keyed answers ("1" for sales). `terminator`: the key that ends a keyed
    answer; "": none does. `key_timeout_s`: seconds after the last key that end a keyed answer; 0: the
    session's `key_pause_ms`.
    """

    phrases: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    digits: int = 0
    terminator: str = "#"
    key_timeout_s: float = 0.0
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeardWord:
    """A recognised word. Times are milliseconds from the first sample pushed, -1 where there are none."""

    text: str
    start_ms: int = -1
    end_ms: int = -1
    confidence: float = 1.0


LONGEST_TEXT: Final = 4000
"""Most characters of one utterance's text: more than anybody says in `max_utterance_s` (45 s)."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The recognised text of an utterance. `text` is lower case without punctuation and "" for no speech;
    `confidence` is 0 to 1 and comparable only within one engine. `doubtful`: the text may be none of the
    speaker's, and is to be acted upon only when the speaker has confirmed it."""

    text: str
    confidence: float = 0.0
    words: tuple[HeardWord, ...] = ()
    doubtful: bool = False


class Listening(Protocol):
    """The recognition of one utterance, from its first sample to `close`."""

    def push(self, samples: Pcm) -> None:
        """Takes more audio, in order: int16 at the rate given to `listen`. Runs on the media path: returns
        within 0.2 ms, copies the samples that it keeps, never raises."""

    def partial(self) -> str:
        """Gives the stable interim text; "" where the engine has none."""

    async def result(self) -> Hypothesis:
        """Decodes all audio pushed so far. May be called again after more `push` calls, when a pause was not
        the end, and may be cancelled. Raises `EngineError`."""

    def close(self) -> None:
        """Frees the utterance's memory; a `result` under way is dropped."""


class SpeechToText(Protocol):
    """A recogniser, shared by all calls of the process."""

    async def start(self) -> None:
        """Loads and warms the engine. Raises `EngineMissing` with what to install or configure."""

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Listening:
        """Begins the recognition of one utterance, of audio at `rate_hz` in `language` ("en", "ar")."""

    async def close(self) -> None:
        """Ends helper processes and threads."""


@runtime_checkable
class PerCall(Protocol):
    """A recogniser that keeps something for each call, such as a socket."""

    def for_call(self, call_id: str, *, language: str) -> SpeechToText:
        """Gives the recogniser of one call, which speaks `language` at first; "": it may never be needed. Its
        `close` ends the call."""


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word of synthesised speech with its first sample and the one after its last, counted at the engine's
    `rate_hz` from the start of the synthesised text."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SpeechChunk:
    """A piece of synthesised speech: int16 mono at the engine's `rate_hz`. `words`: the words that begin in
    the piece; empty for an engine without word times, which are then estimated from the text's length."""

    samples: Pcm
    words: tuple[SpokenWord, ...] = ()


class TextToSpeech(Protocol):
    """A voice, shared by all calls of the process."""

    @property
    def rate_hz(self) -> int:
        """The sample rate of every chunk, in Hz."""

    async def start(self) -> None:
        """Loads and warms the engine. Raises `EngineMissing`."""

    def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        """Synthesises `text`, chunk by chunk as they become ready. Closing the iterator stops the engine.
        Raises `EngineError`."""

    async def close(self) -> None:
        """Ends helper processes and threads."""


@runtime_checkable
class SharedVoice(Protocol):
    """A voice that schedules requests of all its callers by the time at which their sound is needed."""

    def speak_ahead(self, text: str, *, language: str, ahead_s: float) -> AsyncIterator[SpeechChunk]:
        """Synthesises like `TextToSpeech.speak`, for a listener who still has `ahead_s` seconds of audio
        queued."""


@runtime_checkable
class VoicePerCall(Protocol):
    """A voice that keeps something for each call, such as a socket."""

    def for_call(self, call_id: str, *, language: str) -> TextToSpeech:
        """Gives the voice of one call, which speaks `language` at first; "": it may never be needed. Its
        `close` ends the call. The voice itself where it keeps nothing."""


@runtime_checkable
class IncrementalVoice(Protocol):
    """A voice that takes an answer's text while it is being written."""

    def speak_pieces(self, pieces: AsyncIterator[str], *, language: str) -> AsyncIterator[SpeechChunk]:
        """Synthesises the answer of which `pieces` come one by one, each as soon as it comes. Times of words
        count from the answer's first sample. Closing the iterator stops the engine. Raises `EngineError`."""


@runtime_checkable
class ForIncremental(Protocol):
    """A voice in front of another, which may take an answer's text while it is being written."""

    def incremental(self) -> IncrementalVoice | None:
        """Gives itself as such a voice; None where the voice behind it takes whole texts only."""


def incremental(voice: TextToSpeech) -> IncrementalVoice | None:
    """Gives `voice` as one that takes an answer's text while it is being written; None where it is none."""
    if hasattr(voice, "incremental"):  # `isinstance` of a protocol takes 10 µs
        return cast(ForIncremental, voice).incremental()
    return cast(IncrementalVoice, voice) if hasattr(voice, "speak_pieces") else None


def voices_of_call(
    voices: Sequence[TextToSpeech], *, call_id: str, language: str
) -> tuple[tuple[TextToSpeech, ...], Sequence[TextToSpeech]]:
    """Gives `voices` for one call, and what is to be closed at its end. Only the first prepares itself."""
    made = tuple(
        each.for_call(call_id, language="" if place else language) if isinstance(each, VoicePerCall) else each
        for place, each in enumerate(voices)
    )
    return made, [own for own, each in zip(made, voices, strict=True) if own is not each]


def speaking(
    voice: TextToSpeech, text: str, *, language: str, ahead_s: float = 0.0
) -> AsyncIterator[SpeechChunk]:
    """Gives the chunks of `text` from `voice`, by `speak_ahead` where the voice has that method."""
    if hasattr(voice, "speak_ahead"):  # faster than asking for a `SharedVoice`
        return cast(SharedVoice, voice).speak_ahead(text, language=language, ahead_s=ahead_s)
    return voice.speak(text, language=language)
