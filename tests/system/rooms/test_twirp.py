"""LiveKit's server SDK (PyPI's livekit-api), unmodified, administers rooms of this server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp.test_utils import TestClient
from livekit import api
from livekit.protocol import agent_dispatch, connector, egress, ingress, models, room, sip

from api.twirp import RPCS
from mediaserver.rooms.livekit.signalling import Signalling
from mediaserver.rooms.participant import MAX_ATTRIBUTES_BYTES, Permissions
from mediaserver.rooms.room import RoomObserver
from mediaserver.rooms.tokens import Grant
from mediaserver.rooms.web_call import WebCallRequest
from pipeline.audio import Pcm
from pipeline.media.bridge import Seat
from tests.support.node.node import KEY, Node, Site, bearer, node_of_module
from tests.support.paths import ROOT
from tests.support.sip.referring_carrier import notifies, referring_carrier, refuses, tells_nothing
from tests.support.sip.transfers import (
    DESK,
    LISTENS,
    WEB_HANDS_ON,
    WEB_KEY,
    telephones,
    write_transfer_site,
)
from tests.support.waiting import until
from tests.support.webrtc.sdk import sdk_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

sites: list[Site] = []


def write(directory: Path) -> Site:
    site = write_transfer_site(directory)
    sites.append(site.add('[[trunk]]\nid = "desk-carrier"', 'transfer = "auto"'))
    return sites[-1]


web = node_of_module(write)
Http = TestClient[Any, Any]


async def pair(client: Http, key: str = WEB_KEY) -> tuple[str, str]:
    """The LiveKit API key and secret of an API key."""
    async with client.get("/api/v1/livekit-key", headers=bearer(key)) as answer:
        assert answer.status == 200
        told = await answer.json()
        return told["apiKey"], told["apiSecret"]


@asynccontextmanager
async def livekit(client: Http, key: str = WEB_KEY) -> AsyncIterator[api.LiveKitAPI]:
    sdk = api.LiveKitAPI(f"http://127.0.0.1:{client.port}", *await pair(client, key))
    try:
        yield sdk
    finally:
        await sdk.aclose()


def invited(web: Node) -> tuple[str, str]:
    """The name of a new room and ann's token."""
    grant = web[0].room_registry.invite("desk", WebCallRequest(agent_id=LISTENS, user_ref="ann"))
    return grant.room_name, grant.token


async def test_the_server_sdk_administers_a_room(web: Node) -> None:
    server, client = web
    name, token = invited(web)
    me = api.RoomParticipantIdentity(room=name, identity="ann")
    url = f"ws://127.0.0.1:{client.port}"
    async with livekit(client) as sdk, sdk_client(url=url, token=token, tone=440) as ann:
        sid = (await ann.event("microphone"))["sid"]
        await until(lambda: bool(server.room_registry._rooms[name].room.participants["ann"].tracks))
        rooms = await sdk.room.list_rooms(api.ListRoomsRequest())
        assert name in [each.name for each in rooms.rooms]
        assert not (await sdk.room.list_rooms(api.ListRoomsRequest(names=["other"]))).rooms
        people = (await sdk.room.list_participants(api.ListParticipantsRequest(room=name))).participants
        kinds = {each.identity: each.kind for each in people}
        assert kinds.pop("ann") == models.ParticipantInfo.STANDARD
        assert list(kinds.values()) == [models.ParticipantInfo.AGENT]

        muted = await sdk.room.mute_published_track(
            api.MuteRoomTrackRequest(room=name, identity="ann", track_sid=sid, muted=True)
        )
        assert muted.track.muted
        told = await sdk.room.get_participant(me)
        assert [each.muted for each in told.tracks] == [True]
        await sdk.room.update_participant(
            api.UpdateParticipantRequest(room=name, identity="ann", name="Ann B", attributes={"seat": "4"})
        )
        told_ann = {"event": "attributes", "changed": {"seat": "4"}, "who": "ann"}
        await until(lambda: told_ann in ann.events)
        await sdk.room.send_data(api.SendDataRequest(room=name, data=b"from the server", topic="news"))
        assert (await ann.event("data"))["text"] == "from the server"
        changed = await sdk.room.update_room_metadata(
            api.UpdateRoomMetadataRequest(room=name, metadata="shop 7")
        )
        assert changed.metadata == "shop 7"
        await sdk.room.remove_participant(me)
        assert (await ann.event("disconnected"))["reason"] == models.PARTICIPANT_REMOVED


