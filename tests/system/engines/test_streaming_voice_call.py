"""A real call whose voice is a streaming service: what goes over the wire, the recording and the transcript
tell the same words, up to the one in which the caller interrupts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio.wav import read_channels
from tests.support.node.node import ASKING_NUMBER, asking_agent, bearer, running, until_final, write_site
from tests.support.sip.raw_call import FRAME, RawCall
from tests.support.speech.conversation import voice
from tests.support.speech.voice_server import VENDORS, VoiceServer, voice_server
from tests.support.waiting import until

pytestmark = pytest.mark.nightly("ci")

WORDS = [
    "alpha",
    "bravo",
    "charlie",
    "delta",
    "echo",
    "foxtrot",
    "golf",
    "hotel",
    "india",
    "juliet",
    "kilo",
    "lima",
]
LONG = " ".join(WORDS * 3)
ENGINES = """
[agent.stt]
engine = "tests.support.speech.own_engines:Ears"
[agent.tts]
preset = "cartesia"
url = "URL"
api_key = "k-not-to-be-seen"
voice = "v-1"
[agent.session]
endpoint_ms = 500
"""


def told(samples: Any, server: VoiceServer) -> list[str]:
    """The words in `samples` of 8 kHz, each of which is 100 ms of its level."""
    frames = samples[: samples.size // 80 * 80].reshape(-1, 80).astype(int)
    names = {level: word for word, level in server.levels.items() if word in (*WORDS, "Goodbye.")}
    heard: list[str] = []
    last, length = "", 0
    for frame in frames:
        level = min(names, key=lambda each: abs(each - int(np.median(frame))))
        word = names[level] if np.abs(frame - level).max() < 80 else ""
        last, length = word, length + 1 if word == last else 1
        if word and length == 7:
            heard.append(word)
    return heard


async def talk(call: RawCall) -> Any:
    """The caller interrupts after 1.5 s of the agent's words; all that was heard until the agent hung up."""
    await call.answered()
    bye = asyncio.create_task(call.asked("BYE", patience_s=60))
    heard: list[Any] = []
    interrupts = False
    while not bye.done():
        await call.play(np.zeros(FRAME, np.int16))
        heard += [frame for _, frame in call.heard()]
        if not interrupts and sum(np.abs(frame.astype(int)).max() > 300 for frame in heard) > 75:
            interrupts = True
            await call.play(voice(1.0))
    call.reply(await bye)
    return np.concatenate(heard)


async def test_a_caller_hears_a_streaming_voice_and_interrupts_it(tmp_path: Path) -> None:
    async with voice_server(VENDORS["cartesia"]) as server:
        server.levels.update({word: 600 + 250 * place for place, word in enumerate((*WORDS, "Goodbye."))})
        server.word_s = 0.02
        site = write_site(tmp_path, more=asking_agent(LONG, engines=ENGINES.replace("URL", server.url)))
        site.reach_this_machine()
        async with running(site) as (_, client), RawCall(site.sip, ASKING_NUMBER) as call:
            before = len(server.sockets)
            wire = told(await talk(call), server)
            await until(lambda: server.open == 0)
            listing = client.get("/api/v1/calls", headers=bearer("acme-calls-key"))
            async with listing as listed:
                (found,) = (await listed.json())["calls"]
            record = await until_final(client, found["callTaskId"])
        assert len(server.sockets) - before == 1
    question, *_, farewell = [entry for entry in record["transcript"] if entry["role"] == "agent"]
    assert (question["interrupted"], farewell["text"]) == (True, "Goodbye.")
    assert LONG.startswith(question["text"])
    said = question["text"].split()
    pairs = enumerate(zip(wire, LONG.split(), strict=False))
    clean = next(place for place, (heard, written) in pairs if heard != written)
    assert 12 <= clean < len(LONG.split()), "interrupted within the sentence"
    assert wire.index("Goodbye.") == len(wire) - 1
    assert len(wire) - 1 - clean <= 6, "lowered words, which read as others, until it stops"
    assert 0 <= len(said) - clean <= 8
    (path,) = (site.data_dir / "recordings").glob("*.wav")
    channels, rate_hz = read_channels(path)
    assert rate_hz == 8000
    assert told(channels[1], server) == wire
    assert record["analysis"]["faults"] == []
    assert "k-not-to-be-seen" not in str(record)
