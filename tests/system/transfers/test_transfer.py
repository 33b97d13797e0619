"""A caller handed to a person: answered, busy, not allowed, hung up by either, from a phone and a browser."""

from __future__ import annotations

import asyncio
import logging
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mediaserver.admin.access import Access
from mediaserver.calls.outbound_legs import DialRefused
from mediaserver.errors import StoreUnavailable
from mediaserver.rooms.web_call import WebCallRequest
from mediaserver.server import Server
from mediaserver.store.store import Store
from pipeline.audio import Pcm
from pipeline.leg import AudioSource
from sip.call import Call
from tests.support.node.node import KEY, NUMBER, Client, bearer, place_call, running, until_final
from tests.support.sip.softphone import SoftphoneProcess
from tests.support.sip.transfers import (
    DESK,
    HANDS_ON,
    LISTENS,
    WEB_HANDS_ON,
    WEB_KEY,
    telephones,
    write_transfer_site,
)
from tests.support.speech.tones import share_at, tone, write_wav
from tests.support.waiting import until
from tests.support.webrtc.rooms import join
from tests.support.webrtc.rtc import rtc_client


class Ear(AudioSource):
    """What somebody on a phone hears, and the tone that they hum."""

    def __init__(self, hz: float) -> None:
        self.frames: list[Pcm] = []
        self.ended = asyncio.Event()
        self.digits = ""
        self._hum = tone(hz, 1.0, 8000).reshape(-1, 160)
        self._at = 0

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        self.frames.append(frame.copy())

    def digit_received(self, digit: str, now: float) -> None:
        self.digits += digit

    def leg_ended(self, reason: str, now: float) -> None:
        self.ended.set()

    def read(self) -> Pcm:
        self._at += 1
        return np.asarray(self._hum[self._at % len(self._hum)])

    def sent(self, now: float) -> None:
        pass

    def on_ready(self, wake: Callable[[], None] | None) -> None:
        if wake is not None:
            wake()

    async def hears(self, hz: float) -> None:
        """Waits until the last half second is that tone."""
        await until(lambda: len(self.frames) >= 25 and self._last_share(hz) >= 0.7)

    def _last_share(self, hz: float) -> float:
        return share_at(np.concatenate(self.frames[-25:]), 8000, hz)


def on(call: Call, hz: float) -> Ear:
    ear = Ear(hz)
    call.attach(ear, ear)
    return ear


def recorded(path: Path) -> tuple[Pcm, Pcm, int]:
    with wave.open(str(path)) as file:
        both = np.frombuffer(file.readframes(file.getnframes()), np.int16).reshape(-1, 2)
        return both[:, 0], both[:, 1], file.getframerate()


async def events_of(server: Server) -> list[str]:
    def read(tx: Any) -> list[str]:
        return [row["kind"] for row in tx.rows("SELECT kind FROM outbox ORDER BY position")]

    return await server.store.db.read(read)


async def test_keys_reach_whoever_the_caller_was_handed_to(tmp_path: Path) -> None:
    site = write_transfer_site(tmp_path)
    async with telephones(site) as people, running(site) as (_, client):
        call_id = await place_call(client, HANDS_ON)
        caller = on(await people.answered(NUMBER), 500)
        desk = on(await people.answered(DESK), 900)
        await asyncio.gather(caller.hears(900), desk.hears(500))
        await people.calls[NUMBER].send_dtmf("47#")
        await people.calls[DESK].send_dtmf("9")
        await until(lambda: (desk.digits, caller.digits) == ("47#", "9"))
        await people.calls[NUMBER].hang_up()
        await until_final(client, call_id)


