"""Services by name: presets in an agent's tables, and what a request to such a service looks like."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from mediaserver.errors import SettingsError
from mediaserver.settings import Settings, load
from mediaserver.settings.presets import preset_names
from mediaserver.wiring import agent_choice, engine_problems
from pipeline import registry
from pipeline.agent import Say, UserSaid
from pipeline.agents.llm.agent import Llm
from pipeline.engines.tables import revealed
from pipeline.net.egress import EgressPolicy, egress_policy
from tests.support.http.chat import acts_of, chunks, context
from tests.support.paths import ROOT
from tests.support.speech.conversation import voice
from tests.support.webrtc.web import served

AGENT = """
[[company]]
id = "acme"
[[agent]]
id = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"
company = "acme"
{engines}
[agent.script]
start = "hello"
step = [{{ id = "hello", say = "Hello.", action = "hang_up" }}]
"""
MODEL = '[agent.llm]\nprompt = "Be kind."\nmodel = "m"\n'
FILES = sorted((ROOT / "config" / "presets").glob("*.toml"))
VALUES = {
    "voice": "v",
    "region": "westeurope",
    "resource": "acme",
    "deployment": "gpt",
    "api_key": "k-1",
    "model": "m",
}


def written(tmp_path: Path, engines: str) -> Settings:
    path = tmp_path / "site.toml"
    path.write_text(AGENT.format(engines=engines))
    return load(path, checks=[engine_problems], environment={"KEY": "k-1"})


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.stem))
def test_every_preset_makes_an_engine_that_check_accepts(path: Path, tmp_path: Path) -> None:
    for kind, table in tomllib.loads(path.read_text()).items():
        needs = "".join(f'{name} = "{VALUES[name]}"\n' for name in table.get("needs", {}))
        engine = f'[agent.{kind}]\npreset = "{path.stem}"\n{needs}'
        if kind in ("llm", "realtime"):
            script = AGENT.split("[agent.script]")
            model = "" if "model" in table else 'model = "m"\n'
            llm = f'{engine}{model}prompt = "Be kind."'
            beside = f'{engine}{MODEL}base_url = "http://127.0.0.1:9/v1"'
            text = script[0].format(engines=llm if kind == "llm" else beside)
            (tmp_path / "site.toml").write_text(text)
            settings = load(tmp_path / "site.toml", checks=[engine_problems], environment={})
        else:
            settings = written(tmp_path, engine)
        left = str(revealed(settings.agents[0].model_dump()))
        assert not [name for name in VALUES if "{" + name + "}" in left]


def test_every_preset_is_in_the_documentation() -> None:
    text = (ROOT / "docs" / "engines.md").read_text()
    names = {name for kind in ("stt", "tts", "llm", "realtime") for name in preset_names(kind)}
    assert names == {path.stem for path in FILES}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
    assert "not tried against the service" in text


def test_what_stands_beside_a_preset_comes_before_it(tmp_path: Path) -> None:
    stt = '[agent.stt]\npreset = "groq"\napi_key = "env:KEY"\nmodel = "other"\n'
    behind = (
        'fallback = [{ preset = "azure-openai", resource = "r", deployment = "d", api_key = "env:KEY" }]\n'
    )
    choice = agent_choice(written(tmp_path, stt + behind).agents[0])
    assert choice.stt.options["model"] == "other"
    assert choice.stt.options["api_key"] == "k-1"
    azure = choice.stt_fallback[0].options
    assert azure["base_url"] == "https://r.openai.azure.com/openai/deployments/d"
    assert azure["headers"] == {"api-key": "k-1"}
    assert "api_key" not in azure


@pytest.mark.parametrize(
    ("engines", "said"),
    [
        ('[agent.stt]\npreset = "grok"', "agent[0].stt.preset: no stt preset is called 'grok'"),
        (
            '[agent.tts]\npreset = "azure-openai"\nresource = "r"\napi_key = "k"',
            "agent[0].tts.deployment: missing; preset",
        ),
        ('[agent.stt]\npreset = "groq"\napi_key = "env:NOT"', "agent[0].stt.api_key: the environment"),
        ('[agent.stt]\npreset = "groq"\napi_key = "k"\nother = 1', "agent[0].stt.other: unknown key"),
        ('[agent.realtime]\nurl = "wss://a/v1"', "agent[0].realtime: stands beside [agent.llm]"),
        ('[agent.stt]\nengine = "openai"\nbase_url = "http://a/v1"\nheaders = { Host = "b" }', "headers"),
        (
            '[agent.tts]\nengine = "openai"\nbase_url = "http://a/v1"\nextra_body = { input = 1 }',
            "extra_body",
        ),
    ],
)
def test_mistakes_are_named(engines: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        written(tmp_path, engines)
    assert said in str(refused.value)


# What is sent -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def recording_server() -> AsyncIterator[tuple[str, list[web.Request], list[Mapping[str, Any]]]]:
    requests: list[web.Request] = []
    bodies: list[Mapping[str, Any]] = []

    async def anything(request: web.Request) -> web.StreamResponse:
        requests.append(request)
        if request.content_type == "application/json":
            bodies.append(await request.json())
        else:
            bodies.append(dict(await request.post()))
        if request.path.endswith("transcriptions"):
            return web.json_response({"text": "yes"})
        if request.path.endswith("speech"):
            return web.Response(body=b"\0\1" * 4000, content_type="audio/pcm")
        events = "".join(f"data: {event}\n\n" for event in chunks(["Hello."]))
        return web.Response(text=events, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/{path:.*}", anything)
    async with served(app) as url:
        with egress_policy(EgressPolicy(["127.0.0.0/8"])):
            yield url, requests, bodies


EXTRAS = {
    "headers": {"api-key": "k-1", "authorization": "Token t"},
    "query": {"api-version": "2"},
    "extra_body": {"reasoning_effort": "low"},
    "api_key": "unused",
}


@pytest.mark.parametrize("kind", ["llm", "stt", "tts"])
async def test_headers_query_and_further_fields_are_sent(kind: str) -> None:
    async with recording_server() as (url, requests, bodies):
        options = {"base_url": f"{url}/v1", "model": "m", **EXTRAS}
        if kind == "llm":
            llm = Llm.from_settings({**options, "prompt": "Be kind."})
            assert await acts_of(llm.join(context()), UserSaid("hello", 0.9)) == [Say("Hello.")]
            await llm.close()
        else:
            engine = registry.load(kind, "openai", options)
            if kind == "stt":
                listening = engine.listen(rate_hz=8000, language="en", expected=None)
                listening.push(voice(0.5))
                assert (await listening.result()).text == "yes"
                listening.close()
            else:
                assert [chunk async for chunk in engine.speak("hello", language="en")]
            await engine.close()
    (request,), (body,) = requests, bodies
    assert request.headers.getall("Authorization") == ["Token t"]
    assert request.headers["api-key"] == "k-1"
    assert dict(request.query) == {"api-version": "2"}
    assert body["reasoning_effort"] == "low"


def test_the_values_of_headers_do_not_show() -> None:
    llm = Llm.from_settings({"base_url": "http://a.example/v1", "model": "m", "prompt": "p", **EXTRAS})
    assert "k-1" not in repr(llm) + repr(llm._plan)
