"""What was signalled in a call, over the API: as a ladder, and as a file that Wireshark reads."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sip.endpoint import Endpoint, EndpointSettings
from sip.trunk_settings import TrunkSettings
from tests.support.node.node import (
    DATABASES,
    KEY,
    OTHER_KEY,
    SPEECH_KEY,
    Client,
    Site,
    bearer,
    database_on,
    place_call,
    rows_of,
    running,
    until_final,
    write_site,
)
from tests.support.ports import free_rtp_ports
from tests.support.sip.raw_call import RawCall

SECRET = "open sesame"
PATIENCE_S = 20.0


@asynccontextmanager
async def challenging_carrier(site: Site) -> AsyncIterator[Endpoint]:
    """A carrier that asks for the trunk's password, and answers for a moment."""
    first, last = (int(port) for port in free_rtp_ports(160).split("-"))
    settings = EndpointSettings(udp=f"127.0.0.1:{site.carrier}", rtp_ports=(first + 80, last))
    async with Endpoint(settings) as phone:
        phone.add_trunk(
            TrunkSettings(id="us", uri=f"sip:127.0.0.1:{site.sip}", username="acme", password=SECRET)
        )

        async def answer() -> None:
            async for call in phone.incoming():
                await call.ring()
                await call.answer()
                await asyncio.sleep(0.3)
                await call.hang_up()

        task = asyncio.create_task(answer())
        try:
            yield phone
        finally:
            task.cancel()


async def told(client: Client, path: str, key: str = KEY) -> tuple[int, Any]:
    async with client.get(f"/api/v1/calls/{path}", headers=bearer(key)) as answer:
        body = await answer.json() if answer.content_type == "application/json" else await answer.read()
        return answer.status, body


