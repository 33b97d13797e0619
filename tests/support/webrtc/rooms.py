"""A site with rooms: a company whose agents are talked to from browsers."""

from __future__ import annotations

import json
import subprocess
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp.test_utils import TestClient

from mediaserver.rooms.open_room import JoinGrant
from mediaserver.rooms.web_call import WebCallRequest
from mediaserver.server import Server
from tests.support.node.node import FAKE_ENGINES, Site, write_site
from tests.support.ports import free_rtp_ports
from tests.support.speech.tones import write_wav
from tests.support.webrtc.rtc import RtcClient

COMPANY = "web"
NEEDY = "a8f7e2a0-93a8-4a55-8f6c-9f5f3f5f1a06"
TALKER = "f7e7e2a0-93a8-4a55-8f6c-9f5f3f5f1a05"
AGENT = "e6d7e2a0-93a8-4a55-8f6c-9f5f3f5f1a04"
CALLS_KEY = "web-company-calls-key"

ROOMS = '''
[rooms]
udp_ports = "{web_rtp}"
addresses = {addresses}
ice_servers = {ice_servers}
api_secret = "a-secret-of-thirty-two-characters"
max_calls = 3

[[company]]
id = "web"
name = "Web"
web_calls = true
public_talk = {public}
talk_origins = {talk_origins}
country = "US"
[[company.key]]
key = "web-company-calls-key"
scopes = ["calls", "web-calls"]
[[agent]]
id = "e6d7e2a0-93a8-4a55-8f6c-9f5f3f5f1a04"
company = "web"
name = "Web desk"
language = "en"
{web_engines}
[agent.script]
start = "ask"
[[agent.script.step]]
id = "ask"
say = "Hello. Would you like an appointment?"
expect = {{ kinds = ["yes_no"] }}
collect = "wanted"
on = {{ yes = "bye", no = "bye" }}
silence = {{ say = "Are you there?", max = 5, next = "bye" }}
[[agent.script.step]]
id = "bye"
say = "Thank you. Goodbye."
action = "hang_up"
disposition = "answered"
goal = true
[[agent]]
id = "f7e7e2a0-93a8-4a55-8f6c-9f5f3f5f1a05"
company = "web"
name = "Long talker"
language = "en"
{web_engines}
[agent.script]
start = "hours"
[[agent.script.step]]
id = "hours"
say = """The opening hours are eight o'clock to five o'clock, Monday to Friday. The opening hours on Saturday\
 are nine o'clock to one o'clock. On Sunday we are closed. Is that okay?"""
expect = {{ kinds = ["yes_no"] }}
on = {{ yes = "bye", no = "bye" }}
[[agent.script.step]]
id = "bye"
say = "Thank you. Goodbye."
action = "hang_up"
disposition = "told"
[[agent]]
id = "a8f7e2a0-93a8-4a55-8f6c-9f5f3f5f1a06"
company = "web"
name = "Needs a variable"
{web_engines}
[agent.script]
start = "bye"
[[agent.script.step]]
id = "bye"
say = "Goodbye from {{{{place}}}}."
action = "hang_up"
'''


def write_web_site(
    directory: Path,
    *,
    engines: str = FAKE_ENGINES,
    public: bool = False,
    addresses: Sequence[str] = ("127.0.0.1",),
    ice_servers: Sequence[str] = (),
    talk_origins: Sequence[str] = (),
) -> Site:
    """A configuration with rooms on free ports."""
    return write_site(
        directory,
        more=ROOMS,
        web_rtp=free_rtp_ports(),
        public=str(public).lower(),
        web_engines=engines,
        addresses=json.dumps(list(addresses)),
        ice_servers=json.dumps(list(ice_servers)),
        talk_origins=json.dumps(list(talk_origins)),
    )


def invite(server: Server, **more: Any) -> JoinGrant:
    """An invitation to talk to the agent."""
    request = WebCallRequest(agent_id=AGENT, user_ref="ann", **more)
    return server.room_registry.invite(COMPANY, request)


def bearing(token: str, **headers: str) -> dict[str, str]:
    """The headers of a WHIP request."""
    return {"Authorization": f"Bearer {token}", "Content-Type": "application/sdp", **headers}


async def join(client: TestClient[Any, Any], rtc: RtcClient, token: str) -> str:
    """Lets the browser of another process in; the URL of its session."""
    offer = (await rtc.line())["offer"]
    async with client.post("/rtc/whip", data=offer, headers=bearing(token)) as answer:
        assert answer.status == 201, await answer.text()
        rtc.tell(answer=await answer.text())
        rtc.follow()
        return answer.headers["Location"]


def microphone(path: Path, *parts: float | str) -> Path:
    """Seconds of silence and spoken words, one after the other, as a file at 16 kHz."""
    sounds = []
    for place, part in enumerate(parts):
        if isinstance(part, str):
            with wave.open(str(spoken(path.with_suffix(f".{place}.wav"), part))) as file:
                sounds.append(np.frombuffer(file.readframes(file.getnframes()), np.int16))
        else:
            sounds.append(np.zeros(int(part * 16000), np.int16))
    return write_wav(path, np.concatenate(sounds), 16000)


def spoken(path: Path, text: str) -> Path:
    """`text` by a voice that is not the agent's, as a file at 16 kHz."""
    subprocess.run(["flite", "-voice", "slt", "-t", text, "-o", str(path)], check=True, timeout=20)
    return path
