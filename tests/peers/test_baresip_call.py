"""An agent that a language model leads, called on baresip: a telephone that is none of ours."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio import wav
from pipeline.audio.levels import is_audible
from tests.support.http.chat import FakeChat, serving_chat
from tests.support.http.models import Recognizer, fake_models
from tests.support.http.shop import shop
from tests.support.node.node import KEY, NUMBER, bearer, place_call, running, until_final
from tests.support.sip.baresip import baresip
from tests.support.speech.media import speech_like
from tests.system.engines.test_llm_call import AGENT_ID, said, site_of

pytestmark = pytest.mark.peer


def caller(rate_hz: int) -> Any:
    """Says something three seconds after the answer, and again five seconds later."""
    spoken, pause = speech_like(rate_hz), np.zeros(rate_hz, np.int16)
    return np.concatenate([*[pause] * 3, spoken, *[pause] * 5, spoken, *[pause] * 30])


@pytest.mark.parametrize(("codec", "rate_hz"), [("opus/48000/2", 48000), ("PCMU/8000/1", 8000)])
async def test_the_model_is_heard_and_hears(tmp_path: Path, codec: str, rate_hz: int) -> None:
    (tmp_path / "phone").mkdir()
    chat = FakeChat(
        ["It comes on monday."], ["You are welcome."], forms=['{"happy": true, "topic": "order"}']
    )
    async with shop() as systems, serving_chat(chat) as model:
        site = site_of(tmp_path, model.base_url, systems)
        phone = baresip(tmp_path / "phone", codec, caller(rate_hz), rate_hz, user=NUMBER, port=site.carrier)
        with fake_models(Recognizer("where is my order")):
            async with running(site) as (_, client):
                async with phone:
                    call_id = await place_call(client, AGENT_ID, name="Sara")
                    await said(client, call_id, "monday")
                    await said(client, call_id, "welcome")
                    await asyncio.sleep(0.5)
                report = await ended(client, call_id)
    assert report["status"] == "COMPLETED"
    assert report["analysis"]["faults"] == []
    heard = [entry["text"] for entry in report["transcript"] if entry["role"] == "caller"]
    assert heard[:2] == ["where is my order"] * 2
    assert all("where is my order" in str(each["messages"][-1]) for each in chat.requests[:2])
    (recording,) = (tmp_path / "phone").glob("*dec.wav")
    samples, their_hz = wav.read(recording)
    words_s = sum(is_audible(block) for block in np.array_split(samples, len(samples) * 10 // their_hz)) / 10
    agent_s = sum(each["endMs"] - each["startMs"] for each in report["transcript"] if each["role"] == "agent")
    assert words_s >= 0.8 * agent_s / 1000


async def ended(client: Any, call_id: str) -> dict[str, Any]:
    """The call, hung up by whoever can do it."""
    async with client.post(f"/api/v1/calls/{call_id}/hangup", headers=bearer(KEY)):
        return await until_final(client, call_id, timeout_s=20)
