"""Engines behind engines, from the configuration to the metrics."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mediaserver.cli.doctor import engine_findings
from mediaserver.engine_pool.choice import AgentChoice, EngineChoice
from mediaserver.engine_pool.pool import Engines
from mediaserver.errors import SettingsError
from mediaserver.settings import AgentSettings, Settings, SpeechSettings, load
from mediaserver.telemetry.metrics import Metrics
from mediaserver.wiring import agent_choice, engine_problems
from pipeline.agent import CallOpened, Say
from pipeline.errors import EngineError, EngineMissing
from pipeline.net.egress import EgressPolicy
from pipeline.settings import SessionSettings
from tests.support.http.chat import FakeChat, acts_of, context, serving_chat
from tests.support.http.models import Recognizer, Voice, fake_models
from tests.support.http.openai_server import openai_server
from tests.support.node.node import SPEECH_KEY, bearer, running, write_site
from tests.support.speech.sounds import played

AGENT = {
    "id": "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11",
    "company": "acme",
    "script": {"start": "bye", "step": [{"id": "bye", "say": "Goodbye.", "action": "hang_up"}]},
}
REMOTE = {"engine": "openai", "base_url": "https://models.example/v1"}


def names(choices: tuple[EngineChoice, ...]) -> list[str]:
    return [choice.name for choice in choices]


@pytest.mark.parametrize(
    ("settings", "stt", "tts"),
    [
        ({}, ["pocketsphinx"], ["espeak-ng"]),
        ({"stt": {"engine": "pocketsphinx"}, "tts": {"engine": "espeak-ng"}}, [], []),
        ({"stt": REMOTE, "tts": REMOTE}, ["pocketsphinx"], ["espeak-ng"]),
        ({"stt": REMOTE, "tts": REMOTE, "language": "en-GB"}, ["pocketsphinx"], ["espeak-ng"]),
        ({"stt": REMOTE, "tts": REMOTE, "language": "ar"}, [], ["espeak-ng"]),
        ({"stt": {**REMOTE, "fallback": []}, "tts": {**REMOTE, "fallback": []}}, [], []),
        (
            {"stt": {**REMOTE, "fallback": ["pocketsphinx", "pocketsphinx"]}, "tts": {"engine": "kokoro"}},
            ["pocketsphinx"],
            ["espeak-ng"],
        ),
        (
            {
                "stt": {**REMOTE, "fallback": [{**REMOTE, "model": "other"}, REMOTE, "pocketsphinx"]},
                "tts": REMOTE,
                "tts_fallback": {"engine": "espeak-ng", "voice": "en-gb"},
            },
            ["openai", "pocketsphinx"],
            ["espeak-ng"],
        ),
    ],
)
def test_what_stands_behind_an_engine(settings: dict[str, Any], stt: list[str], tts: list[str]) -> None:
    choice = agent_choice(AgentSettings.model_validate(AGENT | settings))
    assert (names(choice.stt_fallback), names(choice.tts_fallback)) == (stt, tts)


ARABIC = {"script": {"start": "a", "step": [{"id": "a", "say": "Well?", "language": "ar"}]}}
BRITISH = {"script": {"start": "a", "step": [{"id": "a", "say": "Well?", "language": "en-GB"}]}}


@pytest.mark.parametrize(
    ("settings", "tts"),
    [
        ({"tts": {"engine": "auto", "fallback": []}}, []),
        ({"tts": {"engine": "auto", "fallback": []}, **BRITISH}, []),
        ({"tts": {"engine": "auto", "fallback": []}, **ARABIC}, ["espeak-ng"]),
        ({"tts": {"engine": "auto", "fallback": ["kokoro"]}, **ARABIC}, ["kokoro", "espeak-ng"]),
        ({"tts": {**REMOTE, "fallback": ["auto"]}, **ARABIC}, ["auto", "espeak-ng"]),
        ({"tts": {**REMOTE, "fallback": []}, **ARABIC}, []),
        (
            {"tts": {"engine": "auto", "fallback": [{"engine": "espeak-ng", "pitch": 40}]}, **ARABIC},
            ["espeak-ng"],
        ),
        (ARABIC, ["espeak-ng"]),
    ],
)
def test_espeak_stands_behind_a_voice_that_is_chosen_for_one_language_of_several(
    settings: dict[str, Any], tts: list[str]
) -> None:
    choice = agent_choice(AgentSettings.model_validate(AGENT | settings))
    assert names(choice.tts_fallback) == tts


def test_a_mistake_in_a_fallback_is_told_with_its_key(tmp_path: Path) -> None:
    text = """
