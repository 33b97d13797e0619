"""What a trunk may send to, asked at the socket: its rule, names that are led elsewhere, and connections that
are there already."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pipeline.net.egress import EgressPolicy
from sip.call import CallFailed
from sip.egress import Egress, EgressRule, canonical
from sip.endpoint import Endpoint, EndpointSettings
from sip.message.uri import Uri
from sip.stack.transport import Transport
from sip.states import HangupCause
from sip.transaction.hop import Transmission, hop_of
from sip.trunk_settings import TrunkSettings
from tests.support.hostile.rogue import CLOSED, rogue, traps, udp
from tests.support.ports import free_rtp_range
from tests.support.waiting import until

PATIENCE_S = 20.0
SETTINGS = EndpointSettings(udp="127.0.0.1:0", tcp="127.0.0.1:0", rtp_ports=free_rtp_range())
OPEN = EgressPolicy(["127.0.0.1/32"])


@pytest.mark.parametrize(
    ("address", "spelled"),
    [
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("pbx.example", "pbx.example"),
    ],
)
def test_one_spelling_for_each_address(address: str, spelled: str) -> None:
    assert canonical(address) == spelled


def test_a_rule_opens_its_networks_its_hosts_and_what_these_lead_to() -> None:
    known = {"pbx.lan": ("10.0.0.5",)}
    rule = EgressRule(OPEN, frozenset({"pbx.lan", "10.0.0.9"}), lambda host: known.get(host, (host,)))
    egress = Egress(rule, peer="::ffff:10.0.0.7")
    opened = ("127.0.0.1", "10.0.0.5", "10.0.0.9", "10.0.0.7", "8.8.8.8")
    assert [egress.allows(each) for each in opened] == [True] * 5
    assert egress.allows("10.0.0.6", host="PBX.lan")  # the operator's own name, wherever it leads
    assert not egress.allows("10.0.0.6")
    assert not egress.allows("10.0.0.6", host="elsewhere.example")


async def test_a_trunk_reaches_its_own_host_by_name_and_media_beside_it() -> None:
    async with Endpoint(SETTINGS) as phone, rogue() as far:
        far.say(200, far.contact, body=far.media)
        uri = f"sip:localhost:{far.sip.port};transport=udp"
        trunk = phone.add_trunk(
            TrunkSettings(id="out", uri=uri, egress=EgressPolicy(), trusted_hosts=("localhost",))
        )
        call = await trunk.call("1")
        await asyncio.wait_for(call.answered(), PATIENCE_S)
        await until(lambda: far.rtp.arrived)
        await call.hang_up()
        assert phone.stats.blocked == 0
        stranger = phone.add_trunk(TrunkSettings(id="api", uri=uri, egress=EgressPolicy()))
        with pytest.raises(CallFailed) as failed:
            await stranger.call("1")
        assert failed.value.cause is HangupCause.ADDRESS_REFUSED


@pytest.mark.parametrize("when", ["ringing", "up"])
async def test_a_name_that_is_led_elsewhere_in_the_call_gets_no_bye_and_cancel_goes_where_the_invite_went(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    loop = asyncio.get_running_loop()
    resolve, leads_to = loop.getaddrinfo, ["127.0.0.1"]

    async def named(host: Any, *more: Any, **others: Any) -> Any:
        return await resolve(leads_to[0] if host == "carrier.example" else host, *more, **others)

    monkeypatch.setattr(loop, "getaddrinfo", named)
    async with Endpoint(SETTINGS) as phone, rogue() as far, udp(CLOSED, far.sip.port) as lure:
        name = f"sip:carrier.example:{far.sip.port};transport=udp"
        far.say(180, f"Contact: <{name}>")
        if when == "up":
            far.say(200, f"Contact: <{name}>", body=far.media)
        call = await phone.add_trunk(TrunkSettings(id="out", uri=name, egress=OPEN)).call("1")
        reached = "ACK" if when == "up" else "INVITE"
        await until(lambda: reached in far.methods and call.state != "dialing")
        leads_to[0] = CLOSED
        phone._driver.transport.names._known.clear()  # a minute later
        await call.hang_up()
        if when == "up":
            await until(lambda: phone.stats.blocked)
            assert "BYE" not in far.methods
        else:
            await until(lambda: "CANCEL" in far.methods)
        assert lure.arrived == []


async def test_a_refused_address_is_passed_over_for_the_next_of_the_trunk() -> None:
    async with Endpoint(SETTINGS) as phone, rogue() as far, traps() as lure:
        far.say(486)
        uri = f"sip:{CLOSED}:{lure.port};transport=udp"
        line = TrunkSettings(id="out", uri=uri, backup_uris=(far.uri,), egress=OPEN)
        call = await phone.add_trunk(line).call("1")
        assert await asyncio.wait_for(call.ended(), PATIENCE_S) is HangupCause.BUSY
        assert (lure.caught, phone.stats.blocked) == ([], 1)


async def test_a_connection_that_another_trunk_has_made_is_not_borrowed() -> None:
    """The operator's trunk is connected to a closed address; a tenant's names the same address, and its
    name."""
    refused: list[tuple[Transmission, str]] = []
    transport = Transport(
        datagram=lambda data, hop: None,
        message=lambda message, hop: None,
        failed=lambda transmission: None,
        refused=lambda transmission, address: refused.append((transmission, address)),
    )
    arrived: list[bytes] = []

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(await reader.read(100))
        arrived.append(await reader.read(100))
        writer.close()

    async with await asyncio.start_server(keep, CLOSED, 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        uri = Uri.parse(f"sip:{CLOSED}:{port};transport=tcp")
        operators = hop_of(uri, egress=Egress(EgressRule(OPEN, frozenset({CLOSED}))))
        tenants = hop_of(uri, egress=Egress(EgressRule(OPEN)))
        transport.send(Transmission(b"tenant first", tenants, "a"))
        transport.send(Transmission(b"operator", operators, "b"))
        await until(lambda: arrived)
        transport.send(Transmission(b"tenant", tenants, "c"))
        await transport.close()
        assert arrived[0] == b"operator"
        assert [(each.key, address) for each, address in refused] == [("a", CLOSED), ("c", CLOSED)]
