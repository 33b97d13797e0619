"""How a text is cut for a voice, and how soon each part of it is needed."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, cast

import numpy as np
import pytest

from bench.support.stub import Stub
from mediaserver.engine_pool.choice import EMBEDDED
from mediaserver.engine_pool.pool import Engines
from mediaserver.engine_pool.running import FILES_AHEAD_S
from pipeline.engines.guard import Guard, GuardedVoice
from pipeline.media.playout import Playout
from pipeline.session.synthesis import Synthesis
from pipeline.settings import SessionSettings
from pipeline.speech import SpeechChunk, TextToSpeech, speaking
from pipeline.tts.espeak import Espeak
from pipeline.tts.subprocess_client import Spoken, VoiceProcess

LINE_HZ = 8000


class Ahead(Stub):
    """A voice that says a second for each word and writes down how much ahead it was asked."""

    rate_hz = LINE_HZ

    def __init__(self) -> None:
        self.asked: list[float] = []

    def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        return self.speak_ahead(text, language=language, ahead_s=0.0)

    async def speak_ahead(
        self, text: str, *, language: str, ahead_s: float
    ) -> AsyncGenerator[SpeechChunk, None]:
        self.asked.append(ahead_s)
        for _ in text.split():
            yield SpeechChunk(np.full(LINE_HZ, 3000, np.int16))


@pytest.mark.parametrize("is_guarded", [False, True])
async def test_a_sentence_asked_for_ahead_is_needed_when_what_is_queued_was_heard(is_guarded: bool) -> None:
    made = Ahead()
    speaks: TextToSpeech = GuardedVoice(made, Guard("tts", "made"), last=True) if is_guarded else made
    playout = Playout(LINE_HZ)
    voice = Synthesis(playout, [speaks], SessionSettings(), lambda kind, reason: None)
    await voice.say("Telephones ringing everywhere. Nobody answers any of them.", interruptible=True)
    assert made.asked == [0.0, 3.0]


class Asked:
    """Stands for the process of a voice: makes half a second of each request, and remembers it."""

    rate_hz = LINE_HZ

    def __init__(self) -> None:
        self.due: dict[str, float] = {}

    async def speak(self, request: Mapping[str, Any]) -> AsyncGenerator[Spoken, None]:
        self.due[str(request["text"])] = float(request["due"])
        yield b"\0\1" * (LINE_HZ // 2), []


async def test_who_waits_for_a_first_sound_is_due_before_who_has_something_to_hear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sentence ahead was asked for first. Whoever has waited longer since then is due before it."""
    voice, process, began = Espeak(), Asked(), time.monotonic()
    monkeypatch.setattr(voice, "_process", cast(VoiceProcess, process))
    for text, ahead_s in (("ahead", 3.0), ("first", 0.0), ("later", 0.0)):
        async for _ in speaking(voice, text, language="en", ahead_s=ahead_s):
            pass
    assert sorted(process.due, key=process.due.__getitem__) == ["first", "later", "ahead"]
    assert process.due["ahead"] >= began + 3.0


async def test_speech_for_files_is_due_later_than_that_for_callers() -> None:
    made = Ahead()
    engines = Engines([], others={"speech.tts": [EMBEDDED["tts"]]}, load=lambda *_: made)
    await engines.start()
    (voice,) = engines.voices([EMBEDDED["tts"]])
    async for _ in voice.speak("one", language="en"):
        pass
    await engines.close()
    assert made.asked == [FILES_AHEAD_S]
