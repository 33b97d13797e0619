"""A real call whose ears and voice are an OpenAI-compatible server, in good health and in bad."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio.wav import read_channels
from pipeline.tts.espeak import Espeak
from tests.support.http.openai_server import FakeOpenAi, openai_server
from tests.support.node.node import ASKING_NUMBER, Site, asking_agent, running, until_final, write_site
from tests.support.sip.raw_call import FRAME, RawCall
from tests.support.speech.engines import flite, over_the_line

SENTENCE = "shall we send the parcel to the office or rather to your own house tomorrow morning"
ENGINES = """
[agent.stt]
engine = "openai"
base_url = "BASE"
timeout_s = 20.0
deadline_s = 20.0
[agent.tts]
engine = "openai"
base_url = "BASE"
timeout_s = 20.0
api_key = "sk-not-to-be-seen"
[agent.session]
endpoint_ms = 500
"""


@pytest.fixture
async def fake() -> AsyncIterator[FakeOpenAi]:
    async with openai_server() as server:
        yield server


@pytest.fixture
def site(tmp_path: Path, fake: FakeOpenAi) -> Site:
    made = write_site(tmp_path, more=asking_agent(SENTENCE, engines=ENGINES.replace("BASE", fake.base_url)))
    made.reach_this_machine()
    return made


@pytest.fixture
def asked_of_espeak(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the voice that comes with the server was asked to say."""
    asked: list[str] = []
    speak_ahead = Espeak.speak_ahead

    def listened(self: Espeak, text: str, *, language: str, ahead_s: float) -> Any:
        asked.append(text)
        return speak_ahead(self, text, language=language, ahead_s=ahead_s)

    monkeypatch.setattr(Espeak, "speak_ahead", listened)
    return asked


async def yes(directory: Path) -> Any:
    """Somebody says "yes please", on a telephone."""
    return over_the_line(await flite("yes please", directory, voice="rms"), 16000)


async def conversation(call: RawCall, client: Any, answer: Any) -> dict[str, Any]:
    """The caller hears the question out, answers until the agent hangs up; the record of the call."""
    await call.answered()
    bye = asyncio.create_task(call.asked("BYE", patience_s=60))
    quiet = spoken = 0
    while not bye.done():
        await call.play(np.zeros(FRAME, np.int16))
        loud = any(np.abs(frame).max() > 300 for _, frame in call.heard())
        spoken += loud
        quiet = 0 if loud else quiet + 1
        if spoken > 25 and quiet >= 60:
            quiet = spoken = 0
            await call.play(answer)
    call.reply(await bye)
    async with client.get("/api/v1/calls", headers={"Authorization": "Bearer acme-calls-key"}) as listed:
        (found,) = (await listed.json())["calls"]
    return await until_final(client, found["callTaskId"])


def check_words(record: dict[str, Any]) -> None:
    """Nobody's words are missing. On a busy machine the agent may have asked again."""
    agent = [entry["text"] for entry in record["transcript"] if entry["role"] == "agent"]
    caller = [entry["text"] for entry in record["transcript"] if entry["role"] == "caller"]
    assert (agent[0], agent[-1]) == (SENTENCE, "Goodbye.")
    assert caller[-1] == "yes please"


def tones(site: Site) -> list[int]:
    """Of each word's tone of the served voice, how many ms are in the recording of the agent."""
    (path,) = (site.data_dir / "recordings").glob("*.wav")
    channels, rate_hz = read_channels(path)
    size = rate_hz // 50
    frames = channels[1][: channels.shape[1] // size * size].reshape(-1, size).astype(float)
    spectra = np.abs(np.fft.rfft(frames * np.hanning(size), rate_hz // 10, axis=1))
    pure = spectra.max(axis=1) > 0.08 * np.abs(frames).sum(axis=1) + 20_000
    peaks_hz = spectra.argmax(axis=1) * 10
    return [int(((abs(peaks_hz - 300 - 40 * place) <= 10) & pure).sum()) * 20 for place in range(16)]


async def test_a_call_is_heard_and_answered_through_a_server(
    site: Site, fake: FakeOpenAi, asked_of_espeak: list[str], tmp_path: Path
) -> None:
    answer = await yes(tmp_path)
    async with running(site) as (_, client), RawCall(site.sip, ASKING_NUMBER) as call:
        prepared = len(fake.said)
        asked_of_espeak.clear()
        record = await conversation(call, client, answer)
        async with client.get("/metrics") as exposed:
            metrics = await exposed.text()
    check_words(record)
    assert asked_of_espeak == []
    inputs = [each["input"] for each in fake.said[prepared:]]
    assert (inputs[0], inputs[-1]) == (SENTENCE, "Goodbye.")
    assert {each.rate_hz for each in fake.heard} == {16000}
    assert f'mediaserver_engine_breaker_open{{engine="openai {fake.base_url}",kind="tts"}} 0.0' in metrics
    assert "sk-not-to-be-seen" not in json.dumps(record) + metrics


async def test_a_voice_that_dies_in_a_sentence_and_ears_that_are_dead(
    site: Site, fake: FakeOpenAi, asked_of_espeak: list[str], tmp_path: Path
) -> None:
    answer = await yes(tmp_path)
    async with running(site) as (_, client), RawCall(site.sip, ASKING_NUMBER) as call:
        asked_of_espeak.clear()
        fake.manners.dies_after = 24000 * 2 * 3  # in the tenth word
        fake.on_voice = lambda sent: setattr(fake.manners, "status", 500)
        record = await conversation(call, client, answer)
        async with client.get("/metrics") as exposed:
            metrics = await exposed.text()
    check_words(record)
    rest, *others = asked_of_espeak
    whole = [place for place, ms in enumerate(tones(site)) if ms >= 200]
    assert whole == list(range(len(whole)))
    assert 2 <= len(whole) <= 11
    assert SENTENCE.endswith(rest)
    assert len(SENTENCE.split()) - len(rest.split()) <= len(whole)  # none between the tones and espeak-ng
    assert others[-1] == "Goodbye."
    roles = [fault["role"] for fault in record["analysis"]["faults"]]
    assert set(roles) == {"stt", "tts"}
    assert f'mediaserver_engine_failures_total{{engine="openai {fake.base_url}",kind="stt"}}' in metrics
