"""Engines by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from pipeline import registry
from pipeline.errors import EngineMissing, LocalError


@pytest.fixture
def mine() -> Iterator[None]:
    registry.register("tts", "mine", lambda settings: ("made", dict(settings)))
    yield
    registry.unregister("tts", "mine")


@pytest.mark.usefixtures("mine")
def test_an_engine_of_the_programs_own() -> None:
    assert registry.load("tts", "mine", {"voice": "x"}) == ("made", {"voice": "x"})
    assert "mine" in registry.known("tts")


@pytest.mark.usefixtures("mine")
def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(EngineMissing, match=r"'nope'.*espeak-ng.*mine"):
        registry.load("tts", "nope", {})


def test_the_installed_ones_are_found() -> None:
    assert {"pocketsphinx", "faster-whisper"} <= set(registry.known("stt"))
    assert "script" in registry.known("agent")


def test_a_kind_that_does_not_exist_is_a_bug() -> None:
    with pytest.raises(LocalError, match="no kind of engine 'tss'"):
        registry.load("tss", "espeak-ng", {})


def test_ones_own_goes_before_an_installed_one() -> None:
    def factory(settings: Mapping[str, Any]) -> str:
        return "mine"

    registry.register("tts", "espeak-ng", factory)
    try:
        assert registry.load("tts", "espeak-ng", {}) == "mine"
    finally:
        registry.unregister("tts", "espeak-ng")


def test_what_the_engine_refuses_is_passed_on() -> None:
    def refuse(settings: Mapping[str, Any]) -> Any:
        raise ValueError("no key 'pitsch'")

    registry.register("tts", "picky", refuse)
    try:
        with pytest.raises(ValueError, match="pitsch"):
            registry.load("tts", "picky", {"pitsch": 3})
    finally:
        registry.unregister("tts", "picky")
