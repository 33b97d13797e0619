"""A streaming recogniser as data: what is sent to it, and where the words stand in its messages. Sans I/O."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from pipeline.engines.tables import HeaderName, HeaderText, HttpUrl, Table
from pipeline.speech import LONGEST_TEXT, HeardWord
from pipeline.text.fold import plain_words

AUDIO: Final = "{audio}"
"""The place of base64 audio in `audio`."""

LATEST_MS: Final = 1e9
"""Of a word's times, from the stream's first sample: eleven days."""

UNRATED: Final = 0.8  # the confidence of a text from a service that gives none
Message = dict[str, Any]


def _socket_url(value: str) -> str:
    if not value.startswith(("ws://", "wss://")):
        raise ValueError('must be a URL such as "wss://host/path"')
    return value


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


class ServiceSettings(Table):
    """The options of the engine `websocket`. `audio`: the message of a piece of audio, with "{audio}" in the
    place of its base64; empty: bytes. `begin`: sent first; `ready`: the message after which audio is taken.
    `keep_alive`: sent after `keep_alive_s` without audio; empty: silence. `finalise`: asks for the words of
    all audio so far, which are complete with the message `finalised` (empty: any `final`);
    `finalise_silence_ms`: sent before it.
    `end`: sent before the socket is closed. `time_unit_ms`: of the words' times. `finalise_s`: after it the
    words so far count; `deadline_s`: after it the next engine is asked; `timeout_s`: the longest wait where
    there is none. `session_url`: where the address of each socket is asked for by POST, with `session_body`;
    it stands at `session_address` of the answer. `{language}`, `{rate_hz}` and `{null}` are filled in in
    `url`, `query`, `session_body` and `begin`."""

    url: Annotated[str, AfterValidator(_socket_url)]
    session_url: HttpUrl | Literal[""] = ""
    session_body: Message = Field(default_factory=dict)
    session_address: str = ""
    api_key: str = Field(default="", repr=False)
    headers: dict[HeaderName, HeaderText] = Field(default_factory=dict, repr=False, max_length=20)
    query: dict[str, str] = Field(default_factory=dict, repr=False, max_length=40)
    rate_hz: Literal[8000, 16000, 24000, 48000] = 16000
    chunk_ms: int = Field(default=60, ge=20, le=1000)
    audio: Message = Field(default_factory=dict)
    begin: tuple[Message, ...] = Field(default=(), max_length=5)
    ready: Message = Field(default_factory=dict)
    keep_alive: Message = Field(default_factory=dict)
    keep_alive_s: float = Field(default=4.0, ge=0.1, le=60)
    finalise: Message = Field(default_factory=dict)
    finalise_silence_ms: int = Field(default=0, ge=0, le=3000)
    finalised: Message = Field(default_factory=dict)
    end: Message = Field(default_factory=dict)
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
    sample. `finalised`: the answer to `finalise`; `ready`: audio is taken; `error`: what went wrong."""

    partial: str | None = None
    adds: bool = False
    final: str | None = None
    words: tuple[HeardWord, ...] = ()
    confidence: float = UNRATED
    finalised: bool = False
    ready: bool = False
    error: str = ""


def read(service: ServiceSettings, message: Mapping[str, Any]) -> Read:
    """Reads a message of the service; what is malformed in it is ignored."""
    if _is(service.error, message):
        return Read(error=str(at(message, service.error.text) or "error")[:100])
    final, partial = _is(service.final, message), _is(service.partial, message)
    words = _words(service, message) if final else ()
    rated = _number(at(message, service.final.confidence)) if final else None
    if rated is None and words:
        rated = sum(word.confidence for word in words) / len(words)
    return Read(
        partial=_text(service.partial, message) if partial else None,
        adds=service.partial.adds,
        final=_text(service.final, message) if final else None,
        words=words,
        confidence=UNRATED if rated is None else min(1.0, max(0.0, rated)),
        finalised=fits(message, service.finalised) if service.finalised else final,
        ready=bool(service.ready) and fits(message, service.ready),
    )


def at(message: object, path: str) -> object:
    """The value at a path such as "channel.alternatives.0.transcript"; None for none."""
    value = message
    for name in path.split(".") if path else ("",):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def fits(message: object, when: Mapping[str, Any]) -> bool:
    """Whether the message has the value, or one of the list of values, at each path. `*` in a path stands for
    any item of a list."""
    return all(_fits(message, path, value) for path, value in when.items())


def _fits(message: object, path: str, value: object) -> bool:
    before, star, after = path.partition(".*.")
    if star:
        found = at(message, before)
        return any(_fits(each, after, value) for each in (found if isinstance(found, list) else ()))
    return at(message, path) in (value if isinstance(value, list) else [value])


def filled_in(value: Any, **places: Any) -> Any:
    """`value` with each `{name}` of `places` filled in; a place that is a whole text keeps its type."""
    if isinstance(value, Mapping):
        return {key: filled_in(inner, **places) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [filled_in(inner, **places) for inner in value]
    if not isinstance(value, str):
        return value
    for name, place in places.items():
        if value == f"{{{name}}}":
            return place
        value = value.replace(f"{{{name}}}", str(place))
    return value


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
        start, end = (_time_ms(at(each, path), service.time_unit_ms) for path in (paths.start, paths.end))
        if not fits(each, paths.when) or not isinstance(text, str) or start is None or end is None:
            continue
        said, rated = plain_words(text[:100]), _number(at(each, paths.confidence))
        if said:
            confidence = UNRATED if rated is None else min(1.0, max(0.0, rated))
            words.append(HeardWord(said, start, end, confidence))
    return tuple(words)


def _time_ms(value: object, unit_ms: float) -> int | None:
    number = _number(value)
    time_ms = -1.0 if number is None else number * unit_ms
    return round(time_ms) if 0 <= time_ms <= LATEST_MS else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
