"""Kokoro on torch: its process and protocol, around a model that makes tones instead of the 2 GB of torch and
weights. Kokoro's own weights speak in test_pipeline_engines_local_voices.py."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import EngineError, EngineMissing, EngineRefused, LocalError, SettingsRefused
from pipeline.registry import load
from pipeline.speech import SpeechChunk
from pipeline.tts.clauses import pieces
from pipeline.tts.kokoro import CHUNK_CHARACTERS, FIRST_WORDS, LOCAL_VOICE, Kokoro
from tests.support.paths import SUPPORT

MODEL = str(SUPPORT / "speech" / "kokoro_model")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", MODEL)
    monkeypatch.syspath_prepend(MODEL)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    paths = {name: tmp_path / name for name in ("model", "config", "voice")}
    paths["model"].write_bytes(b"weights")
    paths["config"].write_text("{}")
    paths["voice"].write_text(json.dumps([0.5] * 200))
    return {name: str(path) for name, path in paths.items()}


@pytest.fixture
async def voice(installed: None, settings: dict[str, Any]) -> AsyncIterator[Kokoro]:
    made: Kokoro = load("tts", "kokoro", settings)
    await made.start()
    yield made
    await made.close()


def spoil(path: str) -> None:
    Path(path).write_text("something else")


async def spoken(voice: Kokoro, text: str, language: str = "en") -> list[SpeechChunk]:
    return [chunk async for chunk in voice.speak(text, language=language)]


async def test_every_word_is_said_and_has_its_time(voice: Kokoro) -> None:
    chunks = await spoken(voice, "good day this is the clinic. can you come on monday")
    words = [word for chunk in chunks for word in chunk.words]
    assert " ".join(word.text for word in words) == "good day this is the clinic. can you come on monday"
    total = sum(len(chunk.samples) for chunk in chunks)
    assert [word.start for word in words] == sorted(word.start for word in words)
    assert words[0].start == 600  # after the start mark of 25 ms
    assert words[1].start == 600 + 5 * 1200  # "good " is five phonemes of 50 ms
    assert words[-1].end <= total
    assert np.abs(np.concatenate([chunk.samples for chunk in chunks])).max() == pytest.approx(16383, abs=20)


async def test_voices_of_one_model_share_its_process(voice: Kokoro, settings: dict[str, Any]) -> None:
    other = Kokoro.from_settings({**settings, "speed": 2.0})
    await other.start()
    assert other._process is voice._process
    plain, fast = await spoken(voice, "good day"), await spoken(other, "good day")
    assert sum(len(chunk.samples) for chunk in plain) == 2 * sum(len(chunk.samples) for chunk in fast)
    await other.close()
    assert await spoken(voice, "still here")


async def test_a_process_that_dies_fails_its_sentence_and_is_back_for_the_next(voice: Kokoro) -> None:
    with pytest.raises(EngineError) as caught:
        await spoken(voice, "crash")
    assert caught.value.retryable
    assert await spoken(voice, "good day")


async def test_a_language_it_does_not_speak_is_refused(voice: Kokoro) -> None:
    with pytest.raises(EngineRefused, match="'ar'"):
        await spoken(voice, "مرحبا", "ar")


@pytest.mark.parametrize("language", ["en-GB", "en-AU", "es-MX", "fr-CA", "pt-PT"])
async def test_a_language_is_spoken_wherever_it_is_spoken(voice: Kokoro, language: str) -> None:
    assert await spoken(voice, "good day", language)


async def test_a_missing_file_is_named(installed: None, settings: dict[str, Any]) -> None:
    with pytest.raises(EngineMissing, match=r"no file /nowhere/voice\.pt"):
        await Kokoro.from_settings({**settings, "voice": "/nowhere/voice.pt"}).start()


async def test_weights_that_are_none_are_reported(installed: None, settings: dict[str, Any]) -> None:
    spoil(settings["model"])
    with pytest.raises(EngineMissing, match="invalid magic number"):
        await Kokoro.from_settings(settings).start()


async def test_a_voice_that_is_none_is_reported(installed: None, settings: dict[str, Any]) -> None:
    spoil(settings["voice"])
    with pytest.raises(EngineMissing, match="is not a voice"):
        await Kokoro.from_settings(settings).start()


async def test_without_the_extra_it_says_what_to_install(settings: dict[str, Any]) -> None:
    with pytest.raises(EngineMissing, match=r"pip install 'openline-mediaserver\[kokoro\]'"):
        await Kokoro.from_settings(settings).start()


async def test_speaking_before_start_is_a_bug(settings: dict[str, Any]) -> None:
    with pytest.raises(LocalError):
        await spoken(Kokoro.from_settings(settings), "good day")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"config": ""}, "config"),
        ({"model": ""}, "config"),
        ({"model": "", "config": "", "device": "cuda"}, "device"),
        ({"speed": 9}, "speed"),
        ({"device": "tpu"}, "device"),
        ({"vioce": "x"}, "vioce"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], change: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingsRefused) as caught:
        Kokoro.from_settings({**settings, **change})
    assert [name for name, _ in caught.value.problems] == [key]


@pytest.mark.parametrize("voice", [False, 0, []])
def test_a_local_voice_that_is_no_text_is_refused(voice: object) -> None:
    with pytest.raises(SettingsRefused) as caught:
        Kokoro.from_settings({"voice": voice})
    assert caught.value.problems == (("voice", "must be a string"),)


@pytest.mark.parametrize("settings", [{}, {"voice": ""}])
def test_without_a_name_the_local_voice_is_taken(settings: dict[str, Any]) -> None:
    assert Kokoro.from_settings(settings).settings.voice == LOCAL_VOICE


def test_the_first_chunk_is_short_and_no_word_is_lost() -> None:
    text = "Well, I am calling about your appointment on Tuesday at ten. " + "and so on " * 40 + "Bye."
    cut = pieces(text, longest=CHUNK_CHARACTERS, opening_words=FIRST_WORDS)
    assert " ".join(cut).split() == text.split()
    assert 2 <= len(cut[0].split()) <= FIRST_WORDS
    assert max(len(piece) for piece in cut) <= CHUNK_CHARACTERS
    assert pieces("Yes, of course.", longest=CHUNK_CHARACTERS, opening_words=FIRST_WORDS) == [
        "Yes, of course."
    ]
    assert pieces(" ", longest=CHUNK_CHARACTERS, opening_words=FIRST_WORDS) == []
