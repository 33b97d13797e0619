"""Reference counts free a call: without a garbage collector nothing of one that is over stays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp.test_utils import TestClient

from mediaserver.calls.detail_record import CallDetailRecord
from mediaserver.calls.live_conversation import LiveConversation
from mediaserver.calls.phone_call import PhoneCall
from mediaserver.rooms import registry
from mediaserver.rooms.captions import RoomCaptions
from mediaserver.rooms.livekit.session import SdkSession
from mediaserver.rooms.participant_leg import ParticipantLeg
from mediaserver.rooms.room import Room
from mediaserver.rooms.web_call import WebCall
from mediaserver.rooms.webrtc.peer_connection import PeerTransport
from mediaserver.rooms.whip import WhipSession
from mediaserver.server import Server
from pipeline.session.session import Session
from sip.call import Call
from sip.dialog.client_request import ClientRequest
from sip.dialog.uac import OutgoingInvite
from sip.dialog.uas import IncomingInvite
from sip.rtp.media_stream import MediaStream
from sip.transaction.timers import TIMER_RULES, Timer, TimerRule
from sip.transaction.transaction import ClientTransaction, ServerTransaction
from tests.support.hostile.garbage import freed, uncollected, unreachable
from tests.support.node.node import (
    ASKING_NUMBER,
    KEY,
    OUTBOUND,
    Site,
    asking_agent,
    bearer,
    running,
    until_final,
    write_site,
)
from tests.support.sip.carrier import Carrier, carrier
from tests.support.sip.raw_call import RawCall
from tests.support.webrtc.rooms import CALLS_KEY, bearing, invite, join, write_web_site
from tests.support.webrtc.rtc import rtc_client
from tests.support.webrtc.sdk import sdk_client

OF_A_PHONE_CALL: Final = (
    Call,
    CallDetailRecord,
    ClientTransaction,
    ClientRequest,
    IncomingInvite,
    LiveConversation,
    MediaStream,
    OutgoingInvite,
    PhoneCall,
    ServerTransaction,
    Session,
)
OF_A_WEB_CALL: Final = (
    CallDetailRecord,
    LiveConversation,
    ParticipantLeg,
    PeerTransport,
    Room,
    RoomCaptions,
    SdkSession,
    Session,
    WebCall,
    WhipSession,
)

QUESTION = "Is that you who is speaking now, and would you like to go on with this conversation?"


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept for late and repeated messages of a call that is over is kept for less than half a minute,
    and who joins a room is looked after for less than one."""
    for timer in (Timer.D, Timer.I, Timer.J, Timer.K, Timer.L, Timer.M):
        monkeypatch.setitem(TIMER_RULES, timer, TimerRule(0.3, 0.3))
    monkeypatch.setattr(registry, "CONNECT_S", 5.0)


# Telephones -------------------------------------------------------------------------------------------------


@dataclass
class Telephony:
    """A server, a client of its API, and its carrier."""

    site: Site
    client: TestClient[Any, Any]
    carrier: Carrier
    ordered: int = 0

    async def order(self) -> None:
        """A call that we place, to its end."""
        self.ordered += 1
        body = {
            "agentId": OUTBOUND,
            "phoneNumber": f"+1415555{self.ordered:04d}",
            "promptVariables": {"name": "Bo"},
        }
        async with self.client.post("/api/v1/calls/outbound", json=body, headers=bearer(KEY)) as answer:
            call_id = (await answer.json())["data"]["callTaskId"]
        await until_final(self.client, call_id)
        self.carrier.calls.clear()


Scene = Callable[[Telephony], Awaitable[None]]


async def agent_hangs_up(phones: Telephony) -> None:
    async with RawCall(phones.site.sip, "+14155550101") as call:
        await call.answered()
        call.reply(await call.asked("BYE", patience_s=20))


async def caller_hangs_up(phones: Telephony) -> None:
    async with RawCall(phones.site.sip, ASKING_NUMBER) as call:
        await call.answered()
        await call.sound()
        await call.hang_up()


async def caller_interrupts(phones: Telephony) -> None:
    async with RawCall(phones.site.sip, ASKING_NUMBER) as call:
        await call.answered()
        await call.sound()
        await call.hum(300, 2.0)
        await call.hang_up()


async def caller_cancels(phones: Telephony) -> None:
    async with RawCall(phones.site.sip, "+14155550101") as call:
        invite = call.invite()
        call.send(sibling(invite, "CANCEL"))
        refusal = await call.final("INVITE")
        assert refusal.status == 487
        call.send(sibling(invite, "ACK", tag=refusal.to.tag or ""))


