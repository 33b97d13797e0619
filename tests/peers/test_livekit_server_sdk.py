"""npm's livekit-server-sdk, unmodified, against the Twirp API."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest

from mediaserver.rooms.web_call import WebCallRequest
from tests.support.node.node import bearer, running
from tests.support.paths import SUPPORT
from tests.support.sip.transfers import DESK, LISTENS, WEB_KEY, telephones, write_transfer_site
from tests.support.waiting import until
from tests.support.webrtc.sdk import sdk_client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PACKAGE = "livekit-server-sdk@2.19.2"
PROGRAM = SUPPORT / "webrtc" / "livekit_server.mjs"
NPM = Path(sys.prefix) / "npm" / "livekit-server"

ANSWERS = {
    "rooms": True,
    "people": 2,
    "participant": "ann",
    "muted": True,
    "unmuted": "failed_precondition",
    "updated": "4",
    "metadata": "shop 7",
    "data": "sent",
    "created": "unimplemented",
    "dialled": "desk",
    "transferred": "not_found",
    "removed": "removed",
    "deleted": "deleted",
}


async def node(*arguments: str) -> str:
    """What the program prints."""
    if not (NPM / "node_modules" / "livekit-server-sdk").exists():
        NPM.mkdir(parents=True, exist_ok=True)
        await run("npm", "install", "--silent", "--no-audit", "--no-fund", PACKAGE)
    shutil.copy(PROGRAM, NPM)
    return await run("node", PROGRAM.name, *arguments)


async def run(*command: str) -> str:
    """What a program prints that ends well."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=NPM, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    printed, said = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, (printed + said).decode()[-4000:]
    return printed.decode()


async def test_the_server_sdk_of_npm_administers_a_room(tmp_path: Path) -> None:
    site = write_transfer_site(tmp_path)
    async with running(site) as (server, client), telephones(site) as people:
        ticket = server.room_registry.invite("desk", WebCallRequest(agent_id=LISTENS, user_ref="ann"))
        async with client.get("/api/v1/livekit-key", headers=bearer(WEB_KEY)) as answer:
            pair = await answer.json()
        url = f"//127.0.0.1:{client.port}"
        async with sdk_client(url=f"ws:{url}", token=ticket.token, tone=440) as ann:
            await ann.event("microphone")
            room = server.room_registry._rooms[ticket.room_name].room
            await until(lambda: bool(room.participants["ann"].tracks))
            printed = await node(f"http:{url}", pair["apiKey"], pair["apiSecret"], ticket.room_name, DESK)
            assert json.loads(printed) == ANSWERS
            assert (await ann.event("data"))["text"] == "from node"
            assert list(people.calls) == [DESK]