async def test_nobody_hears_whom_the_server_muted_until_the_owner_unmutes(
    web: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is not told, like one that does not do as it is told."""
    monkeypatch.setattr(Signalling, "muted_remotely", RoomObserver.muted_remotely)
    server, client = web
    name, token = invited(web)
    listener = server.room_registry.mint(
        Grant(room=name, identity="bob", permissions=Permissions(publish=False))
    )
    url = f"ws://127.0.0.1:{client.port}"
    async with (
        livekit(client) as sdk,
        sdk_client(url=url, token=token, tone=440) as ann,
        sdk_client(url=url, token=listener, publish=False) as bob,
    ):
        sid = (await ann.event("microphone"))["sid"]
        await bob.event("subscribed")
        opened = server.room_registry._rooms[name]
        leg = next(each for each in opened.participant_legs.values() if each.participant.identity == "ann")
        loud: list[bool] = []

        def tap(said: Sequence[tuple[Seat, Pcm]], position: int, now: float) -> None:
            loud.extend(bool(frame.any()) for seat, frame in said if seat.leg is leg)

        opened.bridge.tap = tap
        await until(lambda: loud[-25:].count(True) == 25)
        await sdk.room.mute_published_track(
            api.MuteRoomTrackRequest(room=name, identity="ann", track_sid=sid, muted=True)
        )
        packets = leg.audio.receiver.packets
        await until(lambda: loud[-25:].count(False) == 25)
        await until(lambda: leg.audio.receiver.packets > packets + 100)
        assert not any(loud[-75:])
        ann.tell(mute=True)
        ann.tell(mute=False)
        await until(lambda: loud[-25:].count(True) == 25)
        await sdk.room.delete_room(api.DeleteRoomRequest(room=name))


async def test_the_server_sdk_calls_a_telephone_into_a_room_and_ends_the_room(web: Node) -> None:
    server, client = web
    name, token = invited(web)
    url = f"ws://127.0.0.1:{client.port}"
    async with (
        telephones(sites[-1]) as people,
        livekit(client) as sdk,
        sdk_client(url=url, token=token, tone=440) as ann,
    ):
        await ann.event("microphone")
        wanted = api.CreateSIPParticipantRequest(
            sip_call_to=DESK, room_name=name, participant_identity="desk", participant_name="The desk"
        )
        phone = await sdk.sip.create_sip_participant(wanted)
        assert (phone.participant_identity, phone.room_name) == ("desk", name)
        call = await people.answered(DESK)
        with pytest.raises(api.ServerError) as twice:
            await sdk.sip.create_sip_participant(wanted)
        assert (twice.value.code, len(people.calls)) == ("invalid_argument", 1)
        await sdk.room.delete_room(api.DeleteRoomRequest(room=name))
        assert (await ann.event("disconnected"))["reason"] in (models.ROOM_DELETED, models.ROOM_CLOSED)
        async with asyncio.timeout(10):
            await call.ended()
        await until(lambda: name not in server.room_registry)


MAY_GO, MAY_NOT, SILENT = "+14155550177", "+14155550178", "+14155550179"
"""Telephones whose carrier follows a REFER, refuses it, and says nothing of what became of it."""
ELSEWHERE = "+14155550187"


async def test_the_server_sdk_transfers_a_telephone(web: Node) -> None:
    _, client = web
    name, token = invited(web)
    carriers = {MAY_GO: notifies, MAY_NOT: refuses(603), SILENT: tells_nothing}
    async with (
        referring_carrier(sites[-1].carrier, carriers) as carrier,
        livekit(client) as sdk,
        sdk_client(url=f"ws://127.0.0.1:{client.port}", token=token, tone=440) as ann,
    ):
        await ann.event("microphone")
        for number in carriers:
            wanted = api.CreateSIPParticipantRequest(
                sip_call_to=number, room_name=name, participant_identity=number
            )
            await sdk.sip.create_sip_participant(wanted)
            up = {"event": "attributes", "changed": {"sip.callStatus": "active"}, "who": number}
            await until(lambda up=up: up in ann.events)  # type: ignore[misc]

        async def transferred(number: str, to: str = f"tel:{DESK}") -> Any:
            request = api.TransferSIPParticipantRequest(
                room_name=name, participant_identity=number, transfer_to=to
            )
            return await sdk.sip.transfer_sip_participant(request)

        async def refused(number: str, to: str = DESK) -> str:
            with pytest.raises(api.ServerError) as error:
                await transferred(number, to)
            return str(error.value.code)

        assert (await transferred(MAY_GO)).status == sip.STS_TRANSFER_SUCCESSFUL
        assert carrier.call_to(MAY_GO).referred == [f"<sip:{DESK}@127.0.0.1:{sites[-1].carrier}>"]
        await until(lambda: {"event": "left", "who": MAY_GO} in ann.events)
        assert await refused(MAY_GO) == "not_found"
        assert await refused(MAY_NOT) == "invalid_argument"  # the desk was called: never a second time
        assert carrier.call_to(MAY_NOT).referred == []
        assert await refused(MAY_NOT, ELSEWHERE) == "failed_precondition"
        assert await refused(MAY_NOT, ELSEWHERE) == "failed_precondition"  # nobody was called
        assert len(carrier.call_to(MAY_NOT).referred) == 2
        assert await refused(MAY_NOT, "+4930123456") == "invalid_argument"
        assert await refused(MAY_NOT, "sip:desk@elsewhere.example") == "invalid_argument"
        waiting = asyncio.create_task(transferred(SILENT, ELSEWHERE))
        await until(lambda: bool(carrier.call_to(SILENT).referred))
        assert await refused(SILENT, "+14155550186") == "failed_precondition"
        assert await refused(MAY_NOT, ELSEWHERE) == "invalid_argument"  # it may be ringing
        assert len(carrier.call_to(SILENT).referred) == 1
        assert {"event": "left", "who": MAY_NOT} not in ann.events
        waiting.cancel()
        await sdk.room.delete_room(api.DeleteRoomRequest(room=name))


async def test_whom_the_agent_has_called_no_telephone_is_transferred_to(web: Node) -> None:
    server, client = web
    grant = server.room_registry.invite("desk", WebCallRequest(agent_id=WEB_HANDS_ON, user_ref="ann"))
    url = f"ws://127.0.0.1:{client.port}"
    async with (
        telephones(sites[-1]) as people,
        livekit(client) as sdk,
        sdk_client(url=url, token=grant.token, tone=440),
    ):
        await people.answered(DESK)  # the agent has handed Ann on
        wanted = api.CreateSIPParticipantRequest(
            sip_call_to=MAY_GO, room_name=grant.room_name, participant_identity="phone"
        )
        await sdk.sip.create_sip_participant(wanted)
        await people.answered(MAY_GO)
        for number, code in ((DESK, "invalid_argument"), (ELSEWHERE, "failed_precondition")):
            asked = api.TransferSIPParticipantRequest(
                room_name=grant.room_name, participant_identity="phone", transfer_to=f"tel:{number}"
            )
            with pytest.raises(api.ServerError) as error:
                await sdk.sip.transfer_sip_participant(asked)
            assert error.value.code == code, number
        await sdk.room.delete_room(api.DeleteRoomRequest(room=grant.room_name))


async def test_nobody_is_called_for_a_participant_that_cannot_be(web: Node) -> None:
    name, token = invited(web)
    url = f"ws://127.0.0.1:{web[1].port}"
    async with (
        telephones(sites[-1]) as people,
        livekit(web[1]) as sdk,
        sdk_client(url=url, token=token) as ann,
    ):
        await ann.event("microphone")
        for description in (
            {"participant_metadata": "x" * (MAX_ATTRIBUTES_BYTES + 1)},
            {"participant_attributes": {"note": "x" * MAX_ATTRIBUTES_BYTES}},
        ):
            with pytest.raises(api.ServerError) as refused:
                await sdk.sip.create_sip_participant(
                    api.CreateSIPParticipantRequest(sip_call_to=DESK, room_name=name, **description)
                )
            assert refused.value.code == "invalid_argument"
        assert people.calls == {}
        await sdk.sip.create_sip_participant(
            api.CreateSIPParticipantRequest(
                sip_call_to=DESK,
                room_name=name,
                participant_metadata="m",
                participant_attributes={"seat": "4"},
            )
        )
        await people.answered(DESK)
        assert list(people.calls) == [DESK]
        await sdk.room.delete_room(api.DeleteRoomRequest(room=name))


async def test_a_number_that_may_not_be_dialled_is_refused(web: Node) -> None:
    name, _ = invited(web)
    async with livekit(web[1]) as sdk:
        with pytest.raises(api.ServerError) as refused:
            await sdk.sip.create_sip_participant(
                api.CreateSIPParticipantRequest(sip_call_to="+4930123456", room_name=name)
            )
    assert refused.value.code == "invalid_argument"


async def test_another_company_learns_of_no_room(web: Node) -> None:
    name, _ = invited(web)
    async with livekit(web[1], KEY) as sdk:
        assert name not in [each.name for each in (await sdk.room.list_rooms(api.ListRoomsRequest())).rooms]
        for ask in (
            sdk.room.list_participants(api.ListParticipantsRequest(room=name)),
            sdk.room.delete_room(api.DeleteRoomRequest(room=name)),
            sdk.sip.create_sip_participant(api.CreateSIPParticipantRequest(sip_call_to=DESK, room_name=name)),
        ):
            with pytest.raises(api.ServerError) as refused:
                await ask
            assert refused.value.code == "not_found"


async def test_a_token_grants_what_it_says_and_the_servers_pair_administers_nothing(web: Node) -> None:
    _, client = web
    name, participant = invited(web)
    key, secret = await pair(client)
    mine = api.AccessToken(key, secret)
    listing = mine.with_grants(api.VideoGrants(room_admin=True, room="another")).to_jwt()
    claims = jwt.decode(listing, secret, algorithms=["HS256"], issuer=key)
    forged = jwt.encode(claims, "not the secret of this key, and long enough", algorithm="HS256")
    old = jwt.encode({**claims, "exp": 1}, secret, algorithm="HS256")
    no_text = jwt.encode({**claims, "iss": "\ud800"}, secret, algorithm="HS256")
    unsigned = jwt.encode(claims, "", algorithm="none")
    expected = {listing: 403, participant: 401, forged: 401, old: 401, unsigned: 401, no_text: 401, "": 401}
    names = {401: "unauthenticated", 403: "permission_denied"}
    for token, status in expected.items():
        code, body = await asked(client, "ListParticipants", {"room": name}, token)
        assert (code, body["code"]) == (status, names[status]), body


async def test_what_is_not_there_says_so(web: Node) -> None:
    _, client = web
    token = api.AccessToken(*await pair(client)).with_grants(api.VideoGrants(room_list=True)).to_jwt()
    code, body = await asked(client, "CreateRoom", {"name": "a"}, token)
    assert (code, body["code"]) == (501, "unimplemented")
    assert "web-calls/connect" in body["msg"]
    assert (await asked(client, "Nothing", {}, token))[1]["code"] == "bad_route"
    code, body = await asked(client, "ListRooms", {"names": 7}, token)
    assert (code, body["code"]) == (400, "invalid_argument")
    assert (await asked(client, "ListRooms", {}, token))[0] == 200


@pytest.mark.parametrize("module", [room, sip, egress, ingress, agent_dispatch, connector])
async def test_every_rpc_of_livekit_is_there_or_says_why_not(web: Node, module: Any) -> None:
    token = api.AccessToken(*await pair(web[1])).to_jwt()
    table = (ROOT / "docs" / "livekit.md").read_text().partition("## The server API")[2]
    for service in module.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            assert re.search(rf"\b{method.name}\b", table), method.name
            path = f"/twirp/{service.full_name}/{method.name}"
            async with web[1].post(path, json={}, headers=bearer(token)) as answer:
                said = await answer.json()
            there = (service.full_name, method.name) in RPCS
            assert (said["code"] == "unimplemented") is not there, method.name


async def test_people_who_are_in_no_room_get_no_data(web: Node) -> None:
    _, client = web
    name, _ = invited(web)
    async with livekit(client) as sdk:
        with pytest.raises(api.ServerError) as refused:
            await sdk.room.send_data(
                api.SendDataRequest(room=name, data=b"x", destination_identities=["nobody"])
            )
        assert refused.value.code == "not_found"
        everybody = await sdk.room.list_participants(api.ListParticipantsRequest(room=name))
        (agent,) = everybody.participants
        with pytest.raises(api.ServerError) as kept:
            await sdk.room.update_participant(
                api.UpdateParticipantRequest(room=name, identity=agent.identity, name="Eve")
            )
        assert kept.value.code == "failed_precondition"


async def test_the_pair_ends_with_its_key(web: Node) -> None:
    server, client = web
    made = await server.store.create_key("desk", ["web-calls"])
    async with livekit(client, made) as sdk:
        await sdk.room.list_rooms(api.ListRoomsRequest())
        row = await server.find_key(made)
        assert row is not None
        await server.store.revoke_key("desk", row.id)
        with pytest.raises(api.ServerError) as refused:
            await sdk.room.list_rooms(api.ListRoomsRequest())
        assert refused.value.code == "unauthenticated"


async def asked(client: Http, method: str, body: Any, token: str) -> tuple[int, dict[str, Any]]:
    path = f"/twirp/livekit.RoomService/{method}"
    async with client.post(path, json=body, headers=bearer(token)) as answer:
        return answer.status, await answer.json()
