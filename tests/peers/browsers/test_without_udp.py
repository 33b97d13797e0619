"""livekit-client and the talk page in Chromium, on a network that lets no UDP through: Debian's coturn
carries their media over TCP, by credentials that each participant gets, and relays to this server alone."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aioice.turn
import pytest
from aiohttp.test_utils import TestClient

from mediaserver.server import Server
from mediaserver.settings import RoomsSettings
from tests.support.node.node import running
from tests.support.paths import ROOT
from tests.support.webrtc.chromium import chromium
from tests.support.webrtc.livekit_page import NEWEST, livekit_client, npm_file, sdk_page
from tests.support.webrtc.rooms import AGENT, invite, microphone, write_web_site

pytestmark = [pytest.mark.slow, pytest.mark.nightly("ci")]

ADDRESS = "10.77.0.1"
SECRET = "a-secret-shared-with-coturn"
RELAYS = "49160:49199"
_IN_A_NAMESPACE = ("unshare", "--user", "--map-root-user", "--net", "sh", "-c")
_FIREWALL = " && ".join(
    (
        "ip link set lo up",
        "ip link add web0 type veth peer name web1",
        f"ip addr add {ADDRESS}/24 dev web0",
        "ip link set web0 up",
        "ip link set web1 up",
        f"ip route add default via {ADDRESS}",
        f"iptables -A OUTPUT -p udp ! --sport {RELAYS} ! --dport {RELAYS} -j DROP",
    )
)
"""Only relays send UDP, and are sent it."""

STATES = """
(() => {
  window.peers = [];
  const Plain = RTCPeerConnection;
  window.RTCPeerConnection = class extends Plain { constructor(...all) { super(...all); peers.push(this); } };
})()
"""
PAIR = """
(async () => {
  for (const peer of peers) {
    const stats = await peer.getStats();
    for (const each of stats.values()) {
      if (each.type !== 'candidate-pair' || !each.nominated || each.state !== 'succeeded') continue;
      const local = stats.get(each.localCandidateId);
      return [local.candidateType, local.relayProtocol];
    }
  }
})()
"""


@asynccontextmanager
async def coturn() -> AsyncIterator[None]:
    """Debian's coturn by the configuration that this repository has for operators."""
    process = await asyncio.create_subprocess_exec(
        *("turnserver", "-c", "config/coturn/turnserver.conf", "--realm=test"),
        *(f"--listening-ip={ADDRESS}", f"--relay-ip={ADDRESS}", f"--allowed-peer-ip={ADDRESS}"),
        *(f"--static-auth-secret={SECRET}", "--max-port=49199", "--no-tls"),
        *("--pidfile=", "--userdb=:memory:"),
        cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(20):
            while True:
                try:
                    _, writer = await asyncio.open_connection(ADDRESS, 3478)
                    break
                except OSError:
                    await asyncio.sleep(0.1)
        writer.close()
        yield
    finally:
        process.kill()
        await process.wait()


async def both_join(folder: Path) -> None:
    """Lets an SDK and the talk page in, and tells how long each took."""
    site = write_web_site(
        folder, public=True, ice_servers=[f"turn:{ADDRESS}?transport=tcp"], addresses=[ADDRESS]
    )
    site.add("[rooms]", f'turn_secret = "{SECRET}"')
    site.add("[server]", f'allow_networks = ["127.0.0.0/8", "{ADDRESS}/32"]')
    voice = microphone(folder / "mic.wav", 4.0, "yes", 30.0)
    async with coturn(), running(site) as (server, client):
        await relays_lead_here_only(server)
        await an_sdk_joins(server, client, voice)
        await the_talk_page_joins(client, voice)


async def an_sdk_joins(server: Server, client: TestClient[Any, Any], voice: Path) -> None:
    async with sdk_page(NEWEST, microphone=voice) as page:
        await page.page.run(STATES)
        began_s = time.monotonic()
        await page.join(f"ws://127.0.0.1:{client.port}", invite(server).token)
        await page.event("listened to")
        print(f"livekit-client is listened to after {time.monotonic() - began_s:.2f} s")
        assert await page.page.run(PAIR) == ["relay", "tcp"]


async def the_talk_page_joins(client: TestClient[Any, Any], voice: Path) -> None:
    async with chromium(microphone=voice) as page:
        await page.open(str(client.make_url(f"/talk/{AGENT}")))
        await page.run(STATES)
        began_s = time.monotonic()
        await page.run("document.getElementById('talk').click()")
        await page.until("document.querySelector('#transcript li') !== null")
        print(f"the talk page hears the agent after {time.monotonic() - began_s:.2f} s")
        assert await page.run(PAIR) == ["relay", "tcp"]


async def relays_lead_here_only(server: Server) -> None:
    """A participant asks its relay for other peers, and with credentials that have expired for any."""
    rooms: RoomsSettings = server.settings.rooms
    [lent] = rooms.ice_servers_for("PA_someone", time.time())
    [old] = rooms.ice_servers_for("PA_someone", time.time() - 2 * rooms.turn_credentials_s)
    for username, password, peer, allowed in (
        (lent.username, lent.credential, ADDRESS, True),
        (lent.username, lent.credential, "127.0.0.1", False),
        (lent.username, lent.credential, "192.0.2.1", False),
        (old.username, old.credential, ADDRESS, False),
        (lent.username, old.credential, ADDRESS, False),
    ):
        assert await relayed(username, password, peer) is allowed, (username, peer)


async def relayed(username: str, password: str, peer: str) -> bool:
    """Whether coturn relays to `peer`."""
    try:
        transport, _ = await aioice.turn.create_turn_endpoint(
            asyncio.DatagramProtocol,
            server_addr=(ADDRESS, 3478),
            username=username,
            password=password,
            transport="tcp",
        )
    except aioice.stun.TransactionFailed:
        return False
    try:
        client = vars(transport)["_TurnTransport__inner_protocol"]
        await client.channel_bind(0x4000, (peer, 9))
    except aioice.stun.TransactionFailed:
        return False
    finally:
        transport.close()
    return True


@pytest.fixture
def namespace() -> tuple[str, ...]:
    """The words before a command that runs on that network."""
    if subprocess.run([*_IN_A_NAMESPACE, _FIREWALL], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets a user make no network namespace")
    return (*_IN_A_NAMESPACE, f'{_FIREWALL} && exec "$0" "$@"')


@pytest.mark.timeout(180)
async def test_an_sdk_and_the_talk_page_join_without_udp(tmp_path: Path, namespace: tuple[str, ...]) -> None:
    await livekit_client(NEWEST)  # from npm, which cannot be reached from within
    await npm_file("livekit-client", NEWEST, "dist/livekit-client.e2ee.worker.js")
    command = (*namespace, sys.executable, "-m", __name__, str(tmp_path))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
    assert await process.wait() == 0


if __name__ == "__main__":
    asyncio.run(both_join(Path(sys.argv[1])))
