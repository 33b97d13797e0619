"""A streaming voice as data: what is sent to it, and where sound and words stand in messages. Sans I/O."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from pipeline.engines.tables import Table
from pipeline.net.socket_service import Message, SocketSettings, at, fits, name_of, time_ms
from pipeline.net.web_socket import Framing

_RATES: Final = (8000, 16000, 22050, 24000, 44100, 48000)
_MOST_WORDS: Final = 4000  # of one message

Messages = Annotated[tuple[Message, ...], Field(max_length=5)]


def _known_rate(rate_hz: int) -> int:
    if rate_hz not in _RATES:
        raise ValueError(f"must be one of {', '.join(map(str, _RATES))}")
    return rate_hz


class SoundPaths(Table):
    """Which messages have sound (`when`), and where: bytes, or a text in base64."""

    when: dict[str, Any] = Field(default_factory=dict)
    sound: str = "sound"


class SpokenPaths(Table):
    """Which messages have words (`when`), and where their parts stand: lists of the same length at `text`,
    `start` and `end` (or `duration`), or with `items` the parts of each item of that list (`item_when`: which
    count). A "word" may be one character. `since`: what the times count from: the beginning of the answer, of
    the piece, or of the message's own sound."""

    when: dict[str, Any] = Field(default_factory=dict)
    items: str = ""
    item_when: dict[str, Any] = Field(default_factory=dict)
    text: str = ""
    start: str = ""
    end: str = ""
    duration: str = ""
    time_unit_ms: float = Field(default=1000.0, gt=0, le=1000)
    since: Literal["answer", "piece", "message"] = "answer"


class FailurePaths(Table):
    """Which messages tell of a failure, and where its name stands."""

    when: dict[str, Any] = Field(default_factory=dict)
    text: str = ""


class VoiceSettings(SocketSettings):
    """The options of the engine `websocket` for voices, beside those of every socket.

    `open`: sent before the first text of an answer; `text`: a piece of it; `flush`: sent after each piece,
    so that it is said at once; `finish`: sent after the last; `clear`: sent when the answer is interrupted
    (empty: the socket is closed). `context`: where a message names the answer that it is of, `{context}`;
    empty: nowhere. `cleared`: the message after which sound is no more of the cleared answer, where messages
    name none. `piece_done`: all sound of a piece was sent; `done`: all of the answer. Without `done` an
    answer is done with its last piece. `idle_s`: a socket that was of use so long is opened again when the
    service closes it.

    `timeout_s`: longest wait for the first sound; `stall_s`: longest wait between two pieces of sound.
    `voices`: the voice by language, in preference to `voice`. Places in messages: `{text}`, `{context}`,
    `{speaker}` (the voice), `{language}`, `{rate_hz}` and `{null}`."""

    framing: Framing = Framing.JSON
    rate_hz: Annotated[int, AfterValidator(_known_rate)] = 24000
    encoding: Literal["pcm_s16le", "pcm_mulaw"] = "pcm_s16le"
    voice: str = ""
    voices: dict[str, str] = Field(default_factory=dict, max_length=100)
    open: Messages = ()
    text: Message
    flush: Message = Field(default_factory=dict)
    finish: Messages = ()
    clear: Message = Field(default_factory=dict)
    cleared: Message = Field(default_factory=dict)
    context: str = ""
    sound: SoundPaths
    words: SpokenPaths = SpokenPaths()
    piece_done: Message = Field(default_factory=dict)
    done: Message = Field(default_factory=dict)
    error: FailurePaths = FailurePaths()
    idle_s: float = Field(default=10.0, ge=1, le=3600)
    timeout_s: float = Field(default=1.4, ge=0.1, le=60)
    stall_s: float = Field(default=1.4, ge=0.1, le=60)

    def speaker(self, language: str) -> str:
        """The voice for a language."""
        return self.voices.get(language) or self.voices.get(language.partition("-")[0]) or self.voice


@dataclass(frozen=True, slots=True)
class Told:
    """A word or a character that the service says is spoken, with its times in milliseconds."""

    text: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceRead:
    """What one message says. `context`: the answer that it is of, None where it names none; `sound`: as
    encoded; `error`: the name of a failure, "" for none."""

    context: str | None = None
    sound: bytes = b""
    words: tuple[Told, ...] = ()
    piece_done: bool = False
    done: bool = False
    cleared: bool = False
    error: str = ""


def read(service: VoiceSettings, message: Mapping[str, Any]) -> VoiceRead:
    """Reads a message of the service; what is malformed in it is ignored."""
    context = at(message, service.context) if service.context else None
    named = context if isinstance(context, str) else None
    if _is(service.error.when, message):
        return VoiceRead(context=named, error=name_of(str(at(message, service.error.text) or "error")[:100]))
    return VoiceRead(
        context=named,
        sound=_sound(service.sound, message),
        words=tuple(_told(service.words, message)) if service.words.text else (),
        piece_done=_is(service.piece_done, message),
        done=_is(service.done, message),
        cleared=_is(service.cleared, message),
    )


def _is(when: Mapping[str, Any], message: Mapping[str, Any]) -> bool:
    return bool(when) and fits(message, when)


def _sound(paths: SoundPaths, message: Mapping[str, Any]) -> bytes:
    found = at(message, paths.sound) if fits(message, paths.when) else None
    if isinstance(found, bytes):
        return found
    if not isinstance(found, str):
        return b""
    try:
        return b64decode(found, validate=True)
    except (NotBase64, ValueError):
        return b""


def _told(paths: SpokenPaths, message: Mapping[str, Any]) -> Iterator[Told]:
    if not fits(message, paths.when):
        return
    for text, start, end, duration in _rows(paths, message):
        start_ms = time_ms(start, paths.time_unit_ms)
        end_ms = time_ms(end, paths.time_unit_ms) if paths.end else None
        lasting_ms = time_ms(duration, paths.time_unit_ms) if paths.duration else None
        if start_ms is not None and end_ms is None and lasting_ms is not None:
            end_ms = start_ms + lasting_ms
        if isinstance(text, str) and start_ms is not None and end_ms is not None and end_ms >= start_ms:
            yield Told(text[:100], start_ms, end_ms)


def _rows(paths: SpokenPaths, message: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    ways = (paths.text, paths.start, paths.end, paths.duration)
    if paths.items:
        items = at(message, paths.items)
        for each in (items if isinstance(items, list) else ())[:_MOST_WORDS]:
            if fits(each, paths.item_when):
                yield tuple(at(each, way) if way else None for way in ways)
        return
    columns = [at(message, way) if way else None for way in ways]
    texts, starts = columns[:2]
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        return
    lists = [column if isinstance(column, list) and len(column) == len(texts) else None for column in columns]
    for row in range(min(len(texts), _MOST_WORDS)):
        yield tuple(column[row] if column is not None else None for column in lists)
