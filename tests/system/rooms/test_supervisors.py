"""Supervisors of a phone call and of a web call: they listen, speak to all, take over and hand back."""

from __future__ import annotations

import asyncio
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mediaserver.admin.access import Access
from mediaserver.calls.live_conversation import LiveConversation
from mediaserver.rooms.supervision import GONE_S
from mediaserver.rooms.web_call import WebCallRequest
from pipeline.audio import Pcm
from pipeline.result import SessionResult
from sip.call import Call
from tests.support.http.models import fake_models
from tests.support.node.node import KEY, NUMBER, Client, bearer, place_call, running, until_final
from tests.support.sip.transfers import DESK, HANDS_ON, WEB_KEY, telephones, write_transfer_site
from tests.support.speech.tones import share_at, tone, write_wav
from tests.support.waiting import until
from tests.support.webrtc.rooms import join
from tests.support.webrtc.rtc import RtcClient, rtc_client

ASKS = "17e7e2a0-93a8-4a55-8f6c-9f5f3f5f1b07"
AGENT = """
[[agent]]
id = "17e7e2a0-93a8-4a55-8f6c-9f5f3f5f1b07"
company = "desk"
name = "Asks"
trunk = "desk-carrier"
phone_number = "+14155550100"
{engines}
[agent.script]
start = "ask"
[[agent.script.step]]
id = "ask"
say = "Are you there?"
expect = {{ kinds = ["yes_no"] }}
on = {{ yes = "ask", no = "ask" }}
silence = {{ say = "Are you there?", max = 9, next = "ask" }}
[agent.session]
reprompt_s = 3
max_reprompts = 20
[[company.key]]
key = "desk-admin-key"
scopes = ["admin"]
"""
ADMIN = "desk-admin-key"
AGENT_HZ, CALLER_HZ, BOSS_HZ = 200, 500, 900


class Caller:
    """A telephone that hums in bursts while it is told to, and keeps what it hears."""

    def __init__(self, call: Call) -> None:
        self.hums = False
        self.frames: list[Pcm] = []
        self._at = 0
        burst = np.concatenate([tone(CALLER_HZ, 0.6, 8000), np.zeros(8000, np.int16)])
        self._burst = burst.reshape(-1, 160)
        call.attach(self, self)

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        self.frames.append(frame.copy())

    def digit_received(self, digit: str, now: float) -> None: ...

    def leg_ended(self, reason: str, now: float) -> None: ...

    def read(self) -> Pcm:
        self._at += 1
        frame: Pcm = self._burst[self._at % len(self._burst)]
        return frame if self.hums else np.zeros(160, np.int16)

    def sent(self, now: float) -> None: ...

    def on_ready(self, wake: Any) -> None:
        if wake is not None:
            wake()

    async def hears(self, hz: float) -> None:
        """Waits until a tone of `hz` comes, from now on."""
        self.frames.clear()
        await until(lambda: self.heard(hz), timeout_s=20)

    def heard(self, hz: float) -> bool:
        """Whether a tenth of a second of what came was that tone."""
        frames = [frame for frame in self.frames if np.abs(frame).max() > 500]
        return sum(share_at(frame, 8000, hz) > 0.5 for frame in frames) >= 5


async def place(client: Client) -> str:
    body = {"agentId": ASKS, "phoneNumber": DESK, "promptVariables": {"name": "Bo"}}
    async with client.post("/api/v1/calls/outbound", json=body, headers=bearer(WEB_KEY)) as answer:
        assert answer.status == 200, await answer.text()
        return str((await answer.json())["data"]["callTaskId"])