async def ladder(client: Client, call_id: str, until: str) -> list[dict[str, Any]]:
    """The messages of a call, once the last one is `until`."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status, trace = await told(client, f"{call_id}/trace")
            assert status == 200
            messages: list[dict[str, Any]] = trace["messages"]
            if messages and messages[-1]["summary"] == until and len(messages) > 6:
                return messages
            await asyncio.sleep(0.05)


def steps(messages: list[dict[str, Any]]) -> list[str]:
    return [("> " if each["sent"] else "< ") + each["summary"] for each in messages]


CALLED = [
    *("> INVITE", "< 401 Unauthorized", "> ACK", "> INVITE"),
    *("< 180 Ringing", "< 200 OK", "> ACK", "< BYE", "> 200 OK"),
]


async def test_the_trace_of_a_call_that_is_over_is_told_while_the_trace_is_being_written(
    tmp_path: Path,
) -> None:
    site = write_site(tmp_path)
    site.add('[[trunk]]\nid = "carrier"', f'username = "acme"\npassword = "{SECRET}"')
    async with challenging_carrier(site), running(site) as (_, client):
        call_id = await place_call(client)
        await until_final(client, call_id)
        ended = await ladder(client, call_id, "200 OK")
        async with asyncio.timeout(PATIENCE_S):
            while not await rows_of(site, "SELECT call_id FROM call_traces"):
                _, trace = await told(client, f"{call_id}/trace")
                assert trace["messages"] == ended


@pytest.mark.parametrize("engine", DATABASES)
async def test_an_outbound_call_is_told_live_after_its_end_and_after_a_restart(
    tmp_path: Path, engine: str
) -> None:
    with database_on(engine) as database:
        site = write_site(tmp_path, database=database)
        site.add('[[trunk]]\nid = "carrier"', f'username = "acme"\npassword = "{SECRET}"')
        async with challenging_carrier(site):
            async with running(site) as (_, client):
                call_id = await place_call(client)
                await until_final(client, call_id)
                messages = await ladder(client, call_id, "200 OK")
                assert [each for each in steps(messages) if "100" not in each] == CALLED
            async with running(site) as (_, client):  # from the database
                assert await ladder(client, call_id, "200 OK") == messages
                _, trace = await told(client, f"{call_id}/trace")
                _, data = await told(client, f"{call_id}/trace.pcap")
                assert await told(client, f"{call_id}.pcap") == (200, data)
    (leg,) = trace["legs"]
    assert (leg["direction"], leg["trunkId"], leg["leftOut"]) == ("outbound", "carrier", 0)
    assert leg["media"][-1]["packetsSent"] > 5
    assert leg["media"][-1]["mos"] > 4.2  # the scale of G.711 ends at 4.41
    invite = messages[3]
    assert (invite["local"], invite["remote"]) == (f"127.0.0.1:{site.sip}", f"127.0.0.1:{site.carrier}")
    assert 'username="acme"' in invite["text"]
    assert 'response="***"' in invite["text"]
    assert all(messages[place]["ms"] <= messages[place + 1]["ms"] for place in range(len(messages) - 1))
    read_by_tshark(tmp_path, data, messages)


def read_by_tshark(directory: Path, data: bytes, messages: list[dict[str, Any]]) -> None:
    """Wireshark finds every message, where it went, and right checksums."""
    file = directory / "call.pcap"
    file.write_bytes(data)
    fields = [f"-e{name}" for name in ("udp.dstport", "sip.Method", "sip.Status-Code")]
    ports = sorted({int(each[end].rpartition(":")[2]) for each in messages for end in ("local", "remote")})
    known = [option for port in ports for option in ("-d", f"udp.port=={port},sip")]
    checks = ["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    shown = ["tshark", "-n", "-r", str(file), *known, *checks, "-Tfields", "-Eseparator=,"]
    out = subprocess.run([*shown, *fields], capture_output=True, text=True, check=True, timeout=60).stdout
    rows = [line.split(",") for line in out.splitlines()]
    assert [method or status for _, method, status in rows] == [
        each["summary"].split(" ")[0] for each in messages
    ]
    aims = [each["remote" if each["sent"] else "local"].rpartition(":")[2] for each in messages]
    assert [port for port, _, _ in rows] == aims
    wrong = ["-Y", "udp.checksum.status != 1 or ip.checksum.status != 1 or _ws.malformed"]
    assert (
        subprocess.run([*shown, *fields, *wrong], capture_output=True, check=True, timeout=60).stdout == b""
    )


async def test_an_inbound_call_begins_with_its_invite_and_hides_keyed_digits(tmp_path: Path) -> None:
    site = write_site(tmp_path)
    async with running(site) as (server, client):
        async with RawCall(site.sip, "+14155550101") as call:
            await call.answered()
            call.send(
                call.request(
                    "INFO", "Content-Type: application/dtmf-relay", body="Signal=7\r\nDuration=160\r\n"
                )
            )
            assert (await call.final("INFO")).status == 200
            (live,) = (await server.store.calls("acme", limit=1)).items
            _, trace = await told(client, f"{live.id}/trace")
            assert steps(trace["messages"])[0] == "< INVITE"
            assert trace["messages"][0]["local"] == f"127.0.0.1:{site.sip}"
            await call.hang_up()
        await until_final(client, live.id)
        messages = await ladder(client, live.id, "200 OK")
        infos = [each["text"] for each in messages if each["summary"] == "INFO"]
        assert "Signal=*" in infos[0]
        assert "Signal=7" not in str(messages)


async def test_a_trace_is_for_those_who_may_see_the_call(tmp_path: Path) -> None:
    site = write_site(tmp_path, transport="tcp")
    async with running(site) as (_, client):
        call_id = await place_call(client)
        await until_final(client, call_id)
        for path in (f"{call_id}/trace", f"{call_id}/trace.pcap", f"{call_id}.pcap"):
            assert (await told(client, path))[0] == 200
            assert await told(client, path, OTHER_KEY) == (404, {"error": "Call not found"})
            assert (await told(client, path, SPEECH_KEY))[0] == 403
        _, trace = await told(client, f"{call_id}/trace")
        assert [each["summary"] for each in trace["messages"]] == ["INVITE"]  # nobody was there


async def test_a_server_that_is_told_to_keeps_nothing(tmp_path: Path) -> None:
    site = write_site(tmp_path).add("[sip]", "trace = false")
    async with running(site) as (server, client):
        async with RawCall(site.sip, "+14155550101") as call:
            await call.answered()
            await call.hang_up()
        (row,) = (await server.store.calls("acme", limit=1)).items
        await until_final(client, row.id)
        _, trace = await told(client, f"{row.id}/trace")
        assert trace == {"callTaskId": row.id, "legs": [], "messages": []}
