"""Streaming recognisers behind websockets on this machine, with the messages of each service's public
documentation. Every 100 ms of sound is one more word of what the service is told to hear."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import WSMsgType, web

from tests.support.webrtc.web import answering

WORDS = ["i", "would", "like", "to", "change", "my", "appointment", "to", "next", "monday", "please"]
WORD_MS = 100
LOUD = 500


@dataclass
class Vendor:
    """How a service speaks. `hello`: sent at once, or after the first message where `after_first`; `audio`:
    the samples in a message, None for another message; `finalise`: whether a message asks for the words so
    far; `partial`, `final`: the messages for words, each with its first and last millisecond in the stream;
    `final` has all that follows. `rate_hz`: of the samples."""

    audio: Callable[[Any], bytes | None]
    finalise: Callable[[Any], bool]
    partial: Callable[[list[str]], list[dict[str, Any]]]
    final: Callable[[list[tuple[str, int, int]]], list[dict[str, Any]]]
    hello: list[dict[str, Any]] = field(default_factory=list)
    after_first: bool = False
    rate_hz: int = 16000


@dataclass
class StreamingServer:
    """`sockets`: one list of messages (JSON objects, or the number of bytes) a socket. `cut_after_ms`: the
    next sockets break off after so much audio. `mute`: says nothing."""

    url: str = ""
    sockets: list[list[Any]] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)
    cut_after_ms: list[float] = field(default_factory=list)
    refuses: int = 0
    mute: bool = False
    open: int = 0

    def said(self, socket: int) -> list[Any]:
        """The JSON messages of a socket."""
        return [each for each in self.sockets[socket] if isinstance(each, dict)]


class _Stream:
    """The sound of one socket: counts words in it."""

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self.ms = 0.0
        self.loud_ms = 0.0
        self.begun = 0  # words before this utterance's
        self.at: list[float] = []

    def push(self, sound: bytes) -> None:
        samples = np.frombuffer(sound, "<i2")
        step = self.rate_hz // 100
        for at in range(0, len(samples) - step + 1, step):
            self.ms += 10
            if np.abs(samples[at : at + step].astype(int)).max() > LOUD:
                self.loud_ms += 10
                if self.loud_ms // WORD_MS > len(self.at):
                    self.at.append(self.ms)

    def words(self) -> list[tuple[str, int, int]]:
        new = self.at[self.begun :]
        return [(WORDS[place % len(WORDS)], int(at) - WORD_MS, int(at)) for place, at in enumerate(new)]


@asynccontextmanager
async def streaming_server(vendor: Vendor) -> AsyncIterator[StreamingServer]:
    """A running service that speaks as `vendor` does."""
    server = StreamingServer()

    async def take(request: web.Request) -> web.StreamResponse:
        server.requests.append(request)
        if request.method == "POST":
            return web.json_response({"id": "1", "url": server.url})
        if server.refuses:
            server.refuses -= 1
            return web.Response(status=500)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        server.open += 1
        try:
            await _talk(server, vendor, socket)
        finally:
            server.open -= 1
        return socket

    async with answering(take) as url:
        server.url = url.replace("http", "ws", 1) + "/socket"
        yield server


async def _talk(server: StreamingServer, vendor: Vendor, socket: web.WebSocketResponse) -> None:
    messages: list[Any] = []
    server.sockets.append(messages)
    cut_ms = server.cut_after_ms.pop(0) if server.cut_after_ms else None
    stream, told = _Stream(vendor.rate_hz), 0
    hello = list(vendor.hello)
    if not vendor.after_first:
        await _send(socket, hello)
        hello.clear()
    async for message in socket:
        body = json.loads(message.data) if message.type is WSMsgType.TEXT else message.data
        sound = vendor.audio(body)
        messages.append(len(sound) if sound is not None else body)
        await _send(socket, hello)
        hello.clear()
        if sound is not None:
            stream.push(sound)
            if cut_ms is not None and stream.ms >= cut_ms:
                assert socket._req is not None
                assert socket._req.transport is not None
                socket._req.transport.abort()
                return
        if server.mute:
            continue
        words = stream.words()
        if len(words) > told:
            told = len(words)
            await _send(socket, vendor.partial([word for word, _, _ in words]))
        silent = sound is not None and vendor.finalise(sound)
        if silent or (sound is None and vendor.finalise(body)):
            await _send(socket, vendor.final(words))
            stream.begun, told = len(stream.at), 0


async def _send(socket: web.WebSocketResponse, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        await socket.send_json(message)


def _bytes(message: Any) -> bytes | None:
    return message if isinstance(message, bytes) else None


def _encoded(key: str) -> Callable[[Any], bytes | None]:
    def audio(message: Any) -> bytes | None:
        sound = message.get(key) if isinstance(message, dict) else None
        return base64.b64decode(sound) if sound else None

    return audio


def _says(**fields: Any) -> Callable[[Any], bool]:
    return lambda message: isinstance(message, dict) and fields.items() <= message.items()


def _text(words: list[tuple[str, int, int]]) -> str:
    return " ".join(word for word, _, _ in words)


def _seconds(words: list[tuple[str, int, int]], text: str, start: str, end: str, **more: Any) -> list[Any]:
    return [{text: word, start: a / 1000, end: b / 1000, **more} for word, a, b in words]


def _deepgram(text: str, words: list[Any], *, final: bool, finalized: bool) -> dict[str, Any]:
    """https://developers.deepgram.com/reference/speech-to-text/listen-streaming"""
    best = {"transcript": text, "confidence": 0.9, "words": words}
    return {
        "type": "Results", "channel_index": [0, 1], "duration": 1.0, "start": 0.0, "is_final": final,
        "speech_final": False, "from_finalize": finalized, "channel": {"alternatives": [best]},
    }  # fmt: skip


