"""RPC of the agent that are about who is heard, with LiveKit's Python SDK."""

from __future__ import annotations

import json

import pytest

from mediaserver.rooms.participant import AGENT_NAME, AGENT_STATE
from mediaserver.rooms.web_call import WebCallRequest
from tests.support.node.node import Node, node_of_module
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
