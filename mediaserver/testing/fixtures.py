"""The fixtures of the conformance suites, and what every engine must do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import numpy as np
import pytest

from pipeline import registry
from pipeline.audio import Pcm
from pipeline.audio.resample import resample
from pipeline.net.egress import EgressPolicy, egress_policy
from pipeline.speech import TextToSpeech

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


@pytest.fixture
def engine_language(request: pytest.FixtureRequest) -> str:
    """The language in which the engine is tried."""
    return str(request.config.getoption("--engine-language"))


@pytest.fixture
def engine_says(request: pytest.FixtureRequest) -> str:
    """The words of the caller, which a recogniser is to understand."""
    return str(request.config.getoption("--engine-says"))


@pytest.fixture
def engine_options(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """The options of the engine, those of the command line."""
    options: Mapping[str, Any] = json.loads(str(request.config.getoption("--engine-options")))
    return options


@pytest.fixture
def make_engine(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Makes the engine under test from options; skips without `--engine`."""
    name = str(request.config.getoption("--engine"))
    if not name:
        pytest.skip("no --engine")
    kind = request.module.__name__.rpartition(".")[2]
    with egress_policy(EgressPolicy(["127.0.0.0/8", "10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12"])):
        yield lambda options: registry.load(kind, name, options)


@pytest.fixture
def in_engine(
    make_engine: Callable[..., Any], engine_options: Mapping[str, Any]
) -> Callable[[Callable[[Any], Coroutine[Any, Any, Any]]], Any]:
    """Runs a function on the started engine, which is closed after it."""

    def run(use: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        async def scene() -> T:
            engine = make_engine(engine_options)
            await engine.start()
            try:
                async with asyncio.timeout(60):
                    return await use(engine)
            finally:
                await engine.close()

        return asyncio.run(scene())

    return run


async def spoken(text: str, language: str, rate_hz: int) -> Pcm:
    """`text` in the voice that comes with the server, int16 at `rate_hz`."""
    voice: TextToSpeech = registry.load("tts", "espeak-ng", {})
    await voice.start()
    try:
        async with aclosing(voice.speak(text, language=language)) as chunks:  # type: ignore[type-var]
            samples = np.concatenate([chunk.samples async for chunk in chunks])
    finally:
        await voice.close()
    return resample(samples, voice.rate_hz, rate_hz)


def test_unknown_options_are_refused(
    make_engine: Callable[..., Any], engine_options: Mapping[str, Any]
) -> None:
    """A misspelt key must not pass in silence: `from_settings` raises ValueError (`SettingsRefused`)."""
    with pytest.raises(ValueError, match="no_such_option"):
        make_engine({**engine_options, "no_such_option": 1})
