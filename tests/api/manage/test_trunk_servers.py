"""A trunk's servers and their health, over the API and in the metrics."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from mediaserver.settings.load import load
from tests.support.hostile.rogue import rogue
from tests.support.http.api_site import ADMIN_KEY, write_api_site
from tests.support.node.node import bearer, running
from tests.support.ports import free_port
from tests.support.sip.stun import ONE, stun_server
from tests.support.waiting import until

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


async def test_the_address_that_a_stun_server_tells_is_told(tmp_path: Path) -> None:
    async with stun_server() as server:
        site = write_api_site(tmp_path).change("transport=tcp", "transport=udp")
        line = f'public_address = "stun:127.0.0.1:{server.port}"\nstun_every_s = 10'
        site.add('[[trunk]]\nid = "carrier"', line)
        async with running(site) as (node, client), asyncio.timeout(PATIENCE_S):

            async def said(health: str) -> dict[str, Any]:
                while True:
                    async with client.get("/api/v1/trunks/carrier", headers=bearer(ADMIN_KEY)) as told:
                        view: dict[str, Any] = await told.json()
                    if view["stunHealth"] == health:
                        return view
                    await asyncio.sleep(0.05)

            assert (await said("up"))["seenAs"] == "203.0.113.7"
            shown = node.metrics.registry.get_sample_value
            labels = {"trunk": "carrier"}
            assert shown("mediaserver_trunk_public_address", labels) == 1
            node.endpoint.trunks["carrier"].public.failed = True  # as after a question in vain
            assert (await said("down"))["seenAs"] == "203.0.113.7"
            assert shown("mediaserver_trunk_public_address", labels) == 0


async def test_what_a_stun_server_said_counts_for_the_trunk_as_it_is_after_a_reload(tmp_path: Path) -> None:
    """A reload while that server is away tells the carrier no address behind the NAT."""
    async with stun_server() as server:
        site = write_api_site(tmp_path).change("transport=tcp", "transport=udp")
        named = f'public_address = "stun:127.0.0.1:{server.port}"\nfailover_s = 3.0'
        site.add('[[trunk]]\nid = "carrier"', named)
        async with running(site) as (node, _):
            before = node.endpoint.trunks["carrier"]
            await until(lambda: before.public.now == ONE)
            server.address = ""
            site.change("failover_s = 3.0", "failover_s = 3.5")
            await node.reload(load(site.path))
            after = node.endpoint.trunks["carrier"]
            assert (after.settings.failover_s, after.public.now) == (3.5, ONE)
            fixed = 'public_address = "203.0.113.99"'
            site.change(f'public_address = "stun:127.0.0.1:{server.port}"', fixed)
            await node.reload(load(site.path))
            assert node.endpoint.trunks["carrier"].public.now == "203.0.113.99"
            site.change(fixed, 'public_address = "203.0.113.98"')
            await node.reload(load(site.path))
            assert node.endpoint.trunks["carrier"].public.now == "203.0.113.98"


def answer(transport: asyncio.DatagramTransport, data: bytes, source: tuple[str, int]) -> None:
    """200 to whatever asks."""
    lines = data.decode().split("\r\n")
    kept = [line for line in lines if line.startswith(("Via:", "From:", "Call-ID:", "CSeq:"))]
    to = next(line for line in lines if line.startswith("To:"))
    text = "\r\n".join(["SIP/2.0 200 OK", *kept, f"{to};tag=far", "Content-Length: 0", "", ""])
    transport.sendto(text.encode(), source)