def _assemblyai(words: list[tuple[str, int, int]], *, final: bool) -> dict[str, Any]:
    """https://www.assemblyai.com/docs/api-reference/streaming-api/streaming-api"""
    told = [
        {"text": word, "start": a, "end": b, "confidence": 0.9, "word_is_final": final}
        for word, a, b in words
    ]
    return {
        "type": "Turn", "turn_order": 0, "turn_is_formatted": False, "end_of_turn": final,
        "transcript": _text(words) if final else "", "end_of_turn_confidence": 0.5, "words": told,
    }  # fmt: skip


def _speechmatics(name: str, words: list[tuple[str, int, int]]) -> dict[str, Any]:
    """https://docs.speechmatics.com/api-ref/realtime-transcription-websocket"""
    results = [
        {
            "type": "word", "start_time": a / 1000, "end_time": b / 1000,
            "alternatives": [{"content": word, "confidence": 0.9, "language": "en"}],
        }
        for word, a, b in words
    ]  # fmt: skip
    return {"message": name, "metadata": {"transcript": _text(words) + " "}, "results": results}


def _soniox(words: list[tuple[str, int, int]], *, final: bool) -> dict[str, Any]:
    """https://soniox.com/docs/stt/api-reference/websocket-api"""
    tokens: list[dict[str, Any]] = [
        {"text": f"{word} ", "start_ms": a, "end_ms": b, "confidence": 0.9, "is_final": final}
        for word, a, b in words
    ]
    if final:
        tokens.append({"text": "<fin>", "is_final": True})
    return {"tokens": tokens, "final_audio_proc_ms": 0, "total_audio_proc_ms": 0}


def _gladia(words: list[tuple[str, int, int]], *, final: bool) -> dict[str, Any]:
    """https://docs.gladia.io/api-reference/v2/live/message/transcript"""
    told = _seconds(words, "word", "start", "end", confidence=0.9)
    utterance = {"text": _text(words), "confidence": 0.9, "language": "en", "words": told}
    return {"type": "transcript", "session_id": "1", "data": {"is_final": final, "utterance": utterance}}


def _untimed(words: list[str]) -> list[tuple[str, int, int]]:
    return [(word, 0, 0) for word in words]


def _is_silent(message: Any) -> bool:
    return isinstance(message, bytes) and len(message) >= 6400 and not any(message[-6400:])


TRANSCRIBED = "conversation.item.input_audio_transcription"

VENDORS: dict[str, Vendor] = {
    "deepgram": Vendor(
        _bytes, _says(type="Finalize"),
        lambda words: [_deepgram(" ".join(words), [], final=False, finalized=False)],
        lambda words: [
            _deepgram(
                _text(words), _seconds(words, "word", "start", "end", confidence=0.9),
                final=True, finalized=True,
            )
        ],
    ),
    "assemblyai": Vendor(
        _bytes, _says(type="ForceEndpoint"),
        lambda words: [_assemblyai(_untimed(words), final=False)],
        lambda words: [_assemblyai(words, final=True)],
        hello=[{"type": "Begin", "id": "1", "expires_at": 0}],
    ),
    "elevenlabs": Vendor(
        _encoded("audio_base_64"), _says(message_type="input_audio_chunk", commit=True),
        lambda words: [{"message_type": "partial_transcript", "text": " ".join(words)}],
        lambda words: [
            {"message_type": "committed_transcript", "text": _text(words)},
            {
                "message_type": "committed_transcript_with_timestamps", "text": _text(words),
                "words": _seconds(words, "text", "start", "end", type="word"),
            },
        ],
        hello=[{"message_type": "session_started", "session_id": "1"}],
    ),
    "speechmatics": Vendor(
        _bytes, _says(message="ForceEndOfUtterance"),
        lambda words: [_speechmatics("AddPartialTranscript", _untimed(words))],
        lambda words: [_speechmatics("AddTranscript", words), {"message": "EndOfUtterance", "metadata": {}}],
        hello=[{"message": "RecognitionStarted", "id": "1"}], after_first=True,
    ),
    "soniox": Vendor(
        _bytes, _says(type="finalize"),
        lambda words: [_soniox(_untimed(words), final=False)],
        lambda words: [_soniox(words, final=True)],
    ),
    "gladia": Vendor(
        _bytes, _is_silent,
        lambda words: [_gladia(_untimed(words), final=False)],
        lambda words: [_gladia(words, final=True)],
    ),
    "openai-realtime": Vendor(
        _encoded("audio"), _says(type="input_audio_buffer.commit"), lambda words: [],
        lambda words: [
            *({"type": f"{TRANSCRIBED}.delta", "item_id": "1", "delta": f"{word} "} for word, _, _ in words),
            {"type": f"{TRANSCRIBED}.completed", "item_id": "1", "transcript": _text(words)},
        ],
        hello=[{"type": "session.created"}, {"type": "session.updated"}], after_first=True, rate_hz=24000,
    ),
    "vllm-realtime": Vendor(
        _encoded("audio"), _says(type="input_audio_buffer.commit"), lambda words: [],
        lambda words: [
            *({"type": "transcription.delta", "delta": f"{word} "} for word, _, _ in words),
            {"type": "transcription.done", "text": _text(words), "usage": {}},
        ],
        hello=[{"type": "session.created", "id": "1"}],
    ),
}  # fmt: skip
VENDORS["azure-openai-realtime"] = VENDORS["openai-realtime"]
