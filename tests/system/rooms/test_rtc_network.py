"""LiveKit's SDK on a bad network: packets lost and late, and an address that changes in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mediaserver.rooms.participant_leg import ParticipantLeg
from mediaserver.rooms.web_call import WebCallRequest
from mediaserver.rooms.webrtc import sdp_munging
from mediaserver.rooms.webrtc import udp_mux as media_port
from tests.support.node.node import running
from tests.support.sip.transfers import LISTENS, write_transfer_site
from tests.support.waiting import until
from tests.support.webrtc.relay import relay
from tests.support.webrtc.rtc import RtcClient
from tests.support.webrtc.sdk import sdk_client


async def goes_on(person: ParticipantLeg, sdk: RtcClient) -> None:
    """Both directions: packets of the microphone arrive, and the agent is heard again."""
    stats = person.audio.stats
    sounds = sum(each.get("event") == "sound" for each in sdk.events)
    sdk.tell(text="are you there")
    await sdk.event("sound", after=sounds)
    await until(lambda: person.audio.stats.packets_received > stats.packets_received + 50)


@pytest.mark.parametrize(
    "single",
    [
        pytest.param(True, id="one connection"),
        pytest.param(False, id="two connections", marks=pytest.mark.nightly("ci")),
    ],
)
async def test_lost_and_late_packets_and_another_address_do_not_end_the_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, single: bool
) -> None:
    async with running(write_transfer_site(tmp_path)) as (server, client):
        ticket = server.room_registry.invite("desk", WebCallRequest(agent_id=LISTENS, user_ref="ann"))
        own = server.room_registry._ports[0].number
        async with relay(own, loss=0.05, jitter_s=0.04) as network:
            told = media_port._candidate
            # The only way is through the relay: our side does not hear where the client is.
            monkeypatch.setattr(sdp_munging, "_works", lambda parts: False)
            monkeypatch.setattr(
                media_port, "_candidate", lambda part, host, _: told(part, host, network.port)
            )
            url = f"ws://127.0.0.1:{client.port}"
            async with sdk_client(url=url, token=ticket.token, single=single, tone=440) as sdk:
                await sdk.event("microphone")
                await sdk.event("sound")
                (person,) = server.room_registry._rooms[ticket.room_name].participant_legs.values()
                await until(lambda: person.audio.stats.packets_received > 100)
                await goes_on(person, sdk)
                assert network.lost > 0
                await until(lambda: any("ann" in each.get("who", ()) for each in told_of(sdk, "speakers")))
                await network.move("127.0.0.2")
                await until(lambda: _remotes(person) == {"127.0.0.2"})
                await goes_on(person, sdk)
                await sdk.end()
    assert not [each for each in sdk.events if each.get("event") in ("reconnecting", "disconnected")][:-1]


def told_of(sdk: RtcClient, name: str) -> list[dict[str, Any]]:
    """What the client said so far of one kind."""
    return [each for each in sdk.events if each.get("event") == name]


def _remotes(person: ParticipantLeg) -> set[str]:
    """Where the packets to this person go."""
    paths = [peer._path for peer in person.peers if peer._path is not None]
    return {pair.remote_addr[0] for path in paths for pair in path.connection._nominated.values()}
