"""A server with OpenAI's speech endpoints on a free port, as well or badly behaved as a test wants."""

from __future__ import annotations

import asyncio
import io
import struct
import wave
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aiohttp import web
from aiohttp.test_utils import TestServer

RATE_HZ = 24000
WORD_MS = 300


@dataclass
class Manners:
    """How the server answers. `status` with `headers` and `body`: an error instead of an answer. `delay_s`:
    before the answer. `dies_after`, `stalls_after`: bytes of the voice's answer before it breaks off or
    hangs. `pieces`: how large the pieces of the voice's answer are."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b'{"error": {"message": "secret words", "code": "some_reason"}}'
    delay_s: float = 0.0
    dies_after: int | None = None
    stalls_after: int | None = None
    pieces: int = 1023
    as_wav: bool = False
    wav_rate_hz: int = RATE_HZ
    text: str = "Yes, please."
    answer: Any = None
    only_json: bool = False


@dataclass
class Heard:
    """One transcription asked for."""

    fields: dict[str, str]
    samples: Any
    rate_hz: int


class FakeOpenAi:
    """`base_url` once it runs. `heard`, `said`: the requests, `keys`: the Authorization headers; `cut_off`:
    requests whose client went away."""

    def __init__(self) -> None:
        self.manners = Manners()
        self.base_url = ""
        self.heard: list[Heard] = []
        self.said: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.connections: set[Any] = set()
        self.cut_off = 0
        self.on_voice: Callable[[int], None] | None = None

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application()
        app.router.add_post("/v1/audio/transcriptions", self._transcribe)
        app.router.add_post("/v1/audio/speech", self._speak)
        app.router.add_get("/v1/models", self._models)
        return app

    async def _begin(self, request: web.Request) -> web.Response | None:
        manners = self.manners
        self.keys.append(request.headers.get("Authorization", ""))
        self.connections.add(request.transport)
        try:
            await asyncio.sleep(manners.delay_s)
        except asyncio.CancelledError:
            self.cut_off += 1
            raise
        if manners.status != 200:
            return web.Response(status=manners.status, headers=manners.headers, body=manners.body)
        return None

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return await self._begin(request) or web.json_response({"data": []})

    async def _transcribe(self, request: web.Request) -> web.StreamResponse:
        fields: dict[str, str] = {}
        samples, rate_hz = np.zeros(0, np.int16), 0
        async for part in await request.multipart():
            if part.name == "file":  # type: ignore[union-attr]
                with wave.open(io.BytesIO(bytes(await part.read()))) as file:  # type: ignore[union-attr]
                    rate_hz = file.getframerate()
                    samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
            else:
                fields[str(part.name)] = await part.text()  # type: ignore[union-attr]
        self.heard.append(Heard(fields, samples, rate_hz))
        refused = await self._begin(request)
        if refused is not None:
            return refused
        if self.manners.only_json and fields["response_format"] != "json":
            return web.json_response({"error": {"code": "unsupported_value"}}, status=400)
        return web.json_response(self.manners.answer or {"text": self.manners.text})

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        manners = self.manners
        body = await request.json()
        self.said.append(body)
        refused = await self._begin(request)
        if refused is not None:
            return refused
        sound = voice(body["input"], manners.wav_rate_hz if manners.as_wav else RATE_HZ)
        if manners.as_wav:
            sound = streamed_wav(sound, manners.wav_rate_hz)
        response = web.StreamResponse(headers={"Content-Type": "audio/pcm"})
        await response.prepare(request)
        for start in range(0, len(sound), manners.pieces):
            if manners.stalls_after is not None and start >= manners.stalls_after:
                await asyncio.sleep(3600)
            if manners.dies_after is not None and start >= manners.dies_after:
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(sound[start : start + manners.pieces])
            if self.on_voice is not None:
                self.on_voice(start)
            await asyncio.sleep(0)
        await response.write_eof()
        return response


def voice(text: str, rate_hz: int = RATE_HZ) -> bytes:
    """300 ms for each word: a tone whose pitch tells which word of the text it is."""
    size = rate_hz * WORD_MS // 1000
    time_s = np.arange(size) / rate_hz
    words = [6000 * np.sin(2 * np.pi * (300 + 40 * place) * time_s) for place in range(len(text.split()))]
    return np.concatenate(words).astype("<i2").tobytes()


def streamed_wav(sound: bytes, rate_hz: int) -> bytes:
    """As servers stream it: they do not know the length yet."""
    head = struct.pack("<4sI4s", b"RIFF", 0xFFFFFFFF, b"WAVE")
    head += struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate_hz, rate_hz * 2, 2, 16)
    head += struct.pack("<4sI", b"LIST", 5) + b"INFO\0\0"
    return head + struct.pack("<4sI", b"data", 0xFFFFFFFF) + sound


@asynccontextmanager
async def openai_server() -> AsyncIterator[FakeOpenAi]:
    """A running server."""
    fake = FakeOpenAi()
    async with TestServer(fake.app(), host="127.0.0.1") as server:
        fake.base_url = str(server.make_url("/v1"))
        yield fake
