"""What a call's metadata reaches: records, tools that name a field, and of web calls the model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sip.call import Call as PhoneCall
from tests.support.http.chat import Call, FakeChat, Part, serving_chat
from tests.support.http.models import Recognizer, fake_models
from tests.support.http.shop import shop
from tests.support.node.node import (
    FAKE_ENGINES,
    KEY,
    NUMBER,
    Site,
    bearer,
    running,
    until_final,
    write_site,
)
from tests.support.sip.carrier import carrier
from tests.support.speech.media import speech_like
from tests.support.waiting import until
from tests.support.webrtc.rooms import CALLS_KEY, join, spoken, write_web_site
from tests.support.webrtc.rtc import rtc_client

AGENT_ID = "0e1de2a0-93a8-4a55-8f6c-9f5f3f5f1c07"
AGENT = """
[[agent]]
id = "{id}"
company = "{company}"
name = "Orders"
{line}
greeting = "Hello. How can i help you?"
{engines}
[agent.llm]
base_url = "{base_url}"
model = "test"
prompt = "You help with an order. {{{{metadata.note}}}}"
[[agent.llm.tool]]
name = "look"
description = "Where the order is."
url = "{shop}/orders"
fixed = {{ order = "{{{{metadata.order}}}}", place = "{{{{metadata.place}}}}" }}
"""
METADATA = {"order": 4711, "place": "north", "note": "canary in the metadata"}


def looks(body: Mapping[str, Any]) -> Sequence[Part]:
    """A model that looks for the order and says goodbye."""
    if body["messages"][-1]["role"] == "tool":
        return ["Goodbye.", Call("hang_up")]
    return [Call("look")]


def add_agent(site: Site, company: str, line: str, *, model: str, shop: str) -> Site:
    agent = AGENT.format(
        id=AGENT_ID, company=company, line=line, engines=FAKE_ENGINES, base_url=model, shop=shop
    )
    site.reach_this_machine()
    site.path.write_text(site.path.read_text() + agent)
    return site


async def test_metadata_of_a_phone_call_reaches_a_tool_that_names_it_and_never_the_model(
    tmp_path: Path,
) -> None:
    chat = FakeChat(script=looks, forms=["no"])

    async def talk(call: PhoneCall) -> None:
        await call.answer()
        await call.play(speech_like(8000), 8000)
        await call.ended()

    async with shop() as systems, serving_chat(chat) as model:
        line = 'trunk = "carrier"\nphone_number = "+14155550100"'
        site = add_agent(write_site(tmp_path), "acme", line, model=model.base_url, shop=systems.url)
        with fake_models(Recognizer("where is my order")):
            async with carrier(site, talk), running(site) as (_, client):
                body = {"agentId": AGENT_ID, "phoneNumber": NUMBER, "metadata": METADATA}
                headers = bearer(KEY)
                async with client.post("/api/v1/calls/outbound", json=body, headers=headers) as answer:
                    assert answer.status == 200, await answer.text()
                    call = (await answer.json())["data"]
                report = await until_final(client, call["callTaskId"], timeout_s=60)
    assert [json.loads(body) for _, _, body in systems.asked] == [{"order": "4711", "place": "north"}]
    assert report["metadata"] == METADATA
    assert chat.requests
    told = json.dumps([request["messages"] for request in chat.requests])
    assert "canary" not in told
    assert "4711" not in told


async def test_metadata_of_a_web_call_reaches_the_model(tmp_path: Path) -> None:
    chat = FakeChat(script=looks, forms=["no"])
    question = spoken(tmp_path / "question.wav", "where is my order please")
    async with shop() as systems, serving_chat(chat) as model:
        site = add_agent(write_web_site(tmp_path), "web", "", model=model.base_url, shop=systems.url)
        with fake_models(Recognizer("where is my order")):
            async with running(site) as (_, client), rtc_client(wav=str(question), loop=True) as rtc:
                body = {"agentId": AGENT_ID, "metadata": METADATA}
                headers = bearer(CALLS_KEY)
                async with client.post("/api/v1/web-calls/connect", json=body, headers=headers) as answer:
                    ticket = await answer.json()
                await join(client, rtc, ticket["participantToken"])
                await until(lambda: systems.asked, 60)
    data, _, _ = chat.requests[0]["messages"][1]["content"].partition("</data>")
    assert json.loads(data.removeprefix("<data>"))["metadata"] == METADATA
    assert json.loads(systems.asked[0][2]) == {"order": "4711", "place": "north"}
