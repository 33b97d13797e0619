"""Ears and voices and the servers of the wild: what they call sound, and how they refuse."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from pipeline import registry
from pipeline.errors import EngineRefused
from pipeline.net.egress import EgressPolicy, egress_policy
from tests.support.hostile.wild import Piece, wild_server
from tests.support.http.openai_server import openai_server

pytestmark = pytest.mark.virtual_clock

HERE = EgressPolicy(["127.0.0.0/8"])
RATE_HZ = 24000
PITCH_HZ = 400


def tone(rate_hz: int = RATE_HZ) -> bytes:
    time_s = np.arange(rate_hz // 2) / rate_hz
    return (8000 * np.sin(2 * np.pi * PITCH_HZ * time_s)).astype("<i2").tobytes()


def head(size: int, rate_hz: int = RATE_HZ, before: bytes = b"") -> bytes:
    kind = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate_hz, rate_hz * 2, 2, 16)
    return struct.pack("<4sI4s", b"RIFF", 0, b"WAVE") + kind + before + struct.pack("<4sI", b"data", size)


def answer(body: bytes, kind: str) -> list[Piece]:
    start = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n".encode()
    return [start, *(body[at : at + 1001] for at in range(0, len(body), 1001))]


async def heard_of(pieces: list[Piece]) -> Any:
    async with wild_server(pieces) as server:
        with egress_policy(HERE):
            tts = registry.load("tts", "openai", {"base_url": server.base_url, "timeout_s": 20.0})
        try:
            return np.concatenate([chunk.samples async for chunk in tts.speak("one", language="en")])
        finally:
            await tts.close()


SOUND = tone()
LIST = struct.pack("<4sI", b"LIST", 4000) + b"\x55\xaa" * 2000


@pytest.mark.parametrize(
    ("body", "kind", "seconds"),
    [
        (tone(16000), "audio/pcm;rate=16000", 0.5),
        (tone(16000), "audio/L16; channels=1; rate=16000", 0.5),
        (SOUND, "application/octet-stream", 0.5),
        (head(0) + SOUND, "audio/wav", 0.5),
        (head(0xFFFFFFFF) + SOUND, "audio/wav", 0.5),
        (head(0x7FFFFFFF) + SOUND, "audio/pcm", 0.5),
        (head(480) + SOUND, "audio/wav", 0.5),
        (head(10**6) + SOUND, "audio/wav", 0.5),
        (head(len(SOUND), before=b"LIST\x04\0\0\0INFO") + SOUND, "audio/x-wav", 0.5),
        (head(len(SOUND)) + SOUND + LIST, "audio/wav", 0.5),
        (3 * (head(len(SOUND)) + SOUND), "audio/wav", 1.5),
        (2 * (head(len(SOUND)) + SOUND + LIST), "audio/wav", 1.0),
        (2 * (head(len(tone(22050)), 22050) + tone(22050)), "audio/wav", 1.0),
    ],
    ids=[
        "rate", "l16", "octets", "no-length", "longest", "long", "first-piece", "too-long", "list-before",
        "list-behind", "one-behind-the-other", "all-of-it", "resampled",
    ],
)  # fmt: skip
async def test_nothing_but_the_voice_is_heard_of_a_file(body: bytes, kind: str, seconds: float) -> None:
    samples = await heard_of(answer(body, kind))
    assert samples.size / RATE_HZ == pytest.approx(seconds, abs=0.02)
    power = np.abs(np.fft.rfft(samples.astype(float))) ** 2
    pitch = np.fft.rfftfreq(samples.size, 1 / RATE_HZ)
    assert power[np.abs(pitch - PITCH_HZ) < 30].sum() > 0.98 * power.sum()
    steepest = 8000 * 2 * np.pi * PITCH_HZ / RATE_HZ
    assert np.abs(np.diff(samples.astype(int))).max() < 2 * steepest


async def test_one_utterance_that_is_refused_costs_the_next_ones_nothing() -> None:
    async with openai_server() as fake:
        with egress_policy(HERE):
            recognizer = registry.load("stt", "openai", {"base_url": fake.base_url, "timeout_s": 20.0})
        for status in (400, 200):
            fake.manners.status = status
            await _tried(recognizer)
        await recognizer.close()
    assert [each.fields["response_format"] for each in fake.heard] == ["verbose_json", "json", "verbose_json"]


async def _tried(recognizer: Any) -> None:
    listening = recognizer.listen(rate_hz=RATE_HZ, language="en", expected=None)
    listening.push(np.frombuffer(SOUND, np.int16))
    with suppress(EngineRefused):
        await listening.result()
    listening.close()