async def ask(client: Client, method: str, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    """What the API answers about a call."""
    url = f"/api/v1/calls/{path}"
    async with client.request(method, url, json=body or None, headers=bearer(WEB_KEY)) as answer:
        return answer.status, await answer.json()


async def supervise(client: Client, rtc: RtcClient, call_id: str, role: str, identity: str) -> None:
    status, made = await ask(client, "post", f"{call_id}/supervisors", role=role, identity=identity)
    assert status == 201, made
    await join(client, rtc, made["participantToken"])


async def becomes(client: Client, call_id: str, identity: str, role: str) -> None:
    """Waits until a supervisor who has just joined may have that role."""
    async with asyncio.timeout(20):
        while True:
            status, told = await ask(client, "patch", f"{call_id}/supervisors/{identity}", role=role)
            if status == 200:
                return
            assert status in (404, 409), told
            await asyncio.sleep(0.1)


async def roles(client: Client, call_id: str) -> dict[str, str]:
    status, told = await ask(client, "get", f"{call_id}/supervisors")
    assert status == 200, told
    return {each["identity"]: each["role"] for each in told["supervisors"]}


def bursts(path: Path, hz: float) -> str:
    """The microphone of somebody who speaks 0.6 s and is silent for a second, again and again."""
    samples = np.concatenate([tone(hz, 0.6, 16000), np.zeros(16000, np.int16)])
    return str(write_wav(path, samples, 16000))


@pytest.fixture
def microphone(tmp_path: Path) -> str:
    return bursts(tmp_path / "boss.wav", BOSS_HZ)


async def test_a_phone_call_is_listened_to_taken_over_and_handed_back(
    microphone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, kept = write_transfer_site(tmp_path, more=AGENT), tmp_path / "kept.wav"
    with fake_models():
        async with (
            telephones(site) as people,
            running(site) as (server, client),
            rtc_client(wav=microphone, loop=True, keep=str(kept)) as boss,
        ):
            call_id = await place(client)
            caller = Caller(await people.answered(DESK))
            await caller.hears(AGENT_HZ)
            assert await roles(client, call_id) == {}
            assert (await ask(client, "post", f"{call_id}/whisper", text="be brief"))[0] == 409  # a script
            assert (await ask(client, "delete", f"{call_id}/supervisors/boss"))[0] == 404
            assert not server.room_registry.rooms  # a call that nobody listens to goes past no bridge
            await supervise(client, boss, call_id, "monitor", "boss")
            await boss.event("sound")
            await until(lambda: boss.events != [])
            assert await roles(client, call_id) == {"boss": "monitor"}
            await caller.hears(AGENT_HZ)
            assert not caller.heard(BOSS_HZ)

            await becomes(client, call_id, "boss", "take_over")
            await caller.hears(BOSS_HZ)
            caller.frames.clear()
            caller.hums = True
            await asyncio.sleep(6)  # the agent asks again after a silence, were it there
            assert not caller.heard(AGENT_HZ)
            assert caller.heard(BOSS_HZ)
            caller.hums = False
            opened = server.room_registry.opened(Access("desk"), call_id, supervised=True)
            [leg] = opened.participant_legs.values()
            assert asyncio.get_running_loop().time() - leg.heard_s < GONE_S  # by checks, were it muted

            await becomes(client, call_id, "boss", "monitor")
            await becomes(client, call_id, "boss", "whisper")
            assert await roles(client, call_id) == {"boss": "whisper"}
            await caller.hears(AGENT_HZ)
            await for_supervisors_alone(client, call_id)
            joining = tried_at_the_end(client, call_id, monkeypatch)
            await people.calls[DESK].hang_up()
            report = await until_final(client, call_id, key=WEB_KEY)
            await boss.event("closed")
            assert joining == [409]
            _, log = await asked(client, "/api/v1/audit", key=ADMIN)
    done = [(each["operation"], each["subject"]) for each in reversed(log["entries"]) if not each["keyId"]]
    assert done == [
        ("supervisorJoined", f"{call_id} boss monitor"),
        ("supervisorChanged", f"{call_id} boss take_over"),
        ("supervisorChanged", f"{call_id} boss monitor"),
        ("supervisorChanged", f"{call_id} boss whisper"),
        ("supervisorLeft", f"{call_id} boss"),
    ]
    assert [(each["by"], each["role"]) for each in report["analysis"]["supervisors"]] == [
        ("boss", "monitor"), ("boss", "take_over"), ("boss", "monitor"), ("boss", "whisper"),
    ]  # fmt: skip
    said = [line["role"] for line in report["transcript"]]
    assert {"agent", "colleague", "caller"} <= set(said)
    assert said.index("colleague") < len(said) - 1 - said[::-1].index("agent")  # the agent goes on after it
    [taken] = report["analysis"]["takeOvers"]
    assert (taken["by"], taken["ended"]) == ("boss", "handed_back")


async def for_supervisors_alone(client: Client, call_id: str) -> None:
    """A phone call is no room for web calls, whatever the key."""
    room, key = f"/api/v1/rooms/{call_id}", WEB_KEY
    assert (await asked(client, f"{room}/participants", key=key))[0] == 404
    status, _ = await asked(client, f"{room}/tokens", key=key, method="post", identity="eve", hidden=True)
    assert status == 404
    assert (await asked(client, f"{room}/participants/boss", key=key, method="delete"))[0] == 404


def tried_at_the_end(client: Client, call_id: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is answered to a supervisor who comes when the call is over, while the agent reports on it."""
    told: list[int] = []
    debrief = LiveConversation.debrief

    async def late(self: LiveConversation, result: SessionResult | None) -> SessionResult | None:
        told.append((await ask(client, "post", f"{call_id}/supervisors", role="monitor"))[0])
        return await debrief(self, result)

    monkeypatch.setattr(LiveConversation, "debrief", late)
    return told


async def transcript_of(client: Client, call_id: str) -> list[str]:
    _, report = await ask(client, "get", call_id)
    return [line["role"] for line in report["transcript"]]


@pytest.mark.nightly("ci")
async def test_the_second_is_told_and_a_lost_supervisor_gives_the_caller_back(
    microphone: str, tmp_path: Path
) -> None:
    site = write_transfer_site(tmp_path, more=AGENT)
    with fake_models():
        async with telephones(site) as people, running(site) as (_, client):
            call_id = await place(client)
            caller = Caller(await people.answered(DESK))
            await caller.hears(AGENT_HZ)
            async with rtc_client(wav=microphone, loop=True) as anna:
                async with rtc_client(wav=microphone, loop=True) as boss:
                    await supervise(client, anna, call_id, "monitor", "anna")
                    await supervise(client, boss, call_id, "take_over", "boss")
                    await caller.hears(BOSS_HZ)
                    await until(lambda: anna.events != [])
                    assert await roles(client, call_id) == {"anna": "monitor", "boss": "take_over"}
                    status, told = await ask(client, "patch", f"{call_id}/supervisors/anna", role="take_over")
                    assert (status, told) == (409, {"error": "boss has taken the call over"})
                lost = asyncio.get_running_loop().time()  # the process of boss is killed
                await caller.hears(AGENT_HZ)
                assert asyncio.get_running_loop().time() - lost < 10
                await becomes(client, call_id, "anna", "take_over")
                await caller.hears(BOSS_HZ)
                await people.calls[DESK].hang_up()
                report = await until_final(client, call_id, key=WEB_KEY)
                await anna.event("closed")
            assert [each["ended"] for each in report["analysis"]["takeOvers"]] == ["lost", "far_end"]
            assert report["status"] == "COMPLETED"
            status, _ = await ask(client, "post", f"{call_id}/supervisors", role="monitor")
            assert status == 409
            _, log = await asked(client, "/api/v1/audit", key=ADMIN)
            done = [(each["operation"], each["subject"]) for each in log["entries"]]
            assert ("changeSupervisor", f"{call_id} anna take_over") in done
            assert ("supervisorLeft", f"{call_id} boss") in done
            assert ("createSupervisor", f"{call_id} boss take_over") in done


@pytest.mark.nightly("ci")
async def test_a_colleague_hears_a_whisper_and_the_caller_does_not(microphone: str, tmp_path: Path) -> None:
    site = write_transfer_site(tmp_path)
    with fake_models():
        async with (
            telephones(site) as people,
            running(site) as (_, client),
            rtc_client(wav=microphone, loop=True) as boss,
        ):
            call_id = await place_call(client, HANDS_ON)
            caller = Caller(await people.answered(NUMBER))
            desk = Caller(await people.answered(DESK))
            caller.hums = True
            await desk.hears(CALLER_HZ)
            made = await asked(
                client, f"/api/v1/calls/{call_id}/supervisors", key=KEY, method="post", role="whisper"
            )
            await join(client, boss, made[1]["participantToken"])
            await desk.hears(BOSS_HZ)
            await boss.event("sound")
            assert not caller.heard(BOSS_HZ)
            await people.calls[NUMBER].hang_up()
            await until_final(client, call_id)


@pytest.mark.nightly("ci")
async def test_a_web_call_is_barged_into_taken_over_and_handed_back(microphone: str, tmp_path: Path) -> None:
    site, kept = write_transfer_site(tmp_path, more=AGENT), tmp_path / "kept.wav"
    quiet = str(write_wav(tmp_path / "quiet.wav", np.zeros(16000, np.int16), 16000))
    with fake_models():
        async with (
            running(site) as (server, client),
            rtc_client(wav=quiet, keep=str(kept)) as ann,
            rtc_client(wav=microphone, loop=True) as boss,
        ):
            ticket = server.room_registry.invite("desk", WebCallRequest(agent_id=ASKS, user_ref="ann"))
            call_id = ticket.room_name
            await join(client, ann, ticket.token)
            await ann.event("sound")
            status, told = await ask(client, "post", f"{call_id}/supervisors", role="barge", identity="ann")
            assert status == 409, told
            await supervise(client, boss, call_id, "monitor", "boss")
            await becomes(client, call_id, "boss", "barge")
            await becomes(client, call_id, "boss", "take_over")
            await until_said(client, call_id, "colleague")
            assert (await ask(client, "delete", f"{call_id}/supervisors/boss"))[0] == 200
            _, log = await asked(client, "/api/v1/audit", key=ADMIN)
            done = [(each["operation"], each["subject"]) for each in log["entries"]]
            assert ("removeSupervisor", f"{call_id} boss take_over") in done
            lines = len(await transcript_of(client, call_id))
            async with asyncio.timeout(20):
                while "agent" not in (await transcript_of(client, call_id))[lines:]:
                    await asyncio.sleep(0.2)
            await ann.end()
            report = await until_final(client, call_id, key=WEB_KEY)
    assert [each["ended"] for each in report["analysis"]["takeOvers"]] == ["handed_back"]
    with wave.open(str(kept)) as file:
        heard = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    frames = heard[: len(heard) // 960 * 960].reshape(-1, 960)
    assert sum(share_at(frame, 48000, BOSS_HZ) > 0.5 for frame in frames if np.abs(frame).max() > 500) > 10


async def until_said(client: Client, call_id: str, role: str) -> None:
    async with asyncio.timeout(20):
        while role not in await transcript_of(client, call_id):
            await asyncio.sleep(0.2)


async def asked(
    client: Client, path: str, *, key: str, method: str = "get", **body: Any
) -> tuple[int, dict[str, Any]]:
    async with client.request(method, path, json=body or None, headers=bearer(key)) as answer:
        return answer.status, await answer.json()
