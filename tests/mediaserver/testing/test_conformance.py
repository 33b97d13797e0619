"""Engines of one's own: named by their class, and tried by the suites that their authors run."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from mediaserver.engine_pool.pool import Engines
from mediaserver.errors import SettingsError
from mediaserver.settings import Settings, load
from mediaserver.wiring import agent_choice, engine_problems
from pipeline import registry
from pipeline.agent import AgentContext
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.endpointing.policy import TurnEvidence
from pipeline.errors import EngineMissing
from pipeline.session.session import Session
from tests.support.paths import ROOT
from tests.support.speech.conversation import FakeLeg, FakeStt, voice

OWN = "tests.support.speech.own_engines"


def suite(kind: str, engine: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts="]
    return subprocess.run(
        [*command, "--pyargs", f"mediaserver.testing.{kind}", "--engine", engine, *more],
        cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        ("stt", f"{OWN}:Ears"),
        ("tts", f"{OWN}:Hum"),
        pytest.param("agent", f"{OWN}:Barista", marks=pytest.mark.nightly("ci")),
        pytest.param("scorer", f"{OWN}:Patient", marks=pytest.mark.nightly("ci")),
    ],
)
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


@pytest.mark.parametrize(
    ("kind", "engine", "failures"),
    [
        ("agent", "Muddled", {"test_two_calls_do_not_mix", "test_every_event_is_taken"}),
        (
            "scorer",
            "Rash",
            {"test_nothing_makes_it_raise", "test_the_same_evidence_has_the_same_probability"},
        ),
    ],
)
def test_an_agent_and_a_scorer_that_do_not_are_told_what(kind: str, engine: str, failures: set[str]) -> None:
    run = suite(kind, f"{OWN}:{engine}")
    assert run.returncode == 1, run.stdout
    assert [name for name in failures if f"::{name}" not in run.stdout] == []


SCRIPT = {
    "start": "hello",
    "step": [
        {"id": "hello", "say": "Hello. Shall I?", "expect": {"kinds": ["yes_no"]}, "next": "bye"},
        {"id": "bye", "say": "Goodbye.", "action": "hang_up"},
    ],
}


@pytest.mark.nightly("ci")
@pytest.mark.parametrize(
    ("kind", "engine", "more"),
    [
        ("stt", "pocketsphinx", ()),
        ("tts", "espeak-ng", ()),
        ("agent", "script", ("--engine-options", json.dumps(SCRIPT))),
        ("scorer", "built-in", ()),
    ],
)
def test_the_engines_that_come_with_the_server_pass(kind: str, engine: str, more: tuple[str, ...]) -> None:
    run = suite(kind, engine, *more)
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
    """What `check` says of a site whose agent hears with `engine`; `more`: lines after it."""
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


def test_a_class_is_a_scorer_and_check_knows_whether_it_can_be_made(tmp_path: Path) -> None:
    def said(scorer: str) -> str:
        return checked(tmp_path, "pocketsphinx", f'[agent.session]\nturn_model = "{scorer}"')

    assert said(f"{OWN}:Patient") == ""
    assert "session.turn_model: engine 'not_there:Scorer' cannot be imported" in said("not_there:Scorer")
    assert said("/no/such/file.onnx") == "", "doctor's matter"
    assert said("built-in") == ""
    assert "is no scorer engine: it has no p_eot()" in said(f"{OWN}:Ears")


def test_what_is_no_engine_is_named_by_check(tmp_path: Path) -> None:
    """A class of another kind would fail in every call."""
    for kind, lacks in (("stt", "listen"), ("tts", "speak"), ("agent", "join"), ("scorer", "p_eot")):
        with pytest.raises(EngineMissing, match=rf"is no {kind} engine: it has no {lacks}\(\)"):
            registry.load(kind, "builtins:dict", {})


async def test_a_scorer_that_blocks_holds_up_neither_turns_nor_other_threads() -> None:
    released = threading.Event()

    class Blocked:
        """Answers once it is released."""

        def p_eot(self, evidence: TurnEvidence) -> float:
            released.wait(30)
            return 0.5

    detector = EndOfTurnDetector(Blocked(), deadline_s=0.01)
    pause = TurnEvidence(audio=np.ones(1600, np.int16), rate_hz=16000, silence_ms=250)
    try:
        for _ in range(50):
            assert 0.0 <= await detector.p_eot(pause) <= 1.0
        assert detector.late == 50
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 10) == "free"
    finally:
        released.set()


ALL_OWN = f"""
[[company]]
id = "acme"
[[agent]]
id = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"
company = "acme"
[agent.stt]
engine = "{OWN}:Ears"
[agent.tts]
engine = "{OWN}:Hum"
[agent.own]
engine = "{OWN}:Barista"
drinks = ["cocoa"]
[agent.session]
turn_model = "{OWN}:Patient"
"""


def all_own(tmp_path: Path, text: str = ALL_OWN) -> Settings:
    path = tmp_path / "site.toml"
    path.write_text(text)
    return load(path, checks=[engine_problems], environment={})


async def test_a_call_may_have_nothing_but_engines_of_one_s_own(tmp_path: Path) -> None:
    (agent,) = all_own(tmp_path).agents
    engines = Engines([agent_choice(agent)])
    await engines.start()
    assert engines.missing() == []
    made = engines.agent_engines(agent.id)
    pause = TurnEvidence(audio=np.ones(1600, np.int16), rate_hz=16000, silence_ms=250)
    assert made.detector is not None
    assert await made.detector.p_eot(pause) == 0.5
    conversation = made.agent.join(AgentContext("call", "en", "", {}))
    session = Session(
        leg=FakeLeg([(1.5, voice(0.5))]), agent=conversation, stt=FakeStt("a cocoa please"), tts=made.tts,
        settings=made.session, detector=made.detector, call_id="call",
    )  # fmt: skip
    async with asyncio.timeout(30):
        result = await session.run()
    assert [entry.text for entry in result.transcript] == [
        "cocoa?", "a cocoa please", "One cocoa, coming up. Goodbye!",
    ]  # fmt: skip
    assert conversation.report().answers == {"drink": "cocoa"}
    await engines.close()


@pytest.mark.parametrize(
    ("written", "instead", "problem"),
    [
        ('drinks = ["cocoa"]', "drnks = []", "own.drnks: unknown key; known are drinks"),
        (f'"{OWN}:Barista"', '"nowhere:Barista"', "own.engine: engine 'nowhere:Barista' cannot be imported"),
        ("[agent.session]", "[agent.script]\n[agent.session]", "own: an agent of one's own has neither"),
    ],
)
def test_mistakes_in_an_agent_of_one_s_own_are_named(
    tmp_path: Path, written: str, instead: str, problem: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(problem)):
        all_own(tmp_path, ALL_OWN.replace(written, instead))


@pytest.mark.parametrize("name", [f"{OWN}:Nobody", "no.such.module:Ears"])
def test_a_class_that_is_not_there_is_missing(name: str) -> None:
    with pytest.raises(EngineMissing, match="cannot be imported"):
        registry.load("stt", name, {})


@pytest.mark.parametrize("name", ["a:b:c", ":Ears", "ears:", "my-package:Ears", "os.path:join()"])
def test_what_is_no_name_of_a_class_is_an_unknown_engine(name: str) -> None:
    with pytest.raises(EngineMissing, match="no stt engine is called"):
        registry.load("stt", name, {})
