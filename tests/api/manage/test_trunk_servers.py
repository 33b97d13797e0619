"""A trunk's servers and their health, over the API and in the metrics."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.hostile.rogue import rogue
from tests.support.http.api_site import ADMIN_KEY, write_api_site
from tests.support.node.node import bearer, running
from tests.support.ports import free_port

PATIENCE_S = 20.0


async def test_the_health_of_a_trunk_s_servers_is_told(tmp_path: Path) -> None:
    async with rogue() as far:
        site = write_api_site(tmp_path).send_to(far.sip.port).change("transport=tcp", "transport=udp")
        dead = free_port()
        lines = f'options_ping_s = 30\nbackup_uris = ["sip:127.0.0.1:{dead};transport=udp"]'
        site.add('[[trunk]]\nid = "carrier"', lines)
        far.sip.on_datagram = lambda data, source: answer(far.sip.transport, data, source)
        async with running(site) as (_, client), asyncio.timeout(PATIENCE_S):
            while True:
                async with client.get("/api/v1/trunks/carrier", headers=bearer(ADMIN_KEY)) as told:
                    servers = (await told.json())["servers"]
                if {each["health"] for each in servers} == {"up", "down"}:
                    break
                await asyncio.sleep(0.05)
            up, down = servers
            assert (up["address"], up["transport"], up["status"]) == (f"127.0.0.1:{far.sip.port}", "udp", 200)
            assert up["rttMs"] > 0
            assert (down["address"], down["status"], down["rttMs"]) == (f"127.0.0.1:{dead}", None, None)
            async with client.get("/metrics") as exposed:
                text = await exposed.text()
    assert 'mediaserver_trunk_servers{health="up",trunk="carrier"} 1.0' in text
    assert 'mediaserver_trunk_servers{health="down",trunk="carrier"} 1.0' in text


def answer(transport: asyncio.DatagramTransport, data: bytes, source: tuple[str, int]) -> None:
    """200 to whatever asks."""
    lines = data.decode().split("\r\n")
    kept = [line for line in lines if line.startswith(("Via:", "From:", "Call-ID:", "CSeq:"))]
    to = next(line for line in lines if line.startswith("To:"))
    text = "\r\n".join(["SIP/2.0 200 OK", *kept, f"{to};tag=far", "Content-Length: 0", "", ""])
    transport.sendto(text.encode(), source)