[agent.stt]
engine = "pocketsphinx"
[[agent.stt.fallback]]
engine = "openai"
[[agent.stt.fallback]]
engine = "nobody"
[[agent.stt.fallback]]
engine = "pocketsphinx"
fallback = ["openai"]
[agent.tts]
engine = "espeak-ng"
"""
    site = write_site(tmp_path, engines=text)
    with pytest.raises(SettingsError) as refused:
        load(site.path, checks=[engine_problems])
    told = str(refused.value)
    assert "agent[0].stt.fallback[0].base_url" in told
    assert "agent[0].stt.fallback[1].engine" in told
    assert "agent[0].stt.fallback[2].fallback" in told


def choice(*, stt: str = "ears", behind: tuple[str, ...] = ()) -> AgentChoice:
    return AgentChoice(
        agent_id="agent-1",
        agent=EngineChoice("agent", "mind", {}),
        stt=EngineChoice("stt", stt, {}),
        tts=EngineChoice("tts", "voice", {}),
        stt_fallback=tuple(EngineChoice("stt", name, {}) for name in behind),
        tts_fallback=tuple(EngineChoice("tts", name, {}) for name in behind),
        session=SessionSettings(),
    )


def shelf(kind: str, name: str, options: Any) -> Any:
    if name == "absent":
        raise EngineMissing("no such thing")
    return Recognizer(answer=name) if kind in ("stt", "agent") else Voice()


async def test_a_fallback_that_is_missing_is_passed_over() -> None:
    engines = Engines([choice(behind=("absent", "spare"))], load=shelf)
    await engines.start()
    agent_engines = engines.agent_engines("agent-1")
    assert [each.guard.name for each in agent_engines.stt.recognizers] == ["ears", "spare"]
    assert len(agent_engines.fallback_tts) == 1
    assert engines.missing() == []
    await engines.close()


async def test_an_engine_that_is_missing_is_missed_whatever_stands_behind_it() -> None:
    engines = Engines([choice(stt="absent", behind=("spare",))], load=shelf)
    await engines.start()
    assert engines.missing() == ["agent agent-1: absent: no such thing"]
    await engines.close()


async def test_the_doctor_and_the_metrics_tell_of_a_server_that_is_not_there(tmp_path: Path) -> None:
    async with openai_server() as fake:
        text = f"""
