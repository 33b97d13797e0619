"""The demo's own parts: the called person, the word count, and a script made of words that both ends know."""

from __future__ import annotations

import tomllib

import pytest

from mediaserver.demo.persona import PATIENT, Line, Persona
from mediaserver.demo.stage import Ports, demo_config, write_config
from mediaserver.demo.words import word_errors, words_of


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


def test_the_demo_configuration_moves_to_free_ports(tmp_path: object) -> None:
    ports = Ports.choose()
    assert len({ports.http, ports.sip, ports.callee, ports.webhooks}) == 4
    config = tomllib.loads(write_config(tmp_path, ports).read_text())  # type: ignore[arg-type]
    assert config["server"]["http"] == f"127.0.0.1:{ports.http}"
    assert config["sip"]["udp"] == f"127.0.0.1:{ports.sip}"
    assert str(ports.callee) in config["trunk"][0]["uri"]
    assert str(tmp_path) in config["server"]["database"]


def test_the_called_person_waits_for_words_that_the_agent_says() -> None:
    agent = tomllib.loads(demo_config().read_text())["agent"][0]
    spoken = {word for step in agent["script"]["step"] for word in words_of(step["say"])}
    spoken |= {"mary", "williams", *words_of("5550142")}
    for line in PATIENT:
        assert spoken.issuperset(line.to), line
