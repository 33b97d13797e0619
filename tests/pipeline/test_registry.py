"""Engines by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
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


BROKEN = {
    "import": ("raise RuntimeError('secret')", "RuntimeError at .*broken_import.py, line 1"),
    "syntax": ("class Ears(", "SyntaxError at"),
    "arguments": ("class Ears:\n    def __init__(self): ...", r"TypeError \(.*takes 1 positional"),
    "option": (
        "class Ears:\n    def __init__(self, options): options['secret']",
        "KeyError at .*broken_option.py, line 2",
    ),
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_class_that_cannot_be_made_is_a_missing_engine(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`check`, a reload and the management API name it; the server starts without it."""
    source, reason = BROKEN[mistake]
    (tmp_path / f"broken_{mistake}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EngineMissing, match=reason) as raised:
        registry.load("stt", f"broken_{mistake}:Ears", {})
    assert "secret" not in str(raised.value)