[agent.stt]
engine = "openai"
base_url = "{fake.base_url}"
[agent.tts]
engine = "openai"
base_url = "{fake.base_url}"
api_key = "sk-hidden"
"""
        site = write_site(tmp_path, engines=text)
        closed, settings = load(site.path), opened(site.path)
        assert not [finding for finding in await engine_findings(settings) if not finding.ok]
        refused = [finding for finding in await engine_findings(closed) if not finding.ok]
        assert "not an address that this server connects to" in refused[0].text
        fake.manners.status = 401
        unkind = [finding for finding in await engine_findings(settings) if not finding.ok]
        assert "refuses the api_key" in unkind[0].text
        assert "sk-hidden" not in unkind[0].text

        fake.manners.status = 500
        engines, metrics = (
            Engines([agent_choice(settings.agents[0])], egress=EgressPolicy(["127.0.0.0/8"])),
            Metrics(),
        )
        metrics.watch_engines(engines.running.health)
        await engines.start()
        fake.manners.status = 503
        fake.manners.headers = {"Retry-After": "60"}
        with pytest.raises(EngineError):
            async for _ in engines.agent_engines(settings.agents[0].id).tts.speak("one", language="en"):
                pass
        exposed = metrics.exposition().decode()
        await engines.close()
    assert f'mediaserver_engine_breaker_open{{engine="openai {fake.base_url}",kind="tts"}} 1.0' in exposed
    assert f'mediaserver_engine_breaker_open{{engine="openai {fake.base_url}",kind="stt"}} 0.0' in exposed
    assert 'mediaserver_engine_requests_total{engine="espeak-ng",kind="tts"}' in exposed


ASKING = """
[agent.llm]
model = "first"
base_url = "{base_url}"
prompt = "Be brief."
[[agent.llm.fallback]]
model = "second"
base_url = "{base_url}"
"""
HANDING_OVER = """
[agent.script]
start = "talk"
[[agent.script.step]]
id = "talk"
llm = { goal = "Be kind.", collect = ["mood"] }
next = "bye"
[[agent.script.step]]
id = "bye"
say = "Goodbye."
action = "hang_up"
"""


@pytest.mark.parametrize("script", ["", HANDING_OVER])
async def test_the_metrics_tell_of_the_models_that_an_agent_asks(tmp_path: Path, script: str) -> None:
    async with serving_chat(FakeChat(["Good morning."])) as model:
        model.statuses = [503]
        about = {
            **AGENT,
            **tomllib.loads(f"[[agent]]{script}{ASKING.format(base_url=model.base_url)}")["agent"][0],
        }
        if not script:
            del about["script"]
        settings = AgentSettings.model_validate(about)
        engines, metrics = Engines([agent_choice(settings)], egress=EgressPolicy(["127.0.0.0/8"])), Metrics()
        metrics.watch_engines(engines.running.health)
        await engines.start()
        conversation = engines.agent_engines(settings.id).agent.join(context())
        assert [act.text for act in await acts_of(conversation, CallOpened()) if isinstance(act, Say)]
        exposed = metrics.exposition().decode()
        await engines.close()
    for name, errors in (("first", 1.0), ("second", 0.0)):
        labels = f'{{engine="{name} at 127.0.0.1",kind="llm"}}'
        assert f"mediaserver_engine_requests_total{labels} 1.0" in exposed
        assert f"mediaserver_engine_failures_total{labels} {errors}" in exposed
        assert f"mediaserver_engine_breaker_open{labels} 0.0" in exposed


def opened(path: Path) -> Settings:
    """The same configuration, in which this machine may be connected to."""
    path.write_text(path.read_text().replace("drain_s = 5", 'drain_s = 5\nallow_networks = ["127.0.0.0/8"]'))
    return load(path)


async def test_files_too_are_spoken_and_understood_by_what_stands_behind_a_dead_server(
    tmp_path: Path,
) -> None:
    async with openai_server() as fake:
        fake.manners.status = 500
        remote = f'engine = "openai"\nbase_url = "{fake.base_url}"\n'
        voices = f'[speech.tts]\n{remote}fallback = ["espeak-ng"]\n'
        recognizer = f'[speech.stt]\n{remote}fallback = ["test-ears"]\n'
        site = write_site(tmp_path, more=voices + recognizer)
        opened(site.path)
        with fake_models(Recognizer("good morning")):
            async with running(site) as (_, client):
                body = {"text": "good morning", "format": "wav", "chunk_size": 128}
                async with client.post(
                    "/v1/text-to-speech/generate", json=body, headers=bearer(SPEECH_KEY)
                ) as answer:
                    sound = await answer.read()
                    assert answer.status == 200
                    assert answer.headers["X-Sample-Rate"] == "24000"
                samples, rate_hz = played(sound)
                assert len(samples) > rate_hz / 3
                form = aiohttp.FormData()
                form.add_field("file", sound, filename="a.wav")
                async with client.post("/transcribe", data=form, headers=bearer(SPEECH_KEY)) as answer:
                    assert (await answer.json())["transcription"] == "good morning"


@pytest.mark.parametrize(
    ("mind", "told"),
    [
        (
            {"script": {"start": "a", "step": [{"id": "a", "action": "transfer", "target": "deks"}]}},
            "agent[0].script.step[0].target: 'deks' is none of the agent's transfer_targets",
        ),
        (
            {
                "llm": {
                    "base_url": "http://127.0.0.1:9/v1",
                    "model": "any",
                    "prompt": "x",
                    "languages": ["ar"],
                },
                "stt": {"engine": "pocketsphinx"},
            },
            "agent[0].stt.engine: pocketsphinx understands English only, the agent speaks ar",
        ),
        (
            {
                "language": "ar-SA",
                "script": {"start": "a", "step": [{"id": "a", "action": "hangup"}]},
                "stt": {"engine": "faster-whisper"},
            },
            "agent[0].stt.engine: the weights by pip understand English only, the agent speaks ar-SA",
        ),
    ],
)
def test_a_check_finds_what_a_call_would_find_too_late(mind: dict[str, Any], told: str) -> None:
    bare = {key: value for key, value in AGENT.items() if key != "script"}
    agent = AgentSettings.model_validate(bare | {"transfer_targets": {"desk": "+14155550177"}} | mind)
    problems = engine_problems(Settings.model_construct(agents=(agent,), speech=SpeechSettings()))
    assert any(f"{key}: {reason}".startswith(told) for key, reason in problems)
