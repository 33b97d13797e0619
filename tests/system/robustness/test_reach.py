"""A tenant's trunk, made over the API, and what its far end can make this server send to: nothing at an
address that is closed to it, by whatever part of SIP or SDP it is named.

The server may send to 127.0.0.1 (`server.allow_networks`), where the far end is; 127.0.0.66 is closed.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.hostile.rogue import CLOSED, Rogue, Traps, rogue, sdp, traps
from tests.support.http.api_site import ADMIN_KEY, write_api_site
from tests.support.node.node import KEY, Client, Node, Site, bearer, node_of_module, running, until_final
from tests.support.sip.sip_phones import address
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

API = "/api/v1"
NUMBER = "+14155550177"

ASKS = {
    "start": "ask",
    "step": [
        {"id": "ask", "say": "Is it you?", "expect": {"kinds": ["yes_no"]}, "next": "bye"},
        {"id": "bye", "say": "Goodbye.", "action": "hang_up"},
    ],
}
ENGINES = {"stt": {"engine": "test-ears"}, "tts": {"engine": "test-voice"}}


def write_reach_site(directory: Path) -> Site:
    return write_api_site(directory).change("127.0.0.0/8", "127.0.0.1/32")


site = node_of_module(write_reach_site)


@pytest_asyncio.fixture(loop_scope="module")
async def far() -> AsyncIterator[Rogue]:
    async with rogue() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def lure() -> AsyncIterator[Traps]:
    async with traps() as made:
        yield made


async def ask(client: Client, method: str, path: str, body: Any = None, key: str = ADMIN_KEY) -> Any:
    async with client.request(method, API + path, json=body, headers=bearer(key)) as answer:
        assert answer.status in (200, 201), await answer.text()
        return await answer.json()


async def call(site: Node, far: Rogue, **trunk: Any) -> str:
    """Calls over a trunk made now; the callTaskId."""
    _, client = site
    made = await ask(client, "POST", "/trunks", {"uri": far.uri, **trunk})
    agent = {"trunk": made["id"], "phoneNumber": "+14155550100", "script": ASKS, **ENGINES}
    agent_id = (await ask(client, "POST", "/agents", agent))["id"]
    body = {"agentId": agent_id, "phoneNumber": NUMBER}
    placed = await ask(client, "POST", "/calls/outbound", body, KEY)
    return str(placed["data"]["callTaskId"])


async def report(site: Node, call_id: str) -> dict[str, Any]:
    return await until_final(site[1], call_id)


async def hang_up(site: Node, call_id: str) -> None:
    await ask(site[1], "POST", f"/calls/{call_id}/hangup", {}, KEY)


def blocked(site: Node) -> int:
    return site[0].endpoint.stats.blocked


CONTACTS = {
    "address": "<sip:x@{host}:{port}>",
    "tcp": "<sip:x@{host}:{port};transport=tcp>",
    "tls": "<sips:x@{host}:{port}>",
    "maddr": "<sip:x@example.com:{port};maddr={host}>",
    "short spelling": "<sip:x@127.66:{port}>",
    "decimal spelling": "<sip:x@2130706498:{port}>",
}


@pytest.mark.parametrize("kind", CONTACTS)
async def test_a_contact_that_is_closed_gets_no_ack_no_bye_and_no_connection(
    site: Node, far: Rogue, lure: Traps, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = blocked(site)
    contact = CONTACTS[kind].format(host=CLOSED, port=lure.port)
    far.say(180)
    far.say(200, f"Contact: {contact}", body=far.media)
    call_id = await call(site, far)
    over = await report(site, call_id)
    assert lure.caught == []
    assert over["hangupCause"] == "address_refused"
    assert blocked(site) > before
    told = [each for each in caplog.records if getattr(each, "call_id", "") == call_id]
    assert [each.getMessage() for each in told if "address" in vars(each)] == ["call may not send there"]


async def test_a_recorded_route_that_is_closed_is_not_followed(site: Node, far: Rogue, lure: Traps) -> None:
    route = f"Record-Route: <sip:{CLOSED}:{lure.port};lr>"
    far.say(200, far.contact, route, body=far.media)
    over = await report(site, await call(site, far))
    assert lure.caught == []
    assert over["hangupCause"] == "address_refused"


async def test_the_prack_of_a_reliable_answer_goes_nowhere_closed_and_the_call_is_cancelled(
    site: Node, far: Rogue, lure: Traps
) -> None:
    far.say(183, f"Contact: <sip:x@{CLOSED}:{lure.port}>", "Require: 100rel", "RSeq: 7", body=far.media)
    over = await report(site, await call(site, far))
    assert lure.caught == []
    assert over["hangupCause"] == "address_refused"
    assert far.methods == ["INVITE", "CANCEL", "ACK"]


async def test_a_redirect_to_a_closed_address_is_not_followed(site: Node, far: Rogue, lure: Traps) -> None:
    far.say(302, f"Contact: <sip:x@{CLOSED}:{lure.port}>")
    over = await report(site, await call(site, far))
    assert lure.caught == []
    assert over["status"] == "FAILED"


@pytest.mark.parametrize("where", ["session", "stream", "rtcp"])
async def test_sdp_leads_no_audio_and_no_reports_to_a_closed_address(
    site: Node, far: Rogue, lure: Traps, where: str
) -> None:
    bodies = {
        "session": sdp((CLOSED, lure.port)),
        "stream": sdp((CLOSED, lure.port), session="127.0.0.1"),
        "rtcp": sdp(("127.0.0.1", far.rtp.port), extra=f"a=rtcp:{lure.port} IN IP4 {CLOSED}\r\n"),
    }
    far.say(200, far.contact, body=bodies[where])
    call_id = await call(site, far)
    if where == "rtcp":
        await until(lambda: far.rtp.arrived)
        await hang_up(site, call_id)
    over = await report(site, call_id)
    assert lure.caught == []
    assert far.methods == ["INVITE", "ACK", "BYE"]  # the far end is told that the call is over
    assert over["hangupCause"] == ("normal" if where == "rtcp" else "address_refused")


async def test_early_media_of_a_closed_address_is_none_and_the_honest_answer_counts(
    site: Node, far: Rogue, lure: Traps
) -> None:
    far.say(183, far.contact, body=sdp((CLOSED, lure.port)))
    call_id = await call(site, far)
    await until(lambda: far.requests)
    await asyncio.sleep(0.3)
    far.reply(far.asked("INVITE")[0], 200, (far.contact,), sdp(("127.0.0.1", far.rtp.port), version=2))
    await until(lambda: far.rtp.arrived)
    await hang_up(site, call_id)
    await report(site, call_id)
    assert lure.caught == []


async def test_a_reliable_answer_with_closed_media_ends_the_call(site: Node, far: Rogue, lure: Traps) -> None:
    far.say(183, far.contact, "Require: 100rel", "RSeq: 7", body=sdp((CLOSED, lure.port)))
    over = await report(site, await call(site, far))
    assert lure.caught == []
    assert over["hangupCause"] == "address_refused"
    assert "CANCEL" in far.methods


@pytest.mark.parametrize("method", ["INVITE", "UPDATE"])
async def test_a_change_of_media_to_a_closed_address_is_refused_and_the_call_goes_on(
    site: Node, far: Rogue, lure: Traps, method: str
) -> None:
    far.say(200, far.contact, body=far.media)
    call_id = await call(site, far)
    await until(lambda: far.rtp.arrived)
    far.send(far.request(method, 5, far.contact, body=sdp((CLOSED, lure.port), version=2)))
    await until(lambda: any(each.cseq.method == method and each.status >= 300 for each in far.responses))
    assert far.responses[-1].status == 488
    heard = len(far.rtp.arrived)
    await until(lambda: len(far.rtp.arrived) > heard + 10)
    await hang_up(site, call_id)
    assert (await report(site, call_id))["hangupCause"] == "normal"
    assert lure.caught == []


async def test_a_contact_that_moves_to_a_closed_address_in_the_call_gets_no_bye(
    site: Node, far: Rogue, lure: Traps
) -> None:
    far.say(200, far.contact, body=far.media)
    call_id = await call(site, far)
    await until(lambda: far.rtp.arrived)
    moved = f"Contact: <sip:x@{CLOSED}:{lure.port}>"
    far.send(far.request("UPDATE", 5, moved))
    await until(lambda: any(each.cseq.method == "UPDATE" for each in far.responses))
    assert far.responses[-1].status == 200
    await hang_up(site, call_id)
    await report(site, call_id)
    await asyncio.sleep(0.7)  # a BYE would be repeated after half a second
    assert lure.caught == []


async def test_symmetric_rtp_is_not_drawn_to_a_closed_address(site: Node, far: Rogue, lure: Traps) -> None:
    """SDP names an honest address, and the first packet comes from the closed one, then the honest one
    speaks."""
    far.say(200, far.contact, body=far.media)
    call_id = await call(site, far, symmetricRtp=True)
    await until(lambda: far.rtp.arrived)
    to = far.rtp.arrived[0][1]
    packet = bytes.fromhex("8000000100000000deadbeef") + b"\x55" * 160
    for _ in range(3):
        lure.datagrams.transport.sendto(packet, to)
        await asyncio.sleep(0.05)
    heard = len(far.rtp.arrived)
    await until(lambda: len(far.rtp.arrived) > heard + 5)
    await hang_up(site, call_id)
    await report(site, call_id)
    assert lure.caught == []


async def test_symmetric_rtp_waits_for_a_far_end_behind_a_nat(site: Node, far: Rogue, lure: Traps) -> None:
    """SDP names an address of the far end's own network: nothing is sent there, and the call is heard as soon
    as its packets show where it is."""
    before = blocked(site)
    far.say(200, far.contact, body=sdp((CLOSED, lure.port)))
    call_id = await call(site, far, symmetricRtp=True)
    await until(lambda: "ACK" in far.methods)
    await asyncio.sleep(0.3)
    assert far.rtp.arrived == []
    port = int(far.asked("INVITE")[0].body.split(b"m=audio ")[1].split(b" ")[0])
    for number in range(20):
        head = bytes.fromhex("8000") + struct.pack(">HI", number, number * 160) + bytes.fromhex("deadbeef")
        far.rtp.transport.sendto(head + b"\x55" * 160, ("127.0.0.1", port))
        await asyncio.sleep(0.02)
    await until(lambda: len(far.rtp.arrived) > 10)
    await hang_up(site, call_id)
    assert (await report(site, call_id))["hangupCause"] == "normal"
    assert lure.caught == []
    assert blocked(site) == before + 1


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_a_registration_is_not_led_to_a_closed_address(
    site: Node, lure: Traps, monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    """The name is of nobody when the trunk is made, and leads to a closed address when it registers."""
    server, client = site
    name = f"{transport}.carrier.example"
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo
    asked: list[str] = []

    async def rebound(host: Any, *more: Any, **named: Any) -> Any:
        if host != name:
            return await resolve(host, *more, **named)
        asked.append(host)
        return await resolve(CLOSED if len(asked) > 1 else "203.0.114.1", *more, **named)

    monkeypatch.setattr(loop, "getaddrinfo", rebound)
    before = blocked(site)
    uri = f"sip:{name}:{lure.port};transport={transport}"
    trunk = {"uri": uri, "username": transport, "password": "pw", "register": True}
    made = await ask(client, "POST", "/trunks", trunk)
    await until(lambda: len(asked) > 1)
    await asyncio.sleep(0.7)  # a REGISTER by UDP would be repeated after half a second
    assert not server.endpoint.trunks[made["id"]].registered
    await ask(client, "DELETE", f"/trunks/{made['id']}")
    assert lure.caught == []
    assert blocked(site) > before
    assert b'mediaserver_sip_dropped_total{kind="blocked"}' in await metrics(client)


async def metrics(client: Client) -> bytes:
    async with client.get("/metrics") as answer:
        return await answer.read()


async def test_a_change_of_one_trunk_leaves_the_others_as_they_are(site: Node) -> None:
    server, client = site
    before = dict(server.endpoint.trunks)
    made = await ask(client, "POST", "/trunks", {"uri": "sip:carrier.example"})
    assert server.endpoint.trunks.items() >= before.items()
    await ask(client, "DELETE", f"/trunks/{made['id']}")


async def test_what_stands_in_a_via_leads_no_answer_elsewhere(site: Node, far: Rogue, lure: Traps) -> None:
    server, _ = site
    via = f"SIP/2.0/UDP {CLOSED}:{lure.port};branch=z9hG4bKv;maddr={CLOSED};received={CLOSED};rport"
    request = (
        f"OPTIONS sip:100@127.0.0.1 SIP/2.0\r\nVia: {via}\r\nMax-Forwards: 70\r\nFrom: <sip:x@h>;tag=f\r\n"
        "To: <sip:100@h>\r\nCall-ID: via\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    )
    far.server = address(server.endpoint)
    far.send(request.encode())
    await until(lambda: far.responses)
    assert lure.caught == []


async def test_a_trunk_over_the_file_reaches_its_own_hosts(tmp_path: Path) -> None:
    """No `allow_networks`: 127.0.0.1 is open because the operator's file names it, and media elsewhere is
    not."""
    where = write_api_site(tmp_path)
    text = where.path.read_text().replace('allow_networks = ["127.0.0.0/8"]\n', "")
    text = text.replace("transport=tcp", "transport=udp")
    async with traps() as lure, rogue() as far:
        text = text.replace(f"sip:127.0.0.1:{where.carrier};", f"sip:127.0.0.1:{far.sip.port};", 1)
        where.path.write_text(text)
        async with running(where) as site:
            far.say(200, far.contact, body=far.media)
            assert (await by_file(site, "+14155550177"))["hangupCause"] != "address_refused"
            assert far.rtp.arrived
            far.script.clear()
            far.say(200, far.contact, body=sdp((CLOSED, lure.port)))
            assert (await by_file(site, "+14155550178"))["hangupCause"] == "address_refused"
            assert lure.caught == []
        text = text.replace('allow_from = ["127.0.0.1/32"]', f'allow_from = ["{CLOSED}/32"]', 1)
        where.path.write_text(text)
        async with running(where) as site:
            await by_file(site, "+14155550179")
            assert set(lure.caught) == {"RTP"}


async def by_file(site: Node, number: str) -> dict[str, Any]:
    """A call over the file's trunk, hung up after a while."""
    body = {"agentId": "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11", "phoneNumber": number}
    body["promptVariables"] = {"name": "Mary"}  # type: ignore[assignment]
    placed = await ask(site[1], "POST", "/calls/outbound", body, KEY)
    await asyncio.sleep(1.0)
    await ask(site[1], "POST", f"/calls/{placed['data']['callTaskId']}/hangup", {}, KEY)
    return await until_final(site[1], placed["data"]["callTaskId"])
