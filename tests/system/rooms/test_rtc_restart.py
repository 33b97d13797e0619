"""livekit-client restarts ICE: both sides have new credentials, and the conversation goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mediaserver.rooms.web_call import WebCallRequest
from tests.support.node.node import running
from tests.support.sip.transfers import LISTENS, write_transfer_site
from tests.support.waiting import until
from tests.support.webrtc.livekit_page import NEWEST, OLDER, SdkPage, sdk_page

pytestmark = pytest.mark.slow

CASES = {
    "one connection": (NEWEST, {}, 1),
    "two connections": (NEWEST, {"singlePeerConnection": False}, 2),
    "older": (OLDER, {}, 2),
}
OTHERS = list(CASES)[1:]


async def users(page: SdkPage) -> dict[tuple[int, str], list[str]]:
    """The ICE user names that went over the wire, by connection and side, each once, in their order."""
    found: dict[tuple[int, str], list[str]] = {}
    for told in await page.events("description"):
        names = found.setdefault((told["connection"], told["side"]), [])
        if told["ufrag"] not in names:
            names.append(told["ufrag"])
    return found


def remotes(person: Any) -> set[tuple[str, int]]:
    """Where the packets to this person go."""
    paths = [peer._path for peer in person.peers]
    return {pair.remote_addr for path in paths for pair in path.connection._nominated.values()}


async def goes_on(page: SdkPage, person: Any) -> None:
    """Both directions: the microphone arrives, and the agent is heard."""
    microphone, heard = person.audio.stats.packets_received, await page.page.run("packetsHeard()")
    await until(lambda: person.audio.stats.packets_received > microphone + 50)
    await page.page.until(f"packetsHeard().then((count) => count > {heard} + 20)", timeout_s=30)


@pytest.mark.parametrize(
    "case", ["one connection", *(pytest.param(case, marks=pytest.mark.nightly("ci")) for case in OTHERS)]
)
async def test_ice_restarts_and_the_conversation_goes_on(tmp_path: Path, case: str) -> None:
    version, options, connections = CASES[case]
    async with running(write_transfer_site(tmp_path)) as (server, client), sdk_page(version) as page:
        ticket = server.room_registry.invite("desk", WebCallRequest(agent_id=LISTENS, user_ref="ann"))
        await page.join(f"ws://127.0.0.1:{client.port}", ticket.token, **options)
        await page.event("listened to")
        (person,) = server.room_registry._rooms[ticket.room_name].participant_legs.values()
        await goes_on(page, person)
        peers, before, places = list(person.peers), await users(page), remotes(person)
        assert {len(names) for names in before.values()} == {1}
        await page.page.run("room.simulateScenario('signal-reconnect').then(() => true)")
        await page.event("Reconnected")
        await page.page.until(
            "new Set(events.filter((each) => each.event === 'description').map((each) => each.ufrag)).size"
            f" >= {4 * connections}",
            timeout_s=30,
        )
        after = await users(page)
        assert len(after) == 2 * connections
        assert all(len(names) > 1 for names in after.values())
        assert list(person.peers) == peers
        nominated = [peer._path.connection for peer in peers if peer._path is not None]
        assert {each.local_username for each in nominated} == {
            names[-1] for (_, side), names in after.items() if side == "remote"
        }
        await until(lambda: not places & remotes(person))  # the browser restarts on sockets of its own
        await goes_on(page, person)
        assert await page.events("disconnected") == []
