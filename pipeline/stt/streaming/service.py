"""A streaming recogniser as data: what is sent to it, and where the words stand in its messages. Sans I/O."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import Field

from pipeline.engines.tables import Table
from pipeline.net.socket_service import Message, SocketSettings, at, filled_in, fits, number, time_ms
from pipeline.speech import LONGEST_TEXT, HeardWord
from pipeline.text.fold import plain_words

AUDIO: Final = "{audio}"
"""The place of base64 audio in `audio`."""

UNRATED: Final = 0.8  # the confidence of a text from a service that gives none


class WordPaths(Table):
    """Where the parts of one word stand in its object; `when`: which objects are words."""

    text: str = "word"
    start: str = "start"
    end: str = "end"
    confidence: str = "confidence"
    when: dict[str, Any] = Field(default_factory=dict)


class TextPaths(Table):
    """How a kind of message is known (`when`: a value, or one of a list, for each path), and where its parts
    stand. `items`: a list of pieces, whose `text`s are put together; `item_when`: which of them count;
    `join`: between them.
    `ignore`: texts of pieces that are no words. `adds`: the text goes on from that of the message before."""

    when: dict[str, Any] = Field(default_factory=dict)
    text: str = ""
    items: str = ""
    item_when: dict[str, Any] = Field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    words: str = ""
    word: WordPaths = WordPaths()
    confidence: str = ""
    join: str = ""
    adds: bool = False


class ServiceSettings(SocketSettings):
    """The options of the engine `websocket`, beside those of every socket. `audio`: the message of a piece of
    audio, with "{audio}" in the place of its base64; empty: bytes. `keep_alive` may be empty: silence.
    `finalise`: asks for the words of all audio so far, which are complete with the message `finalised`
    (empty: any `final`); `finalise_silence_ms`: sent before it. `time_unit_ms`: of the words' times.
    `finalise_s`: after it the words so far count; `deadline_s`: after it the next engine is asked;
    `timeout_s`: the longest wait where there is none. Places: `{language}`, `{rate_hz}` and `{null}`."""

    rate_hz: Literal[8000, 16000, 24000, 48000] = 16000
    chunk_ms: int = Field(default=60, ge=20, le=1000)
    audio: Message = Field(default_factory=dict)
    finalise: Message = Field(default_factory=dict)
    finalise_silence_ms: int = Field(default=0, ge=0, le=3000)
    finalised: Message = Field(default_factory=dict)
    partial: TextPaths = TextPaths()
    final: TextPaths
    error: TextPaths = TextPaths()
    time_unit_ms: float = Field(default=1000.0, gt=0, le=1000)
    min_confidence: float = Field(default=0.3, ge=0, le=1)
    finalise_s: float = Field(default=0.5, ge=0.05, le=10)
    deadline_s: float = Field(default=0.7, ge=0.1, le=60)
    timeout_s: float = Field(default=4.0, ge=0.1, le=60)

    def audio_message(self, samples: bytes) -> bytes | Message:
        """The message of a piece of audio, int16 at `rate_hz`."""
        return filled_in(self.audio, audio=b64encode(samples).decode()) if self.audio else samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What one message says. `partial`: words that may change; `final`: words that do not, None for neither.
    `adds`: `partial` goes on from the one before. `words`: of `final`, their times from the stream's first
    sample. `finalised`: the answer to `finalise`; `error`: what went wrong."""

    partial: str | None = None
    adds: bool = False
    final: str | None = None
    words: tuple[HeardWord, ...] = ()
    confidence: float = UNRATED
    finalised: bool = False
    error: str = ""


def read(service: ServiceSettings, message: Mapping[str, Any]) -> Read:
    """Reads a message of the service; what is malformed in it is ignored."""
    if _is(service.error, message):
        return Read(error=str(at(message, service.error.text) or "error")[:100])
    final, partial = _is(service.final, message), _is(service.partial, message)
    words = _words(service, message) if final else ()
    rated = number(at(message, service.final.confidence)) if final else None
    if rated is None and words:
        rated = sum(word.confidence for word in words) / len(words)
    return Read(
        partial=_text(service.partial, message) if partial else None,
        adds=service.partial.adds,
        final=_text(service.final, message) if final else None,
        words=words,
        confidence=UNRATED if rated is None else min(1.0, max(0.0, rated)),
        finalised=fits(message, service.finalised) if service.finalised else final,
    )


def _is(paths: TextPaths, message: Mapping[str, Any]) -> bool:
    if not fits(message, paths.when) or not (paths.when or paths.items):
        return False
    return not paths.items or any(True for _ in _items(paths, message))


def _items(paths: TextPaths, message: Mapping[str, Any]) -> Iterator[object]:
    found = at(message, paths.items)
    return (each for each in (found if isinstance(found, list) else ()) if fits(each, paths.item_when))


def _text(paths: TextPaths, message: Mapping[str, Any]) -> str:
    pieces = [message] if not paths.items else list(_items(paths, message))
    texts = (at(each, paths.text) for each in pieces)
    said = (text for text in texts if isinstance(text, str) and text not in paths.ignore)
    return paths.join.join(said)[: 2 * LONGEST_TEXT]


def _words(service: ServiceSettings, message: Mapping[str, Any]) -> tuple[HeardWord, ...]:
    paths, found = service.final.word, at(message, service.final.words) if service.final.words else ()
    words = []
    for each in (found if isinstance(found, list) else ())[:LONGEST_TEXT]:
        text = at(each, paths.text)
        start, end = (time_ms(at(each, path), service.time_unit_ms) for path in (paths.start, paths.end))
        if not fits(each, paths.when) or not isinstance(text, str) or start is None or end is None:
            continue
        said, rated = plain_words(text[:100]), number(at(each, paths.confidence))
        if said:
            confidence = UNRATED if rated is None else min(1.0, max(0.0, rated))
            words.append(HeardWord(said, start, end, confidence))
    return tuple(words)
