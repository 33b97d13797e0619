"""The spans of a call at an OpenTelemetry collector: what its time went into, and nothing of its words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import pytest_asyncio

from sip.call import Call as PhoneCall
from tests.support.http.chat import Call, FakeChat, Part, serving_chat
from tests.support.http.models import Recognizer, fake_models
from tests.support.http.otlp_collector import Collector, collector
from tests.support.http.shop import Shop, shop
from tests.support.http.webhooks import Receiver, receiver
from tests.support.node.node import NUMBER, Site, place_call, running, until_final, write_site
from tests.support.sip.carrier import carrier
from tests.support.speech.media import speech_like
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGENT_ID = "0e1de2a0-93a8-4a55-8f6c-9f5f3f5f1c01"
WORDS = "where is my parcel"
PARCEL = "parcel-seven"
AGENT = """
[[agent]]
id = "{id}"
company = "acme"
name = "Orders"
trunk = "carrier"
phone_number = "+14155550100"
greeting = "How can i help you?"
{engines}
[agent.llm]
base_url = "{model}"
model = "test"
api_key = "key"
prompt = "You help with orders."
[[agent.llm.tool]]
name = "find_order"
description = "Where the order is."
method = "GET"
url = "{shop}/orders/{{number}}"
parameters = {{ properties = {{ number = {{ type = "string" }} }}, required = ["number"] }}
[[agent.pre_call_tool]]
name = "crm"
url = "{shop}/crm"
"""

HOOK = '[[company.webhook]]\nurl = "URL"\nsecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"\n'
TRACING = '[tracing]\nendpoint = "URL"\nheaders = { Authorization = "let me in" }\n'


def clerk(body: Mapping[str, Any]) -> Sequence[Part]:
    """Looks the order up, tells of it and hangs up."""
    if body["messages"][-1]["role"] == "tool":
        return ["It comes on monday. Goodbye.", Call("hang_up")]
    return [Call("find_order", {"number": PARCEL})]


@dataclass
class Traced:
    """A call that was traced, and who was told of it."""

    collector: Collector
    shop: Shop
    hook: Receiver
    report: dict[str, Any] = field(default_factory=dict)


async def speak(call: PhoneCall) -> None:
    await call.answer()
    await asyncio.sleep(1.5)  # the greeting
    await call.play(speech_like(8000), 8000)
    await call.ended()


def site_of(directory: Any, model: str, traced: Traced) -> Site:
    agent = AGENT.format(id=AGENT_ID, model=model, shop=traced.shop.url, engines="ENGINES")
    agent = agent.replace("{", "{{").replace("}", "}}").replace("ENGINES", "{engines}")
    site = write_site(directory, more=agent).reach_this_machine()
    site.change(
        '[[company]]\nid = "other"', HOOK.replace("URL", traced.hook.url) + '[[company]]\nid = "other"'
    )
    site.path.write_text(TRACING.replace("URL", traced.collector.url) + site.path.read_text())
    return site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def traced(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Traced]:
    async with collector() as spans, shop() as systems, receiver() as hook:
        found = Traced(spans, systems, hook)
        async with serving_chat(FakeChat(script=clerk)) as model:
            site = site_of(tmp_path_factory.mktemp("traced"), model.base_url, found)
            with fake_models(Recognizer(WORDS)):
                async with carrier(site, speak), running(site) as (_, client):
                    found.report = await until_final(client, await place_call(client, AGENT_ID))
                    await until(lambda: any("call.completed" in text for _, text in hook.requests), 20)
        yield found


async def test_a_call_is_one_trace_that_its_id_names(traced: Traced) -> None:
    call_id = traced.report["callTaskId"].replace("-", "")
    assert {span.trace_id.hex() for span in traced.collector.spans} == {call_id}
    [root] = traced.collector.named("call")
    assert (root.span_id.hex(), root.parent_span_id) == (call_id[-16:], b"")
    known = {each.key: each.value.string_value for each in root.attributes}
    assert (known["call.status"], known["call.direction"]) == ("COMPLETED", "outbound")
    assert known["gen_ai.conversation.id"] == traced.report["callTaskId"]
    assert (traced.collector.keys, traced.collector.services) == ({"let me in"}, {"openline-mediaserver"})


async def test_the_parts_of_a_turn_follow_each_other_and_add_up_to_what_the_caller_waited(
    traced: Traced,
) -> None:
    [turn] = [each for each in traced.report["turns"] if each["latency"]]
    parts = [*("endpoint", "stt", "agent", "tts", "first packet")]
    spans = [span for name in parts for span in traced.collector.named(name)]
    assert [span.name for span in spans] == parts
    assert all(one.end_time_unix_nano == two.start_time_unix_nano for one, two in pairwise(spans))
    took_ms = (spans[-1].end_time_unix_nano - spans[0].start_time_unix_nano) / 1e6
    assert took_ms == pytest.approx(turn["latency"]["voiceToVoiceMs"], abs=0.1)
    [parent] = {span.parent_span_id for span in spans}
    [whole] = [span for span in traced.collector.named("turn") if span.span_id == parent]
    assert whole.start_time_unix_nano < spans[0].start_time_unix_nano
    assert whole.end_time_unix_nano > spans[-1].start_time_unix_nano


async def test_tools_and_webhooks_are_told_which_span_asks_them(traced: Traced) -> None:
    call_id = traced.report["callTaskId"].replace("-", "")
    [tool] = traced.collector.named("execute_tool find_order")
    paths = [path.partition("?")[0] for _, path, _ in traced.shop.asked]
    told = dict(zip(paths, traced.shop.traces, strict=True))
    assert told == {
        "/crm": f"00-{call_id}-{call_id[-16:]}-01",
        f"/orders/{PARCEL}": f"00-{call_id}-{tool.span_id.hex()}-01",
    }
    hooks = {headers["traceparent"] for headers, _ in traced.hook.requests}
    assert hooks == {f"00-{call_id}-{call_id[-16:]}-01"}


async def test_words_numbers_and_arguments_are_in_no_span(traced: Traced) -> None:
    sent = b"".join(span.SerializeToString() for span in traced.collector.spans).decode("latin-1")
    for secret in (WORDS, "monday", "parcel-seven", NUMBER, NUMBER[1:]):
        assert secret not in sent


async def test_the_analysis_tells_what_the_tool_was_asked_and_answered(traced: Traced) -> None:
    [call] = traced.report["analysis"]["toolCalls"]
    assert (call["tool"], call["arguments"], call["failed"]) == ("find_order", {"number": PARCEL}, False)
    assert json.loads(json.loads(call["result"])["result"]) == {"arrives": "monday"}
    [turn] = [each for each in traced.report["turns"] if each["latency"]]
    assert turn["startMs"] < call["startMs"] < turn["endMs"]
