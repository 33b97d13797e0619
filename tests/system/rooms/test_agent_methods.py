"""The agent of a room in LiveKit's Python SDK: RPC about who is heard, and words that end where it is cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mediaserver.rooms.participant import AGENT_NAME, AGENT_STATE
from mediaserver.rooms.web_call import WebCallRequest
from tests.support.node.node import Node, node_of_module, running
from tests.support.sip.transfers import LISTENS, write_transfer_site
from tests.support.waiting import until
from tests.support.webrtc.rtc import RtcClient
from tests.support.webrtc.sdk import sdk_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

web = node_of_module(write_transfer_site)


def invited(web: Node) -> tuple[str, dict[str, str]]:
    """The name of a new room, and what ann joins it with."""
    server, client = web
    grant = server.room_registry.invite("desk", WebCallRequest(agent_id=LISTENS, user_ref="ann"))
    return grant.room_name, {"url": f"ws://127.0.0.1:{client.port}", "token": grant.token}


def seen(ann: RtcClient, name: str) -> int:
    return sum(each.get("event") == name for each in ann.events)


async def asked(ann: RtcClient, agent: str, method: str, payload: str) -> dict[str, object]:
    """What the agent answers."""
    before = seen(ann, "rpc")
    ann.tell(rpc=method, payload=payload, to=agent)
    answer = await ann.event("rpc", after=before)
    return json.loads(answer["answer"]) if "answer" in answer else {"code": answer["code"]}


async def more_words(ann: RtcClient, agent: str) -> None:
    """Waits until the agent has said something from its beginning to its end."""
    before = len(ann.events)

    def said() -> bool:
        told = [
            each for each in ann.events[before:] if each.get("event") == "segment" and each["who"] == agent
        ]
        whole = {each["id"] for each in told if not each["final"]} & {
            each["id"] for each in told if each["final"]
        }
        return bool(whole)

    await until(said, 60)


async def test_the_agent_is_muted_and_goes_on_in_writing(web: Node) -> None:
    _, join = invited(web)
    async with sdk_client(**join, tone=0) as ann:
        ((agent, told),) = (await ann.event("connected"))["others"].items()
        assert told["attributes"][AGENT_NAME] == LISTENS
        assert told["attributes"][AGENT_STATE] == "initializing"
        await ann.event("sound")
        assert await asked(ann, agent, "mute_agent", '{"muted": true}') == {"muted": True}
        await until(lambda: {"event": "muted", "by": agent} in ann.events)
        await until(lambda: seen(ann, "quiet") == seen(ann, "sound"))
        before = seen(ann, "sound")
        await more_words(ann, agent)
        assert seen(ann, "sound") == before
        assert await asked(ann, agent, "mute_agent", '{"muted": false}') == {"muted": False}
        await until(lambda: seen(ann, "sound") > before, 60)


async def test_who_pushes_to_talk_is_heard_with_the_key_only(web: Node) -> None:
    name, join = invited(web)
    async with sdk_client(**join, tone=440) as ann:
        ((agent, _),) = (await ann.event("connected"))["others"].items()
        await ann.event("listened to")
        opened = web[0].room_registry._rooms[name]
        await until(lambda: any(seat.loudness() > 0 for seat in opened.bridge.seats))
        (seat,) = opened.bridge.seats
        assert await asked(ann, agent, "push_to_talk", '{"pressed": false}') == {"pressed": False}
        seat.loudness()
        audio = opened.participant_legs[opened.room.participants["ann"].sid].audio
        packets = audio.receiver.packets
        await until(lambda: audio.receiver.packets > packets + 50)
        assert seat.loudness() == 0
        assert await asked(ann, agent, "push_to_talk", '{"pressed": true}') == {"pressed": True}
        await until(lambda: seat.loudness() > 0)
        for wrong in ("", "{}", '{"pressed": 1}', "[" * 5000):
            assert await asked(ann, agent, "push_to_talk", wrong) == {"code": 1500}


LONG = (
    "I am calling because your examination on Thursday has to be moved. The doctor is away that day, "
    "and we would like to offer you Friday afternoon instead, or another day in the following week."
)


@pytest.mark.nightly("ci")
async def test_words_end_where_the_voice_was_cut(tmp_path: Path) -> None:
    site = write_transfer_site(tmp_path)
    site.change('id = "ask"\nsay = "Yes?"', f'id = "ask"\nsay = "{LONG}"')
    async with running(site) as web:
        name, join = invited(web)
        async with sdk_client(**join, tone=0) as ann:
            ((agent, _),) = (await ann.event("connected"))["others"].items()

            def shown(*, final: bool) -> list[str]:
                told = [
                    each for each in ann.events if each.get("event") == "segment" and each["who"] == agent
                ]
                return [each["text"] for each in told if each["final"] is final]

            def streamed(text: str) -> list[str]:
                told = [each for each in ann.events if each.get("event") == "stream"]
                return [each["attributes"]["lk.transcription_final"] for each in told if each["text"] == text]

            await until(lambda: len(shown(final=False)) >= 6)
            ann.tell(text="stop please")
            await until(lambda: shown(final=True))
            cut = shown(final=True)[0]
            growing = shown(final=False)[: len(cut.split()) + 1]
            assert [text.split() for text in growing[:6]] == [LONG.split()[: end + 1] for end in range(6)]
            assert LONG.startswith(cut)
            assert 5 <= len(cut.split()) < len(LONG.split()) / 2
            await until(lambda: "true" in streamed(cut))
            call = web[0].room_registry.find(name)
            assert call is not None
            first = call.transcript[0]
            assert (first["text"], first["interrupted"]) == (cut, True)
