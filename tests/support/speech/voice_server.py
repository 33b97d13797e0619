"""Streaming voices behind websockets on this machine, with the messages of each service's documentation and
of its SDK (`vendor_schemas`). Every word is 100 ms of a level of its own."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import WSMsgType, web

from pipeline.net import speech_framing
from tests.support.webrtc.web import answering

WORD_MS = 100
RATE_HZ = 24000
LEVEL = 0x100  # between the levels of two words, none of which reads as text


@dataclass(frozen=True)
class Piece:
    """Text of one answer; `ends`: the answer is complete with it."""

    context: str
    text: str = ""
    ends: bool = False


@dataclass(frozen=True)
class Word:
    """One word that is said: when in the answer and in its piece, in milliseconds, and its sound."""

    text: str
    answer_ms: int
    piece_ms: int
    sound: bytes


@dataclass(frozen=True)
class Vendor:
    """How a service speaks. `pieces`: what a message asks to be said; `clears`: whether it stops the answer
    (and which); `says`: the messages for a word; `piece_done`, `done`, `cleared`: those after a piece, an
    answer, a stop."""

    pieces: Callable[[Any], list[Piece]]
    says: Callable[[str, Word], list[Any]]
    clears: Callable[[Any], bool] = lambda message: False
    piece_done: Callable[[str], list[Any]] = lambda context: []
    done: Callable[[str], list[Any]] = lambda context: []
    cleared: Callable[[], list[Any]] = list
    framing: str = "json"


@dataclass
class VoiceServer:
    """`sockets`: the messages of each; `sent`: what the service sent. `cut_after`: the next sockets break
    after so many words; `word_s`: the time that a word takes; `before`: raw messages before each word;
    `late`: words of an answer that come after it was cleared; `mute`: says nothing; `endless`: never ends."""

    vendor: Vendor
    url: str = ""
    sockets: list[list[Any]] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)
    cut_after: list[int] = field(default_factory=list)
    before: list[str | bytes] = field(default_factory=list)
    levels: dict[str, int] = field(default_factory=dict)
    word_s: float = 0.0
    late: int = 0
    refuses: int = 0
    mute: bool = False
    endless: bool = False
    open: int = 0
    said: list[str] = field(default_factory=list)

    def level(self, word: str) -> int:
        """The level of a word's samples."""
        return self.levels.setdefault(word, 0x401 + LEVEL * (len(self.levels) % 110))

    def heard(self, samples: Any) -> list[str]:
        """The words in `samples`, each as often as it was said."""
        size = RATE_HZ * WORD_MS // 1000
        names = {level: word for word, level in self.levels.items()}
        changes = np.flatnonzero(np.diff(samples.astype(int), prepend=-1))
        lengths = np.diff(np.append(changes, len(samples)))
        heard = [(names[int(samples[at])], length) for at, length in zip(changes, lengths, strict=True)]
        return [word for word, length in heard for _ in range(max(1, round(length / size)))]


@asynccontextmanager
async def voice_server(vendor: Vendor) -> AsyncIterator[VoiceServer]:
    """A running service that speaks as `vendor` does."""
    server = VoiceServer(vendor)

    async def take(request: web.Request) -> web.StreamResponse:
        server.requests.append(request)
        if server.refuses:
            server.refuses -= 1
            return web.Response(status=500)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        server.open += 1
        try:
            await _Talk(server, socket).run()
        finally:
            server.open -= 1
        return socket

    async with answering(take) as url:
        server.url = url.replace("http", "ws", 1) + "/socket"
        yield server