async def nobody_has_the_number(phones: Telephony) -> None:
    async with RawCall(phones.site.sip, "+14155559999") as call:
        invite = call.invite()
        refusal = await call.final()
        assert refusal.status == 404
        call.send(sibling(invite, "ACK", tag=refusal.to.tag or ""))


def sibling(invite: bytes, method: str, *, tag: str = "") -> bytes:
    """The CANCEL of an INVITE, or the ACK of its refusal (RFC 3261 9.1, 17.1.1.3)."""
    lines = invite.decode().partition("\r\n\r\n")[0].replace("INVITE", method).split("\r\n")
    kept = [
        f"{line};tag={tag}" if tag and line.startswith("To:") else line
        for line in lines
        if not line.startswith("Content-")
    ]
    return "\r\n".join((*kept, "Content-Length: 0", "", "")).encode()


async def we_call(phones: Telephony) -> None:
    await phones.order()


async def leaves(call: Call) -> None:
    await call.ring()
    await call.answer()
    await asyncio.sleep(1.0)
    await call.hang_up()


async def holds(call: Call) -> None:
    await call.ring()
    await call.answer()
    await call.hold()
    await call.resume()
    await call.hang_up()


async def is_busy(call: Call) -> None:
    await call.reject(486)


@pytest.mark.parametrize(
    ("scene", "answering"),
    [
        (agent_hangs_up, leaves),
        (caller_hangs_up, leaves),
        (caller_interrupts, leaves),
        (caller_cancels, leaves),
        (nobody_has_the_number, leaves),
        (we_call, leaves),
        (we_call, holds),
        (we_call, is_busy),
    ],
)
async def test_a_phone_call_that_is_over_is_freed(
    tmp_path: Path, scene: Scene, answering: Callable[[Call], Awaitable[None]]
) -> None:
    site = write_site(tmp_path, more=asking_agent(QUESTION))
    async with AsyncExitStack() as stack:
        _, client = await stack.enter_async_context(running(site))
        phones = Telephony(site, client, await stack.enter_async_context(carrier(site, answering)))
        await scene(phones)  # what is made once
        with uncollected():
            for _ in range(2):
                await scene(phones)
            assert await freed(*OF_A_PHONE_CALL) == {}
            assert unreachable() == []


# Rooms ------------------------------------------------------------------------------------------------------


async def over_whip(server: Server, client: TestClient[Any, Any]) -> None:
    ticket = invite(server)
    async with rtc_client() as rtc:
        url = await join(client, rtc, ticket.token)
        await rtc.event("sound")
        async with client.delete(url, headers=bearing(ticket.token)) as answer:
            assert answer.status == 200
        await rtc.event("closed")
        await rtc.end()
    await until_final(client, ticket.room_name, key=CALLS_KEY)


async def over_one_connection(server: Server, client: TestClient[Any, Any]) -> None:
    await over_an_sdk(server, client, single=True)


async def over_two_connections(server: Server, client: TestClient[Any, Any]) -> None:
    await over_an_sdk(server, client, single=False)


async def over_an_sdk(server: Server, client: TestClient[Any, Any], *, single: bool) -> None:
    ticket = invite(server)
    url = f"ws://127.0.0.1:{client.port}"
    async with sdk_client(url=url, token=ticket.token, single=single) as sdk:
        await sdk.event("connected")
        await sdk.event("listened to")
        await sdk.end()
    await until_final(client, ticket.room_name, key=CALLS_KEY)


async def nobody_comes_up(server: Server, client: TestClient[Any, Any]) -> None:
    """The offer is answered, and nothing follows."""
    ticket = invite(server)
    async with rtc_client() as rtc:
        offer = (await rtc.line())["offer"]
        async with client.post("/rtc/whip", data=offer, headers=bearing(ticket.token)) as answer:
            assert answer.status == 201
            url = answer.headers["Location"]
        async with client.delete(url, headers=bearing(ticket.token)) as answer:
            assert answer.status == 200


@pytest.mark.nightly("ci")
@pytest.mark.parametrize("scene", [over_whip, over_one_connection, over_two_connections, nobody_comes_up])
async def test_a_web_call_that_is_over_is_freed(
    tmp_path: Path, scene: Callable[[Server, TestClient[Any, Any]], Awaitable[None]]
) -> None:
    async with running(write_web_site(tmp_path)) as (server, client):
        await scene(server, client)
        await asyncio.sleep(0)
        with uncollected():
            for _ in range(2):
                await scene(server, client)
            assert await freed(*OF_A_WEB_CALL) == {}
            assert unreachable() == []
