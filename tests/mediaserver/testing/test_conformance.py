"""Engines of one's own: named by their class, and tried by the suites that their authors run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mediaserver.errors import SettingsError
from mediaserver.settings import load
from mediaserver.wiring import engine_problems
from pipeline import registry
from pipeline.errors import EngineMissing
from tests.support.paths import ROOT

OWN = "tests.support.speech.own_engines"


def suite(kind: str, engine: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts="]
    return subprocess.run(
        [*command, "--pyargs", f"mediaserver.testing.{kind}", "--engine", engine, *more],
        cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "engine"), [("stt", f"{OWN}:Ears"), ("tts", f"{OWN}:Hum")])
def test_an_engine_that_does_what_it_must_passes(kind: str, engine: str) -> None:
    run = suite(kind, engine)
    assert run.returncode == 0, run.stdout
    assert "passed" in run.stdout
    assert "skipped" not in run.stdout


def test_an_engine_that_does_not_is_told_what() -> None:
    run = suite("stt", f"{OWN}:Careless")
    assert run.returncode == 1, run.stdout
    assert "text is lower case without punctuation" in run.stdout
    assert "test_silence_is_no_answer" in run.stdout


@pytest.mark.nightly("ci")
@pytest.mark.parametrize(("kind", "engine"), [("stt", "pocketsphinx"), ("tts", "espeak-ng")])
def test_the_engines_that_come_with_the_server_pass(kind: str, engine: str) -> None:
    run = suite(kind, engine)
    assert run.returncode == 0, run.stdout


SITE = """
[[company]]
id = "acme"
[[agent]]
id = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"
company = "acme"
[agent.stt]
engine = "{engine}"
{more}
[agent.script]
start = "hello"
step = [{{ id = "hello", say = "Hello.", action = "hang_up" }}]
"""


def checked(tmp_path: Path, engine: str, more: str = "") -> str:
    """What `check` says of a site whose agent hears with `engine`."""
    path = tmp_path / "site.toml"
    path.write_text(SITE.format(engine=engine, more=more))
    try:
        load(path, checks=[engine_problems], environment={})
    except SettingsError as error:
        return str(error)
    return ""


def test_a_class_is_an_engine_and_check_knows_its_options(tmp_path: Path) -> None:
    assert checked(tmp_path, f"{OWN}:Ears", 'answer = "no"') == ""
    assert "answr: unknown key; known are answer" in checked(tmp_path, f"{OWN}:Ears", 'answr = "no"')
    assert "stt.engine: engine 'not_there:Ears' cannot be imported" in checked(tmp_path, "not_there:Ears")
    assert "no engine is called 'ears'" in checked(tmp_path, "ears")
    assert registry.load("stt", f"{OWN}:Ears", {}).options.answer == "yes please"


@pytest.mark.parametrize("name", [f"{OWN}:Nobody", "no.such.module:Ears"])
def test_a_class_that_is_not_there_is_missing(name: str) -> None:
    with pytest.raises(EngineMissing, match="cannot be imported"):
        registry.load("stt", name, {})


@pytest.mark.parametrize("name", ["a:b:c", ":Ears", "ears:", "my-package:Ears", "os.path:join()"])
def test_what_is_no_name_of_a_class_is_an_unknown_engine(name: str) -> None:
    with pytest.raises(EngineMissing, match="no stt engine is called"):
        registry.load("stt", name, {})