class _Talk:
    """One socket."""

    def __init__(self, server: VoiceServer, socket: web.WebSocketResponse) -> None:
        self.server = server
        self.socket = socket
        self.messages: list[Any] = []
        server.sockets.append(self.messages)
        self.cut_after = server.cut_after.pop(0) if server.cut_after else -1
        self.todo: asyncio.Queue[Piece] = asyncio.Queue()
        self.answer_ms: dict[str, int] = {}
        self.words = 0

    async def run(self) -> None:
        speaking = asyncio.create_task(self.speak())
        try:
            async for message in self.socket:
                if message.type is WSMsgType.TEXT:
                    speaking = await self.take(self.read(message.data), speaking)
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)

    def read(self, data: str) -> Any:
        if self.server.vendor.framing != "azure":
            return json.loads(data)
        head, _, body = data.partition("\r\n\r\n")
        assert "X-Timestamp:" in head
        return {**speech_framing.read(data), "body": body}

    async def take(self, body: Any, speaking: asyncio.Task[None]) -> asyncio.Task[None]:
        self.messages.append(body)
        if self.server.vendor.clears(body):
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            self.todo = asyncio.Queue()
            context = next(iter(reversed(self.answer_ms)), "")
            for _ in range(self.server.late):
                await self.word(context, "late", 0)
            await self.send(self.server.vendor.cleared())
            return asyncio.create_task(self.speak())
        for piece in self.server.vendor.pieces(body):
            self.todo.put_nowait(piece)
        return speaking

    async def speak(self) -> None:
        vendor = self.server.vendor
        while True:
            piece = await self.todo.get()
            if self.server.mute:
                continue
            for number, word in enumerate(piece.text.split()):
                await self.word(piece.context, word, number * WORD_MS)
            while self.server.endless:
                await self.word(piece.context, "more", 0)
            if piece.text.strip():
                await self.send(vendor.piece_done(piece.context))
            if piece.ends:
                await self.send(vendor.done(piece.context))

    async def word(self, context: str, text: str, piece_ms: int) -> None:
        if self.words == self.cut_after:
            assert self.socket._req is not None
            assert self.socket._req.transport is not None
            self.socket._req.transport.abort()
        self.words += 1
        await asyncio.sleep(self.server.word_s)
        at = self.answer_ms.get(context, 0)
        self.answer_ms[context] = at + WORD_MS
        level = self.server.level(text)
        sound = np.full(RATE_HZ * WORD_MS // 1000, level, "<i2").tobytes()
        for raw in self.server.before:
            await (self.socket.send_str(raw) if isinstance(raw, str) else self.socket.send_bytes(raw))
        self.server.said.append(text)
        await self.send(self.server.vendor.says(context, Word(text, at, piece_ms, sound)))

    async def send(self, messages: list[Any]) -> None:
        for message in messages:
            self.server.sent.append(message)
            with suppress(ConnectionError):
                if isinstance(message, bytes):
                    await self.socket.send_bytes(message)
                else:
                    await self.socket.send_str(message if isinstance(message, str) else json.dumps(message))


def _encoded(sound: bytes) -> str:
    return base64.b64encode(sound).decode()


def _elevenlabs_pieces(message: Any) -> list[Piece]:
    """https://elevenlabs.io/docs/api-reference/text-to-speech/v-1-text-to-speech-voice-id-multi-stream-input"""
    if "context_id" not in message:
        return []
    context = message["context_id"]
    if message.get("close_context"):
        return [Piece(context, ends=True)]
    return [Piece(context, message["text"])]


def _elevenlabs_says(context: str, word: Word) -> list[Any]:
    characters = [*word.text, " "]
    step = WORD_MS // len(characters)
    starts = [step * place for place in range(len(characters))]
    alignment = {
        "chars": characters, "charStartTimesMs": starts,
        "charDurationsMs": [step] * (len(characters) - 1) + [WORD_MS - starts[-1]],
    }  # fmt: skip
    return [
        {
            "audio": _encoded(word.sound), "contextId": context, "alignment": alignment,
            "normalizedAlignment": alignment,
        }
    ]  # fmt: skip


def _cartesia_pieces(message: Any) -> list[Piece]:
    """https://docs.cartesia.ai/api-reference/tts/websocket"""
    if message.get("cancel"):
        return []
    return [Piece(message["context_id"], message["transcript"], ends=not message["continue"])]


def _cartesia_says(context: str, word: Word) -> list[Any]:
    common = {"context_id": context, "done": False, "status_code": 206}
    times = {
        "words": [word.text], "start": [word.answer_ms / 1000], "end": [(word.answer_ms + WORD_MS) / 1000],
    }  # fmt: skip
    return [
        {"type": "chunk", "data": _encoded(word.sound), "step_time": 1.0, **common},
        {"type": "timestamps", "word_timestamps": times, **common},
    ]


def _rime_pieces(message: Any) -> list[Piece]:
    """https://docs.rime.ai/api-reference/endpoint/websockets-json"""
    return [Piece(message["contextId"], message["text"])] if "text" in message else []


def _rime_says(context: str, word: Word) -> list[Any]:
    times = {
        "words": [word.text], "start": [word.piece_ms / 1000], "end": [(word.piece_ms + WORD_MS) / 1000],
    }  # fmt: skip
    return [
        {"type": "chunk", "data": _encoded(word.sound), "contextId": context},
        {"type": "timestamps", "word_timestamps": times, "contextId": context},
    ]


def _azure_pieces(message: Any) -> list[Piece]:
    context = message["X-RequestId"]
    if message["Path"] == "text.end":
        return [Piece(context, ends=True)]
    return [Piece(context, message["body"])] if message["Path"] == "text.piece" else []


def _azure_text(context: str, path: str, body: Any) -> str:
    kind = "application/json; charset=utf-8"
    return f"X-RequestId:{context}\r\nContent-Type:{kind}\r\nPath:{path}\r\n\r\n{json.dumps(body)}"


def _azure_says(context: str, word: Word) -> list[Any]:
    head = f"X-RequestId:{context}\r\nContent-Type:audio/x-wav\r\nPath:audio\r\n".encode()
    told = {
        "Offset": word.answer_ms * 10_000, "Duration": WORD_MS * 10_000,
        "text": {"Text": word.text, "Length": len(word.text), "BoundaryType": "WordBoundary"},
    }  # fmt: skip
    return [
        _azure_text(context, "audio.metadata", {"Metadata": [{"Type": "WordBoundary", "Data": told}]}),
        len(head).to_bytes(2, "big") + head + word.sound,
    ]


VENDORS: dict[str, Vendor] = {
    "elevenlabs": Vendor(
        _elevenlabs_pieces, _elevenlabs_says,
        done=lambda context: [{"isFinal": True, "contextId": context}],
    ),
    "cartesia": Vendor(
        _cartesia_pieces, _cartesia_says,
        clears=lambda message: message.get("cancel") is True,
        done=lambda context: [{"type": "done", "context_id": context, "done": True, "status_code": 200}],
    ),
    "deepgram": Vendor(
        lambda message: [Piece("", message["text"])] if message["type"] == "Speak" else [],
        lambda context, word: [word.sound[:999], word.sound[999:]],
        clears=lambda message: message == {"type": "Clear"},
        piece_done=lambda context: [{"type": "Flushed", "sequence_id": 0}],
        cleared=lambda: [{"type": "Cleared", "sequence_id": 0}],
    ),
    "rime": Vendor(
        _rime_pieces, _rime_says,
        clears=lambda message: message == {"operation": "clear"},
        piece_done=lambda context: [{"type": "done", "contextId": context}],
    ),
    "azure-speech": Vendor(
        _azure_pieces, _azure_says,
        done=lambda context: [_azure_text(context, "turn.end", {})], framing="azure",
    ),
}  # fmt: skip
