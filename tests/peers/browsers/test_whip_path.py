"""A browser whose network changes in the middle of a call: the same call goes on over the new path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mediaserver.rooms.web_call import WebCallRequest
from tests.support.node.node import running
from tests.support.sip.transfers import LISTENS, write_transfer_site
from tests.support.waiting import until
from tests.support.webrtc.chromium import Page, chromium
from tests.support.webrtc.relay import relay

pytestmark = pytest.mark.slow

CALL = """
window.call = async (url, token, from, to) => {
  const peer = window.peer = new RTCPeerConnection();
  const microphone = await navigator.mediaDevices.getUserMedia({ audio: true });
  peer.addTrack(microphone.getAudioTracks()[0], microphone);
  await peer.setLocalDescription();
  const answer = await fetch(url, { method: 'POST', body: peer.localDescription.sdp,
    headers: { 'Content-Type': 'application/sdp', Authorization: `Bearer ${token}` } });
  window.resource = new URL(answer.headers.get('Location'), url);
  window.said = (await answer.text()).replaceAll(` ${from} typ host`, ` ${to} typ host`);
  await peer.setRemoteDescription({ type: 'answer', sdp: window.said });
};
window.restart = async () => {
  const peer = window.peer;
  await peer.setLocalDescription(await peer.createOffer({ iceRestart: true }));
  const ours = peer.localDescription.sdp.match(/a=ice-(ufrag|pwd):.*/g).slice(0, 2).join('\\r\\n');
  const answer = await fetch(window.resource, { method: 'PATCH', body: ours + '\\r\\n',
    headers: { 'Content-Type': 'application/trickle-ice-sdpfrag' } });
  const theirs = await answer.text();
  const said = window.said.replace(/a=ice-ufrag:.*/g, theirs.match(/a=ice-ufrag:.*/)[0].trim())
    .replace(/a=ice-pwd:.*/g, theirs.match(/a=ice-pwd:.*/)[0].trim());
  await peer.setRemoteDescription({ type: 'answer', sdp: said });
  return answer.status;
};
window.heard = async () => {
  for (const each of (await window.peer.getStats()).values())
    if (each.type === 'inbound-rtp') return each.packetsReceived;
  return 0;
};
"""


async def grows(figure: Callable[[], int], by: int = 50) -> None:
    """Waits until a count is `by` more than now."""
    wanted = figure() + by
    await until(lambda: figure() >= wanted)


async def hears(page: Page) -> None:
    """Waits until the page has received more than now."""
    now = await page.run("heard()")
    await page.until(f"heard().then((count) => count > {now} + 20)")


async def test_the_call_goes_on_from_another_address(tmp_path: Path) -> None:
    async with running(write_transfer_site(tmp_path)) as (server, client), chromium() as page:
        ticket = server.room_registry.invite("desk", WebCallRequest(agent_id=LISTENS))
        port = server.room_registry._ports[0].number
        async with relay(port, loss=0.0, jitter_s=0.0) as network:
            await page.open(str(client.make_url(f"/talk/{LISTENS}")))
            await page.run(CALL)
            url = client.make_url("/rtc/whip")
            await page.run(f"call({str(url)!r}, {ticket.token!r}, {port}, {network.port})")
            await page.until("peer.connectionState === 'connected'")
            (person,) = server.room_registry._rooms[ticket.room_name].participant_legs.values()
            await grows(lambda: person.audio.stats.packets_received)
            await network.move("127.0.0.2")
            assert await page.run("restart()") == 200
            await grows(lambda: person.audio.stats.packets_received)
            await hears(page)  # the agent answers every beep of the browser's microphone
            peer = person.peers[0]
            assert peer._path is not None
            hosts = {remote[0] for _, remote in peer._path.addresses}
            assert hosts == {"127.0.0.1", "127.0.0.2"}
            assert peer._path.connection._nominated[1].remote_addr[0] == "127.0.0.2"
        assert ticket.room_name in server.room_registry._rooms
