"""`mediaserver explain`, as an operator types it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mediaserver.cli.explained import explained
from mediaserver.settings import load
from tests.support.command_line import mediaserver
from tests.support.node.node import MODEL_AGENT, MODELLED, REAL_ENGINES, Site, write_site
from tests.support.paths import ROOT

DEMO = ROOT / "config" / "demo.toml"
REMINDER = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of the demo with engines that are on every machine."""
    text = DEMO.read_text().replace('engine = "piper"', 'engine = "espeak-ng"')
    path = tmp_path_factory.mktemp("demo") / "demo.toml"
    path.write_text(text)
    return path


def explain(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return mediaserver("explain", "--config", config, *arguments)


async def reported(config: Path, codec: str | None = None) -> dict[str, Any]:
    """The same in this process, which has everything imported."""
    settings = load(config)
    agent = settings.agent(REMINDER)
    assert agent is not None
    return (await explained(settings, agent, codec)).data()


def stages(report: dict[str, Any], path: str) -> list[dict[str, Any]]:
    (found,) = [each["stages"] for each in report["paths"] if each["path"].startswith(path)]
    assert isinstance(found, list)
    return found


def rates(report: dict[str, Any], path: str) -> list[tuple[str, int]]:
    return [(each["stage"], each["rateHz"]) for each in stages(report, path)]


def figures(report: dict[str, Any]) -> dict[str, float]:
    every = [stage for path in report["paths"] for stage in path["stages"]]
    return {figure["meaning"]: figure["value"] for stage in every for figure in stage["figures"]}


def test_the_path_of_a_frame_in_order_with_its_rates(demo: Path) -> None:
    done = explain(demo, "--agent", REMINDER, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["engines"] == {
        "agent": "script",
        "realtime": None,
        "stt": ["faster-whisper", "pocketsphinx"],
        "tts": ["espeak-ng"],
    }
    assert rates(report, "in by phone") == [
        ("step.take", 8000),
        ("receive.receive", 8000),
        ("kernels.dtmf_step", 8000),
        ("hearing.notice", 8000),
        ("Heard.pass_on", 8000),
        ("Session.frames_received", 8000),
        ("Recording.caller_frames", 8000),
        ("AnswerDetector.push", 8000),
        ("AudioInput.take", 8000),
        ("Foreground.is_behind", 8000),
        ("Dialogue.heard", 0),
        ("FallbackListening.push", 8000),
        ("Turns.receive", 0),
    ]
    assert rates(report, "in by web")[:4] == [
        ("port.arrived", 48000),
        ("receive.receive", 16000),
        ("Heard.pass_on", 16000),
        ("Bridge.place", 16000),
    ]
    assert rates(report, "out by phone") == [
        ("Synthesis.say", 0),
        ("normalise.verbalize", 0),
        ("GuardedVoice.speak_ahead", 22050),
        ("Resampler.__call__", 8000),
        ("Playout.write", 8000),
        ("Outgoing.say", 8000),
        ("send.packet_due", 8000),
        ("hearing.played", 8000),
        ("Playout.catch_up", 8000),
        ("Recording.agent_frames", 8000),
    ]
    assert rates(report, "out by web")[5:] == [
        ("Outgoing.say", 16000),
        ("send.packet_due", 48000),
        ("srtp.sealed", 48000),
        ("Playout.catch_up", 16000),
        ("EchoGate.played", 16000),
        ("Recording.agent_frames", 16000),
    ]


def test_for_people_it_is_the_same(demo: Path) -> None:
    done = explain(demo, "--agent", "Appointment reminder")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert (
        lines[0]
        == f"Appointment reminder ({REMINDER}): script, hears with faster-whisper, speaks with espeak-ng"
    )
    places = [
        next(place for place, line in enumerate(lines) if text in line)
        for text in (
            "in by phone: trunk carrier, PCMU of",
            "receive.receive",
            "in by web",
            "the answer",
            "out by phone",
        )
    ]
    assert places == sorted(places)
    assert "a missing packet is waited for, at most: 40 ms (sip.rtp.media_stream.PATIENCE_MS)" in done.stdout


@pytest.fixture
def other(demo: Path, tmp_path: Path) -> Path:
    """The same with other codecs and another timing."""
    text = demo.read_text().replace("allow_from =", 'codecs = ["opus", "pcma"]\nallow_from =', 1)
    session = "[agent.session]\nendpoint_ms = 1000\nduck_ms = 300\nrecording = false\n[agent.stt]"
    path = tmp_path / "other.toml"
    path.write_text(text.replace("[agent.stt]", session, 1))
    return path


async def test_settings_change_what_is_printed(demo: Path, other: Path) -> None:
    before, after = await reported(demo), await reported(other)
    assert rates(after, "in by phone: trunk carrier, opus of")[:2] == [
        ("step.take", 48000),
        ("receive.receive", 16000),
    ]
    assert rates(await reported(other, "pcma"), "in by phone: trunk carrier, PCMA")
    assert "Recording.caller" not in [name for name, _ in rates(after, "in by phone")]
    ends, lowered = "a turn that seems over ends after", "agent lowered after"
    assert (figures(before)[ends], figures(after)[ends]) == (300, 600)
    assert (figures(before)[lowered], figures(after)[lowered]) == (240, 300)


@pytest.fixture
def led_by_a_model(demo: Path, tmp_path: Path) -> Path:
    """The same with a language model in the place of the first agent's script."""
    before, _, rest = demo.read_text().partition("[agent.script]")
    model = 'base_url = "http://127.0.0.1:9100/v1"\nmodel = "any"\nprompt = "Be kind."\ntimeout_s = 3.5'
    path = tmp_path / "model.toml"
    path.write_text(f"{before}[agent.llm]\n{model}\n[[agent]]{rest.partition('[[agent]]')[2]}")
    return path


async def test_the_deadline_of_a_language_model_is_printed(led_by_a_model: Path) -> None:
    report = await reported(led_by_a_model)
    assert report["engines"]["agent"] == "llm"
    assert figures(report)["the model's first words are waited for, at most"] == 3.5


def test_a_voice_that_is_not_here(tmp_path: Path) -> None:
    site = write_site(tmp_path, engines=REAL_ENGINES)
    kokoro = 'engine = "kokoro"\nmodel = "absent.pth"\nconfig = "absent.json"\nvoice = "absent.pt"'
    site.change('engine = "espeak-ng"', kokoro)
    done = explain(site.path, "--agent", agent_of(site))
    assert done.returncode == 1
    assert "missing: kokoro: there is no file absent.pth" in done.stdout


def agent_of(site: Site) -> str:
    return site.path.read_text().split("[[agent]]")[1].split('id = "')[1].split('"')[0]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--agent", "nobody"), "agent: no 'nobody'; there are "),
        (
            ("--agent", REMINDER, "--codec", "speex"),
            "trunk.codecs: no 'speex'; there are pcmu, pcma, g722, opus",
        ),
    ],
)
def test_what_the_file_does_not_have(demo: Path, arguments: tuple[str, ...], reason: str) -> None:
    done = explain(demo, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{demo}: {reason}")


async def test_a_model_that_hears_and_speaks_is_shown_before_what_stands_behind_it(tmp_path: Path) -> None:
    realtime = '[agent.realtime]\nurl = "wss://models.example/v1/realtime"\nmodel = "speaks"\n'
    settings = load(write_site(tmp_path, engines=REAL_ENGINES, more=MODEL_AGENT + realtime).path)
    agent = settings.agent(MODELLED)
    assert agent is not None
    report = await explained(settings, agent, None)
    assert "in place of all three, as long as it is there: speaks at models.example" in report.text()
    known = figures(report.data())
    assert known["one that speaks itself is waited for, at most"] == 1.5
    assert known["sent in pieces of"] == 60