async def test_a_phone_caller_and_a_person_hear_each_other_and_the_callers_hang_up_ends_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mediaserver")
    site = write_transfer_site(tmp_path)
    async with telephones(site) as people, running(site) as (server, client):
        call_id = await place_call(client, HANDS_ON)
        caller = on(await people.answered(NUMBER), 500)
        desk = on(await people.answered(DESK), 900)
        await asyncio.gather(caller.hears(900), desk.hears(500))
        await people.calls[NUMBER].hang_up()
        await asyncio.wait_for(desk.ended.wait(), 30)
        call = await until_final(client, call_id)
        kinds = await events_of(server)
        assert server.endpoint.stats.rtp_ports_used == 0
    assert (call["status"], call["endedBy"]) == ("COMPLETED", "remote")
    transfer = call["analysis"]["transfer"]
    assert (transfer["target"], transfer["outcome"], transfer["endedBy"]) == ("desk", "answered", "caller")
    assert kinds.count("call.transferred") == 1
    legs = [each for each in caplog.records if each.getMessage().startswith("leg ")]
    assert [each.getMessage() for each in legs] == ["leg placed", "leg answered", "leg ended"]
    assert {vars(each)["call_id"] for each in legs} == {call_id}
    left, right, rate = recorded(site.data_dir / "recordings" / f"{call_id}.wav")
    assert share_at(left[-rate // 2 :], rate, 500) > 0.7
    assert share_at(right[-rate // 2 :], rate, 900) > 0.7


async def test_a_busy_person_is_said_so_after_a_ring_and_nobody_is_left_in_silence(tmp_path: Path) -> None:
    site = write_transfer_site(tmp_path)
    async with telephones(site, n14155550188=486) as people, running(site) as (_, client):
        call_id = await place_call(client, HANDS_ON)
        caller = on(await people.answered(NUMBER), 500)
        call = await until_final(client, call_id)
        await asyncio.wait_for(caller.ended.wait(), 30)
    assert (call["status"], call["endedBy"]) == ("COMPLETED", "local")
    assert call["analysis"]["transfer"]["outcome"] == "busy"
    assert len(caller.frames) > 50  # "One moment." and "Nobody is there.", 40 ms a letter


async def test_a_database_that_is_away_leaves_nobody_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(self: Store, company_id: str, phone_number: str) -> bool:
        raise StoreUnavailable("closed")

    monkeypatch.setattr(Store, "may_not_call", away)
    site = write_transfer_site(tmp_path)
    async with telephones(site) as people, running(site) as (_, client):
        call_id = await place_call(client, HANDS_ON)
        caller = on(await people.answered(NUMBER), 500)
        call = await until_final(client, call_id)
        await asyncio.wait_for(caller.ended.wait(), 30)
    assert call["analysis"]["transfer"]["outcome"] == "refused"
    assert len(caller.frames) > 50  # "One moment." and "Nobody is there.", 40 ms a letter
    assert DESK not in people.calls


async def test_hanging_up_over_the_api_ends_both(tmp_path: Path) -> None:
    site = write_transfer_site(tmp_path)
    async with telephones(site) as people, running(site) as (server, client):
        call_id = await place_call(client, HANDS_ON)
        caller = on(await people.answered(NUMBER), 500)
        await people.answered(DESK)
        async with client.post(f"/api/v1/calls/{call_id}/hangup", headers=bearer(KEY)) as answer:
            assert answer.status == 200
        call = await until_final(client, call_id)
        await asyncio.wait_for(caller.ended.wait(), 30)
        await until(lambda: not server.endpoint.calls)
    assert call["endedBy"] == "local"
    assert call["analysis"]["transfer"]["endedBy"] in ("server", "caller")


async def test_a_browsers_caller_and_a_softphone_hear_each_other(tmp_path: Path) -> None:
    async with SoftphoneProcess(tmp_path / "phone", answer_after_s=1.5) as phone:
        site = write_transfer_site(tmp_path, carrier=phone.port)
        async with running(site) as (server, client):
            request = WebCallRequest(agent_id=WEB_HANDS_ON, user_ref="ann")
            ticket = server.room_registry.invite("desk", request)
            keep = tmp_path / "heard.wav"
            async with rtc_client(tone=500, keep=str(keep)) as rtc:
                await join(client, rtc, ticket.token)
                await phone.event("incoming")
                await phone.event("media", active=True)
                phone.do(
                    "play", line=0, file=str(write_wav(tmp_path / "hum.wav", tone(900, 3.0, 8000), 8000))
                )
                await asyncio.sleep(3.0)  # both hum
                phone.do("hang_up", line=0)
                await rtc.event("closed", timeout_s=30)
                await rtc.end()
            call = await until_final(client, ticket.room_name, key=WEB_KEY)
            heard, rate = phone.heard()
    assert call["analysis"]["transfer"]["endedBy"] == "callee"
    assert share_at(heard[-rate:], rate, 500) > 0.7
    with wave.open(str(keep)) as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    seconds = [sound[at : at + 24000] for at in range(0, len(sound) - 24000, 12000)]
    assert max(share_at(each, 48000, 900) for each in seconds) > 0.7
    assert max(share_at(each, 48000, 425) for each in seconds) > 0.5  # it rang meanwhile


async def test_who_may_be_called_is_the_configurations_and_the_companys_to_say(tmp_path: Path) -> None:
    site = write_transfer_site(tmp_path)
    async with running(site) as (server, _):
        lines = server.room_registry.outbound_legs
        assert lines is not None
        assert lines.target(HANDS_ON, "desk") == DESK
        assert lines.target(HANDS_ON, DESK) == DESK
        assert lines.target(HANDS_ON, "room:any") == "room:any"
        for wanted in ("+14155550199", "any", "", "boss"):
            with pytest.raises(DialRefused, match="transfer_targets"):
                lines.target(HANDS_ON, wanted)
        assert (await lines.route(HANDS_ON, DESK)).lines[0].caller_id == "+14155550100"
        with pytest.raises(DialRefused, match="outside the destinations"):
            await lines.route(HANDS_ON, lines.target(HANDS_ON, "far"))
        with pytest.raises(DialRefused, match="Invalid"):
            await lines.route(LISTENS, "nonsense")
        await server.store.add_do_not_call("acme", [DESK])
        with pytest.raises(DialRefused, match="do-not-call"):
            await lines.route(HANDS_ON, DESK)


# A telephone called into a room -----------------------------------------------------------------------------


class Desk:
    """The API of one room."""

    def __init__(self, client: Client, room: str) -> None:
        self._client = client
        self._url = f"/api/v1/rooms/{room}"

    async def ask(self, method: str, path: str, key: str = WEB_KEY, **body: Any) -> tuple[int, Any]:
        sent = body or None
        async with self._client.request(method, self._url + path, json=sent, headers=bearer(key)) as answer:
            return answer.status, await answer.json()

    async def kinds(self) -> dict[str, str]:
        """Everybody's kind, and of telephones how far they are."""
        _, body = await self.ask("GET", "/participants")
        return {each["kind"]: each["callStatus"] or each["state"] for each in body["participants"]}

    async def until(self, **wanted: str | None) -> None:
        async with asyncio.timeout(30):
            while {kind: (await self.kinds()).get(kind) for kind in wanted} != wanted:
                await asyncio.sleep(0.05)


async def test_a_telephone_is_called_into_a_room_and_put_out_of_it(tmp_path: Path) -> None:
    site = write_transfer_site(tmp_path)
    async with telephones(site) as people, running(site) as (server, client):
        ticket = server.room_registry.invite("desk", WebCallRequest(agent_id=LISTENS, user_ref="ann"))
        room = Desk(client, ticket.room_name)
        async with rtc_client(tone=500) as rtc:
            await join(client, rtc, ticket.token)
            await room.until(person="active")
            status, guest = await room.ask("POST", "/participants", phoneNumber=DESK, name="The desk")
            assert (status, guest["kind"], guest["name"]) == (200, "phone", "The desk")
            phone = on(await people.answered(DESK), 900)
            await phone.hears(500)
            await room.until(phone="active", person="active", agent="active")
            status, _ = await room.ask("DELETE", f"/participants/{guest['identity']}")
            assert status == 200
            await asyncio.wait_for(phone.ended.wait(), 30)
            await room.until(phone=None, person="active")
            del people.calls[DESK]
            await room.ask("POST", "/participants", phoneNumber=DESK)
            phone = on(await people.answered(DESK), 900)
            await room.until(phone="active")
            await rtc.end()
            await room.until(person=None, phone="active", agent="active")  # the room is the telephone's now
            await asyncio.sleep(1.0)  # it hums to the agent alone
            await people.calls[DESK].hang_up()
            call = await until_final(client, ticket.room_name, key=WEB_KEY)
    assert call["status"] == "COMPLETED"
    left, _, rate = recorded(site.data_dir / "recordings" / f"{ticket.room_name}.wav")
    assert share_at(left[-rate // 2 :], rate, 900) > 0.5


async def test_a_caller_is_handed_to_the_people_in_a_room(tmp_path: Path) -> None:
    site = write_transfer_site(tmp_path, target="room:{{{{room}}}}")
    async with running(site) as (server, client):
        ticket = server.room_registry.invite("desk", WebCallRequest(agent_id=LISTENS))
        variables = {"room": ticket.room_name}
        caller = server.room_registry.invite(
            "desk", WebCallRequest(agent_id=WEB_HANDS_ON, variables=variables)
        )
        heard = {name: tmp_path / f"{name}.wav" for name in ("boss", "caller")}
        async with (
            rtc_client(tone=900, keep=str(heard["boss"])) as boss,
            rtc_client(tone=500, keep=str(heard["caller"])) as web,
        ):
            await join(client, boss, ticket.token)
            await boss.event("sound")
            await join(client, web, caller.token)
            await until(
                lambda: len(server.room_registry.opened(Access("desk"), ticket.room_name).bridge.seats) >= 2
            )
            await asyncio.sleep(2.0)  # both hum
            await web.end()
            call = await until_final(client, caller.room_name, key=WEB_KEY)
            assert len(server.room_registry.opened(Access("desk"), ticket.room_name).bridge.seats) == 1
            await boss.end()
        await until_final(client, ticket.room_name, key=WEB_KEY)
    transfer = call["analysis"]["transfer"]
    assert (transfer["outcome"], transfer["endedBy"]) == ("answered", "caller")
    for name, hz in (("boss", 500), ("caller", 900)):
        with wave.open(str(heard[name])) as file:
            sound = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        pieces = [sound[at : at + 24000] for at in range(0, len(sound) - 24000, 12000)]
        assert max(share_at(each, 48000, hz) for each in pieces) > 0.7


async def test_what_may_not_be_done_to_a_room_is_refused(tmp_path: Path) -> None:
    site = write_transfer_site(tmp_path)
    async with running(site) as (server, client):
        ticket = server.room_registry.invite("desk", WebCallRequest(agent_id=LISTENS))
        room, agent = (
            Desk(client, ticket.room_name),
            server.room_registry.opened(Access("desk"), ticket.room_name).room.agent,
        )
        for key, status in ((KEY, 404), ("nobodys", 401)):
            assert (await room.ask("GET", "/participants", key))[0] == status
        assert (await Desk(client, "elsewhere").ask("GET", "/participants"))[0] == 404
        for number in ("+4930123456", "nonsense"):
            status, body = await room.ask("POST", "/participants", phoneNumber=number)
            assert status == 400
            assert "Phone number" in body["error"] or "phone number" in body["error"]
        assert (await room.ask("POST", "/participants", other=1))[0] == 400
        assert (await room.ask("DELETE", f"/participants/{agent.identity}"))[0] == 404
        assert (await room.ask("POST", "/tokens", identity=agent.identity))[0] == 400
        _, made = await room.ask("POST", "/tokens", identity="boss", canPublish=False, hidden=True)
        grant = server.room_registry.verify(made["participantToken"])
        assert (grant.identity, grant.permissions.publish, grant.permissions.hidden) == ("boss", False, True)
        assert await room.kinds() == {"agent": "active"}
