"""Streaming recognisers against servers that speak as the services' documentation says: one socket a call,
words while somebody speaks, and what happens when the socket breaks."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mediaserver.settings.presets import with_preset
from pipeline import registry
from pipeline.agent import HangUp, Say
from pipeline.audio import Pcm
from pipeline.engines.guard import Guard
from pipeline.errors import EngineError, SettingsRefused
from pipeline.net.egress import EgressPolicy, egress_policy
from pipeline.net.socket_service import at, fits
from pipeline.result import EndReason
from pipeline.session.session import Session
from pipeline.speech import Listening, PerCall, SpeechToText
from pipeline.stt.fallback import FallbackRecognizer, GuardedRecognizer, of_call
from pipeline.stt.streaming.service import ServiceSettings, read
from pipeline.transcript import Role
from tests.support.http.models import Recognizer
from tests.support.paths import ROOT
from tests.support.speech.conversation import FakeAgent, FakeLeg, FakeTts, texts, voice
from tests.support.speech.streaming_server import VENDORS, WORDS, StreamingServer, streaming_server
from tests.support.waiting import until

pytestmark = pytest.mark.virtual_clock

KEYS = {"api_key": "k-1", "resource": "acme", "deployment": "gpt", "model": "m"}
TIMED = {"deepgram", "assemblyai", "elevenlabs", "speechmatics", "gladia"}
SPEAKS = {"deepgram", "assemblyai", "elevenlabs", "speechmatics", "soniox", "gladia"}


pytestmark = pytest.mark.usefixtures("at_home")


def table(preset: str, server: StreamingServer, **more: Any) -> dict[str, Any]:
    info = cast(Any, SimpleNamespace(context={}))
    needed = {"preset": preset, **KEYS}
    filled: dict[str, Any] = with_preset("stt", needed, info)
    for name in KEYS:  # what a preset has no place for
        if name != "api_key" or preset not in ("speechmatics", "openai-realtime"):
            filled.pop(name, None)
    address = {"session_url": server.url.replace("ws", "http", 1)} if "session_url" in filled else {}
    return filled | {"url": server.url, "finalise_s": 2.0, "deadline_s": 5.0} | address | more


@asynccontextmanager
async def in_a_call(
    preset: str = "deepgram", **more: Any
) -> AsyncIterator[tuple[StreamingServer, SpeechToText]]:
    async with streaming_server(VENDORS[preset]) as server:
        engine = registry.load("stt", "websocket", table(preset, server, **more))
        assert isinstance(engine, PerCall)
        ears = engine.for_call("call-1", language="en-GB")
        try:
            yield server, ears
        finally:
            await ears.close()
            await cast(Any, engine).close()


async def speak(listening: Listening, sound: Pcm, *, rate_hz: int = 8000) -> None:
    step = rate_hz // 50
    for start in range(0, len(sound), step):
        listening.push(sound[start : start + step])
        await asyncio.sleep(0)


async def spoken_to(ears: SpeechToText, sound: Pcm, language: str = "en") -> Listening:
    """An utterance of a telephone's `sound`."""
    listening = ears.listen(rate_hz=8000, language=language, expected=None)
    await speak(listening, sound)
    return listening


def words_in(text: str) -> int:
    """How many of the first words of `WORDS` the text is."""
    said = text.split()
    assert said == WORDS[: len(said)]
    return len(said)


@pytest.mark.parametrize("preset", VENDORS)
async def test_each_service_is_understood(preset: str) -> None:
    async with in_a_call(preset) as (server, ears):
        for _ in range(2):  # utterances of one call, on one socket
            listening = await spoken_to(ears, voice(0.6), "en-GB")
            if preset in SPEAKS:
                await until(lambda heard=listening: words_in(heard.partial()) >= 3)  # type: ignore[misc]
            await speak(listening, voice(0.3))
            heard = await listening.result()
            assert words_in(heard.text) in (8, 9)
            assert heard.confidence >= 0.5
            assert await listening.result() == heard
            if preset in TIMED:
                times = [(word.start_ms, word.end_ms) for word in heard.words]
                assert len(times) == len(heard.text.split())
                assert -50 <= times[0][0] <= 150
                assert times[-1][1] <= 1000
            listening.close()
        assert len(server.sockets) == 1
        first = server.requests[0]
        credentials = f"{dict(first.headers)} {first.query_string} {server.sockets[0][0]}"
        assert preset == "vllm-realtime" or "k-1" in credentials
        assert "{" not in first.query_string + str(server.said(0)).replace("{'", "")
    await until(lambda: server.open == 0)


async def test_an_utterance_goes_on_after_a_pause() -> None:
    async with in_a_call() as (_, ears):
        listening = await spoken_to(ears, voice(0.3))
        first = (await listening.result()).text
        await speak(listening, voice(0.3))
        assert len((await listening.result()).text.split()) > len(first.split())


async def test_words_of_an_utterance_that_was_dropped_are_not_of_the_next() -> None:
    async with in_a_call() as (_, ears):
        dropped = await spoken_to(ears, voice(1.0))
        dropped.close()
        listening = await spoken_to(ears, voice(0.35))
        assert words_in((await listening.result()).text) in (3, 4)


async def test_a_socket_that_breaks_is_opened_again_and_hears_the_utterance_from_its_first_sample() -> None:
    async with in_a_call() as (server, ears):
        await until(lambda: server.open == 1)
        await ears.close()
        server.cut_after_ms = [300.0]
        listening = await spoken_to(ears, voice(0.9))
        heard = await listening.result()
        assert words_in(heard.text) in (8, 9)
        assert len(server.sockets) == 3


