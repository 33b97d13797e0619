"""The first configuration: asked for, or from options; it passes `check` and overwrites nothing."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from mediaserver.__main__ import main
from mediaserver.settings import load
from tests.support.command_line import mediaserver

NAME = "Ann's {greeting} desk"
ANSWERS = ("--trunk", "sip.example.com", "--number", "+14155550100", "--agent", NAME, "--no-input")
HOSTILE = 'A "b" \\ {number} é\n\x7f# c'


def test_what_was_asked_makes_a_file_that_check_takes(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    said = "pbx.example.com\nannie\nopen sesame\n+44 20 7946 0958\nAnn\nGood morning.\n"
    asked = CliRunner().invoke(main, ["init", "--to", str(file)], input=said, catch_exceptions=False)
    assert asked.exit_code == 0, asked.output
    assert "open sesame" not in asked.output
    checked = mediaserver("check", "--config", file)
    assert (checked.returncode, checked.stderr) == (0, "")
    settings = load(file)
    (trunk,) = settings.trunks
    assert (trunk.uri, trunk.username, trunk.register_) == ("sip:pbx.example.com", "annie", True)
    assert trunk.password is not None
    assert trunk.password.get_secret_value() == "open sesame"
    assert [(each.direction, each.phone_number, each.greeting) for each in settings.agents] == [
        ("inbound", "+442079460958", "Good morning."),
        ("outbound", "+442079460958", "Good morning."),
    ]
    assert settings.companies[0].country == "GB"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "more", [(), ("--username", "annie", "--password", "pw", "--no-register"), ("--greeting", HOSTILE)]
)
def test_options_alone_make_a_file_that_check_takes(tmp_path: Path, more: tuple[str, ...]) -> None:
    file = tmp_path / "my.toml"
    done = mediaserver("init", "--to", file, *ANSWERS, *more)
    assert done.returncode == 0, done.stderr
    assert mediaserver("check", "--config", file).returncode == 0
    greeting = load(file).agents[0].greeting
    assert greeting == (HOSTILE if "--greeting" in more else f"Hello, this is {NAME}.")
    assert [path.name for path in tmp_path.iterdir()] == ["my.toml"]


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text("mine")
    done = mediaserver("init", "--to", file, *ANSWERS)
    assert (done.returncode, file.read_text()) == (1, "mine")
    assert "there is one already" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (ANSWERS[2:], "--trunk is needed"),
        ((*ANSWERS, "--number", "12"), "--number"),
        ((*ANSWERS, "--trunk", "not a host"), "trunk[0].uri"),
        ((*ANSWERS, "--username", "annie"), "--password is needed"),
    ],
)
def test_an_answer_that_cannot_be_leaves_no_file(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    done = mediaserver("init", "--to", tmp_path / "my.toml", *words)
    assert done.returncode != 0
    assert why in done.stderr
    assert list(tmp_path.iterdir()) == []
