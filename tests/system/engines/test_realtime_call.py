"""Real calls whose agent is a model that hears and speaks by itself, behind the OpenAI Realtime protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.audio.wav import read_channels
from tests.support.http.chat import Call as ChatCall
from tests.support.http.chat import FakeChat
from tests.support.http.realtime_call import GREETING, OPENED, Answers, scene
from tests.support.http.realtime_server import WORD_MS, Break, Call, Part, Raw, RealtimeServer
from tests.support.node.node import KEY, bearer, until_final
from tests.support.waiting import until


def words(record: dict[str, Any], role: str) -> list[str]:
    return [entry["text"] for entry in record["transcript"] if entry["role"] == role]


async def test_a_caller_talks_with_a_model_that_hears_and_speaks(tmp_path: Path) -> None:
    answers = {OPENED: GREETING, "where is my order": ["your order is late"]}
    async with scene(tmp_path, answers) as there:
        await there.quiet()
        await there.says("where is my order")
        await there.hears(lambda: "late" in there.told)
        await there.quiet()
        talk = there.talk
        record = await there.record()
        await until(lambda: there.service.open == 0)
    assert there.told == ["good", "morning", "caller", "your", "order", "is", "late"]
    assert words(record, "agent") == ["good morning caller", "your order is late"]
    assert words(record, "caller") == ["where is my order"]
    assert record["analysis"]["faults"] == []
    assert there.service.errors == []
    (request,) = there.service.requests
    assert request.headers["Authorization"] == "Bearer canary-key"
    assert request.query["model"] == "gpt-realtime"
    assert talk.session.instructions.startswith("You are kind.")
    assert talk.session.audio.input.turn_detection is None
    assert talk.session.audio.output.voice == "marin"
    assert talk.narrow
    assert {tool.name for tool in talk.session.tools} >= {"find_order", "cancel_order", "hang_up", "transfer"}
    (heard,) = talk.audio
    assert 8000 < heard.size < 16000
    assert np.abs(heard.astype(int)).max() > 3000, "the caller's own sound"
    assert there.chat.requests == []
    assert "canary-key" not in str(record)
    (path,) = (there.site.data_dir / "recordings").glob("*.wav")
    channels, _ = read_channels(path)
    assert there.service.said(channels[1]) == there.told


LONG = "alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo lima mike november oscar papa"


async def test_an_interruption_cuts_what_the_model_said_at_the_word_that_was_heard(tmp_path: Path) -> None:
    answers: Answers = {
        OPENED: GREETING,
        "tell me everything": [f"{LONG} {LONG}"],
        "stop it please now": ["very well"],
    }
    async with scene(tmp_path, answers) as there:
        await there.quiet()
        await there.says("tell me everything")
        await there.hears(lambda: "echo" in there.told)
        await there.says("stop it please now")
        await there.hears(lambda: "very" in there.told)
        await there.quiet()
        talk, told = there.talk, there.told
        record = await there.record()
    assert "very well" in words(record, "agent")
    (long,) = [each["text"] for each in record["transcript"] if each["text"].startswith("alpha")]
    assert f"{LONG} {LONG}".startswith(long)
    cut = talk.of("conversation.item.truncate")[0]
    clean = [heard == said for heard, said in zip(told[3:], LONG.split(), strict=False)].index(False)
    assert WORD_MS * (clean - 1) < cut.audio_end_ms <= WORD_MS * (clean + 4), "lowered words read as others"
    assert abs(len(long.split()) - cut.audio_end_ms // WORD_MS) <= 2
    assert talk.items[cut.item_id].cut_ms == cut.audio_end_ms
    assert there.service.errors == []
    assert record["analysis"]["faults"] == []


async def test_a_tool_is_called_and_one_that_asks_first_waits_for_a_yes(tmp_path: Path) -> None:
    answers: Answers = {
        OPENED: GREETING,
        "where is order seven": [Call("find_order", {"number": 7})],
        "find_order": ["it arrives on monday"],
        "then cancel it": ["well", Call("cancel_order")],
        "cancel_order": ["it is cancelled"],
    }
    async with scene(tmp_path, answers) as there:
        await there.quiet()
        await there.says("where is order seven")
        await there.hears(lambda: "monday" in there.told)
        await there.quiet()
        await there.says("then cancel it")
        await there.hears(lambda: "Shall i cancel the order?" in there.voice.said)
        await there.quiet(1.0)
        before = list(there.shop.asked)
        await there.says("yes")
        await there.hears(lambda: "cancelled" in there.told)
        await there.quiet()
        talk = there.talk
        record = await there.record()
    assert [(method, path) for method, path, _ in before] == [("GET", "/orders/7")]
    assert [(method, path) for method, path, _ in there.shop.asked[1:]] == [("POST", "/cancel")]
    assert there.service.errors == []
    assert record["analysis"]["faults"] == []
    assert "it is cancelled" in words(record, "agent"), there.story()
    told = talk.told()
    assert 'result: {"result": "{\\"arrives\\": \\"monday\\"}"}' in told
    question = told.index("assistant: Shall i cancel the order?")
    assert told[question - 1].startswith('result: {"status": "the caller is asked')
    assert told[question + 1] == "user: <audio 3>"
    kinds = [each.partition(":")[0] for each in told[question + 2 : question + 5]]
    assert kinds == ["call", "result", "assistant"]


async def test_a_masked_number_is_neither_heard_nor_read_by_the_service(tmp_path: Path) -> None:
    question = "What is the number of your card?"
    answers: Answers = {
        OPENED: [Call("ask_digits", {"name": "card", "question": question})],
        "[The caller gave card.]": ["thank you so much"],
        "what now": ["goodbye then"],
    }
    async with scene(tmp_path, answers) as there:
        await there.hears(lambda: question in there.voice.said)
        await there.quiet(1.0)
        await there.says("four two four two", for_s=2.0)
        await there.hears(lambda: "much" in there.told)
        await there.quiet()
        talk = there.talk
        assert talk.of("input_audio_buffer.append") == []
        await there.says("what now")
        await there.hears(lambda: "then" in there.told)
        record = await there.record()
    assert len(talk.audio) == 1, "what is said after it is heard again"
    assert "user: [The caller gave card.]" in talk.told()
    assert "4242" not in str(talk.got)
    assert "four two" not in str(talk.got)
    assert "four two" not in str(record)
    assert there.service.errors == []


@pytest.mark.parametrize("how", ["killed", "speaking", "silent", "garbage", "failed"])
async def test_the_cascade_goes_on_with_the_history_where_the_service_dies(how: str, tmp_path: Path) -> None:
    deaths: dict[str, list[Part]] = {
        "killed": [Break()],
        "speaking": ["your order", 0.2, Break()],
        "silent": [60.0],
        "garbage": [Raw("<html>"), Raw("[1, 2"), Raw('{"type": 5}'), 60.0],
        "failed": [Raw('{"type": "response.output_audio.delta", "response_id": "resp_2", "delta": "?"}')],
    }
    chat = FakeChat(["It is late.", ChatCall("hang_up")])
    answers = {OPENED: GREETING, "where is my order": deaths[how]}
    async with scene(tmp_path, answers, chat=chat) as there:
        await there.quiet()
        said_at = await there.says("where is my order")
        await there.hears(lambda: any("It is late." in said for said in there.voice.said))
        took_s = asyncio.get_running_loop().time() - said_at
        bye = asyncio.create_task(there.call.asked("BYE"))
        await there.hears(bye.done)
        there.call.reply(await bye)
        async with there.client.get("/api/v1/calls", headers=bearer(KEY)) as listed:
            (found,) = (await listed.json())["calls"]
        record = await until_final(there.client, found["callTaskId"])
        async with there.client.get("/metrics") as exposed:
            metrics = await exposed.text()
    assert took_s < 15.0
    messages = [(each["role"], each["content"]) for each in chat.requests[0]["messages"]]
    assert ("assistant", "good morning caller") in messages
    asked = [content for role, content in messages if role == "user"]
    assert any("where is my order" in content for content in asked)
    (fault,) = record["analysis"]["faults"]
    assert fault["role"] == "agent"
    assert "realtime model" in fault["message"]
    assert words(record, "agent")[-1] == "It is late."
    assert 'kind="realtime"' in metrics
    if how == "speaking":
        assert words(record, "agent")[-2].startswith("your")


@pytest.mark.parametrize("how", ["wrong key", "refused", "silent"])
async def test_a_call_without_the_service_is_led_by_the_cascade(how: str, tmp_path: Path) -> None:
    def before(service: RealtimeServer) -> None:
        if how == "wrong key":
            service.statuses = [401] * 9
        elif how == "refused":
            service.refuses = "invalid_value"
        else:
            service.mute = True

    chat = FakeChat(["Good day."])
    async with scene(tmp_path, {}, chat=chat, before=before) as there:
        await there.hears(lambda: any("Good day." in said for said in there.voice.said))
        await there.quiet()
        record = await there.record()
    assert words(record, "agent") == ["Good day."]
    (fault,) = record["analysis"]["faults"]
    wanted = {"wrong key": "401", "refused": "refused (invalid_value)", "silent": "nothing came for 1.5 s"}
    assert wanted[how] in fault["message"]