async def test_a_socket_that_keeps_breaking_is_a_failure() -> None:
    async with in_a_call() as (server, ears):
        await until(lambda: server.open == 1)
        await ears.close()
        server.cut_after_ms = [100.0] * 5
        listening = await spoken_to(ears, voice(0.9))
        with pytest.raises(EngineError):
            await listening.result()


async def test_a_service_that_says_nothing_is_late() -> None:
    async with in_a_call(timeout_s=0.3) as (server, ears):
        server.mute = True
        listening = await spoken_to(ears, voice(0.5))
        with pytest.raises(EngineError, match="in time"):
            await listening.result()


async def test_the_next_recogniser_hears_what_a_refusing_service_did_not() -> None:
    faults: list[str] = []
    async with streaming_server(VENDORS["deepgram"]) as server:
        server.refuses = 100
        engine = registry.load("stt", "websocket", table("deepgram", server))
        recognizers = [
            GuardedRecognizer(engine, Guard("stt", "cloud", deadline_s=2.0)),
            GuardedRecognizer(Recognizer("yes"), Guard("stt", "local")),
        ]
        ears, own = of_call(FallbackRecognizer(recognizers), faults.append, call_id="c", language="en")
        listening = await spoken_to(ears, voice(0.5))
        assert (await listening.result()).text == "yes"
        assert "500" in faults[0]
        for each in own:
            await each.close()
        await engine.close()


async def test_a_fallback_that_is_not_needed_has_no_socket() -> None:
    async with streaming_server(VENDORS["deepgram"]) as first, streaming_server(VENDORS["soniox"]) as second:
        engines = [
            registry.load("stt", "websocket", table(preset, server))
            for preset, server in (("deepgram", first), ("soniox", second))
        ]
        recognizers = [GuardedRecognizer(engine, Guard("stt", "cloud")) for engine in engines]
        _, own = of_call(FallbackRecognizer(recognizers), lambda reason: None, call_id="c", language="en")
        await until(lambda: first.open == 1)
        assert second.requests == []
        for each in (*own, *engines):
            await each.close()


async def test_a_socket_is_kept_alive_between_utterances() -> None:
    async with in_a_call(keep_alive_s=0.1) as (server, _):
        await until(lambda: len(server.sockets) == 1 and server.said(0).count({"type": "KeepAlive"}) >= 3)


async def test_another_language_is_another_socket() -> None:
    async with in_a_call() as (server, ears):
        for language in ("en", "ar"):
            listening = await spoken_to(ears, voice(0.8), language)
            heard = await listening.result()
            assert 500 < heard.words[-1].end_ms <= 900, "times count from the utterance's first sample"
            listening.close()
        assert [request.query["language"] for request in server.requests] == ["en", "ar"]


async def test_no_socket_leads_where_the_server_may_not_go() -> None:
    async with streaming_server(VENDORS["deepgram"]) as server:
        with egress_policy(EgressPolicy()):
            engine = registry.load("stt", "websocket", table("deepgram", server))
        listening = await spoken_to(engine, voice(0.3))
        with pytest.raises(EngineError, match="not an address"):
            await listening.result()
        listening.close()
        assert "not an address" in await engine.check()
        assert server.requests == []
        await engine.close()


async def test_a_socket_outside_of_a_call_is_closed_with_its_utterance() -> None:
    async with streaming_server(VENDORS["deepgram"]) as server:
        engine = registry.load("stt", "websocket", table("deepgram", server))
        assert await engine.check() == ""
        listening = engine.listen(rate_hz=16000, language="en", expected=None)
        await speak(listening, np.tile(voice(0.4), 2), rate_hz=16000)
        assert (await listening.result()).text
        listening.close()
        await until(lambda: server.open == 0)
        await engine.close()


async def test_a_whole_conversation_has_one_socket_and_partial_words() -> None:
    async with streaming_server(VENDORS["deepgram"]) as server:
        engine = registry.load("stt", "websocket", table("deepgram", server))
        leg = FakeLeg([(1.0, voice(0.5)), (3.5, voice(0.5))])
        agent = FakeAgent([Say("hello")], [Say("i see")], [Say("goodbye"), HangUp()])
        session = Session(leg=leg, agent=agent, stt=engine, tts=FakeTts(), call_id="call-1")
        result = await session.run()
        said = texts(result, Role.CALLER)
        assert (result.reason, len(said), result.faults) == (EndReason.AGENT, 2, ())
        assert len(server.requests) == 1
        await until(lambda: server.open == 0)
        await engine.close()


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"url": "https://a.example", "final": {}}, "url"),
        ({"url": "wss://a.example"}, "final"),
        ({"url": "wss://a.example", "final": {"wen": {}}}, "final.wen"),
        ({"url": "wss://a.example", "final": {}, "other": 1}, "other"),
    ],
)
def test_mistakes_in_the_table_are_named(options: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingsRefused) as refused:
        registry.load("stt", "websocket", options)
    assert key in [problem[0] for problem in refused.value.problems]


def test_paths_lead_through_tables_and_lists() -> None:
    message = {"a": [{"b": 1}, {"b": 2}], "c": None}
    assert at(message, "a.1.b") == 2
    assert at(message, "a.2.b") is at(message, "a.b") is at(message, "c.d") is None
    assert fits(message, {"a.*.b": [2, 3]})
    assert not fits(message, {"a.*.b": 4, "a.0.b": 1})


@pytest.mark.parametrize(
    "message", [{}, {"type": "Results"}, {"type": "Results", "is_final": True, "channel": 1}]
)
def test_a_malformed_message_says_nothing(message: dict[str, Any]) -> None:
    preset = tomllib.loads((ROOT / "config" / "presets" / "deepgram.toml").read_text())["stt"]
    own = {key: value for key, value in preset.items() if key not in ("engine", "needs", "usual")}
    service = ServiceSettings.model_validate(own)
    said = read(service, message)
    assert not said.final
    assert not said.words
