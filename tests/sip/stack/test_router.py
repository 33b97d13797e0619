"""Where a SIP URI leads by DNS (RFC 3263), asked of a name server on the loopback."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from pipeline.net.egress import EgressPolicy
from sip.call import CallFailed
from sip.endpoint import Endpoint, EndpointSettings
from sip.message.uri import Uri
from sip.stack.dns import Dns
from sip.stack.resolver import Names
from sip.stack.router import Router
from sip.states import HangupCause
from sip.trunk_settings import TrunkSettings
from tests.support.hostile.rogue import CLOSED, Rogue, rogue, traps
from tests.support.ports import free_port, free_rtp_range
from tests.support.sip.name_server import NameServer, Zone
from tests.support.udp import bound

PATIENCE_S = 20.0
OPEN = EgressPolicy(["127.0.0.1/32"])

FULL: Zone = {
    ("carrier.test", "NAPTR"): (
        60,
        [
            '20 10 "s" "SIP+D2U" "" _sip._udp.carrier.test.',
            '10 20 "s" "SIP+D2T" "" _sip._tcp.carrier.test.',
            '10 10 "s" "SIPS+D2T" "" _sips._tcp.carrier.test.',
            '5 10 "s" "SIP+D2S" "" _sip._sctp.carrier.test.',
            '5 10 "u" "SIP+D2U" "!^.*$!sip:x@y!" .',
        ],
    ),
    ("_sips._tcp.carrier.test", "SRV"): (60, ["1 1 5091 one.carrier.test."]),
    ("_sip._tcp.carrier.test", "SRV"): (60, ["1 1 5081 one.carrier.test."]),
    ("_sip._udp.carrier.test", "SRV"): (60, ["20 0 5062 two.carrier.test.", "10 0 5061 one.carrier.test."]),
    ("one.carrier.test", "A"): (60, ["192.0.2.1", "192.0.2.2"]),
    ("one.carrier.test", "AAAA"): (60, ["2001:db8::1"]),
    ("two.carrier.test", "A"): (60, ["192.0.2.3"]),
    ("carrier.test", "A"): (60, ["192.0.2.9"]),
}


@asynccontextmanager
async def routing(zone: Zone, seed: int = 1) -> AsyncIterator[tuple[Router, NameServer]]:
    loop = asyncio.get_running_loop()
    async with bound(NameServer(zone)) as server:
        dns = Dns(loop, server=server.address)
        names = Names(loop, lambda: None, dns)
        try:
            yield Router(dns, names, random=Random(seed)), server
        finally:
            await names.close()


async def led(zone: Zone, uri: str) -> list[str]:
    async with routing(zone) as (router, _):
        hops = await router.hops(Uri.parse(uri))
        return [f"{hop.transport} {hop.host} {hop.port}" for hop in hops]


ONE = ["192.0.2.1", "192.0.2.2", "2001:db8::1"]


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("sip:1@192.0.2.7", ["udp 192.0.2.7 5060"]),
        ("sip:1@192.0.2.7;transport=tls", ["tls 192.0.2.7 5061"]),
        ("sip:1@carrier.test:5099", ["udp 192.0.2.9 5099"]),
        ("sip:1@carrier.test:5099;transport=tcp", ["tcp 192.0.2.9 5099"]),
        (
            "sip:1@carrier.test;transport=udp",
            [*(f"udp {each} 5061" for each in ONE), "udp 192.0.2.3 5062"],
        ),
        ("sip:1@carrier.test;transport=tcp", [f"tcp {each} 5081" for each in ONE]),
        ("sips:1@carrier.test", [f"tls {each} 5091" for each in ONE]),
        (
            "sip:1@carrier.test",
            [
                *(f"tls {each} 5091" for each in ONE),
                *(f"tcp {each} 5081" for each in ONE),
                *(f"udp {each} 5061" for each in ONE),
                "udp 192.0.2.3 5062",
            ],
        ),
        ("sip:1@two.carrier.test", ["udp 192.0.2.3 5060"]),
        ("sips:1@two.carrier.test", ["tls 192.0.2.3 5061"]),
    ],
)
async def test_transport_port_and_addresses(uri: str, expected: list[str]) -> None:
    found = await led(FULL, uri)
    assert sorted(found) == sorted(expected)
    assert [place(each) for each in found] == [place(each) for each in expected]


def place(hop: str) -> tuple[str, str]:
    """Transport and port: servers shuffle the addresses of one host."""
    transport, _, port = hop.split()
    return transport, port


async def test_without_naptr_the_transports_are_asked_for_by_srv() -> None:
    zone: Zone = {
        ("_sip._tcp.pbx.test", "SRV"): (60, ["1 1 5070 a.test.", "1 1 5071 gone.test.", "0 0 0 ."]),
        ("a.test", "A"): (60, ["192.0.2.1"]),
    }
    assert await led(zone, "sip:1@pbx.test") == ["tcp 192.0.2.1 5070"]


@pytest.mark.parametrize("uri", ["sip:1@pbx.test", "sip:1@pbx.test;transport=udp"])
async def test_a_domain_that_offers_no_sip_is_not_called_at_its_address(uri: str) -> None:
    zone: Zone = {
        ("_sip._udp.pbx.test", "SRV"): (60, ["0 0 0 ."]),
        ("pbx.test", "A"): (60, ["192.0.2.1"]),
    }
    with pytest.raises(OSError, match="no such service"):
        await led(zone, uri)
    assert await led(zone, "sip:1@pbx.test;transport=tcp") == ["tcp 192.0.2.1 5060"]


async def test_weights_share_the_calls_within_a_priority() -> None:
    records = ["1 70 5060 a.test.", "1 20 5060 b.test.", "1 10 5060 c.test.", "2 99 5060 d.test."]
    zone: Zone = {
        ("_sip._udp.pbx.test", "SRV"): (60, records),
        **{(f"{each}.test", "A"): (60, [f"192.0.2.{ord(each)}"]) for each in "abcd"},
    }
    firsts: Counter[str] = Counter()
    async with routing(zone) as (router, _):
        for _ in range(2000):
            hops = await router.hops(Uri.parse("sip:1@pbx.test;transport=udp"))
            firsts[chr(int(hops[0].host.rpartition(".")[2]))] += 1
            assert hops[-1].host == f"192.0.2.{ord('d')}"
    assert 0.66 < firsts["a"] / 2000 < 0.74
    assert 0.16 < firsts["b"] / 2000 < 0.24
    assert 0.07 < firsts["c"] / 2000 < 0.13


async def test_answers_are_kept_for_their_ttl_and_refusals_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, ahead_s = asyncio.get_running_loop(), 0.0
    time = loop.time
    async with routing({**FULL, ("one.carrier.test", "A"): (5, ["192.0.2.1"])}) as (router, server):
        monkeypatch.setattr(loop, "time", lambda: time() + ahead_s)
        await router.hops(Uri.parse("sip:1@carrier.test;transport=tcp"))
        asked = len(server.asked)
        ahead_s = 4.0
        await router.hops(Uri.parse("sip:1@carrier.test;transport=tcp"))
        assert len(server.asked) == asked
        ahead_s = 8.0
        server.zone[("one.carrier.test", "A")] = (5, ["192.0.2.77"])
        hops = await router.hops(Uri.parse("sip:1@carrier.test;transport=tcp"))
        assert hops[0].host == "192.0.2.77"
        assert server.asked[asked:] == [("one.carrier.test", "A")]


async def test_a_name_without_any_record_is_nowhere() -> None:
    async with routing(FULL) as (router, server):
        with pytest.raises(OSError, match="no address"):
            await router.hops(Uri.parse("sip:1@elsewhere.test"))
        server.silent = True


# Calls -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def phone_with(zone: Zone) -> AsyncIterator[Endpoint]:
    async with bound(NameServer(zone)) as server:
        settings = EndpointSettings(udp="127.0.0.1:0", rtp_ports=free_rtp_range(), dns=server.address)
        async with Endpoint(settings) as phone:
            yield phone


def pool(*records: str) -> Zone:
    return {
        ("_sip._udp.pool.test", "SRV"): (60, list(records)),
        ("here.test", "A"): (60, ["127.0.0.1"]),
        ("closed.test", "A"): (60, [CLOSED]),
    }


async def ended(phone: Endpoint, **settings: object) -> HangupCause:
    line = TrunkSettings(**{"id": "out", "uri": "sip:pool.test;transport=udp", "egress": OPEN, **settings})  # type: ignore[arg-type]
    call = await phone.add_trunk(line).call("100")
    return await asyncio.wait_for(call.ended(), PATIENCE_S)


async def test_a_call_goes_by_srv_past_a_dead_server_to_the_living_one() -> None:
    async with rogue() as far:
        far.say(486)
        dead = f"1 0 {free_port()} here.test."
        async with phone_with(pool(dead, f"2 0 {far.sip.port} here.test.")) as phone:
            assert await ended(phone) is HangupCause.BUSY
    (invite,) = {request.call_id: request for request in far.asked("INVITE")}.values()
    assert str(invite.uri) == "sip:100@pool.test;transport=udp"  # the Request-URI keeps the domain


async def test_each_address_that_dns_names_is_held_to_the_reach_rules() -> None:
    async with rogue() as far, traps() as lure:
        far.say(486)
        zone = pool(f"1 0 {lure.port} closed.test.", f"2 0 {far.sip.port} here.test.")
        async with phone_with(zone) as phone:
            assert await ended(phone) is HangupCause.BUSY
            assert (lure.caught, phone.stats.blocked) == ([], 1)
        async with phone_with(pool(f"1 0 {lure.port} closed.test.")) as phone:
            with pytest.raises(CallFailed) as failed:
                await ended(phone)
            assert (failed.value.cause, lure.caught) == (HangupCause.ADDRESS_REFUSED, [])


async def test_an_outbound_proxy_gets_every_request_with_a_preloaded_route() -> None:
    async with rogue() as far:
        far.say(200, far.contact, body=far.media)
        async with phone_with({("carrier.test", "A"): (60, ["192.0.2.9"])}) as phone:
            proxy = f"sip:127.0.0.1:{far.sip.port};lr"
            line = TrunkSettings(id="out", uri="sip:carrier.test", outbound_proxy=proxy, egress=OPEN)
            call = await phone.add_trunk(line).call("100")
            await asyncio.wait_for(call.answered(), PATIENCE_S)
            await call.hang_up()
    (invite,) = {request.call_id: request for request in far.asked("INVITE")}.values()
    assert (str(invite.uri), invite.header("Route")) == ("sip:100@carrier.test", f"<{proxy}>")
    assert far.asked("BYE")[0].header("Route") is None  # within the call the far end's route counts


def redirecting(far: Rogue, *contacts: str) -> None:
    far.say(302, *(f"Contact: {each}" for each in contacts))


@pytest.mark.parametrize(("redirects", "cause"), [(0, HangupCause.REMOTE_ERROR), (1, HangupCause.BUSY)])
async def test_a_redirection_is_followed_where_the_trunk_says_so(redirects: int, cause: HangupCause) -> None:
    async with rogue() as first, rogue() as second, phone_with({}) as phone:
        second.say(486)
        there = f"127.0.0.1:{second.sip.port}"
        redirecting(first, f"<sip:100@{there}>;q=0.5")
        assert await ended(phone, uri=first.uri, follow_redirects=redirects) is cause
        assert len({each.call_id for each in second.asked("INVITE")}) == redirects


async def test_a_redirection_leads_to_no_other_number_and_no_closed_address() -> None:
    async with rogue() as first, rogue() as second, traps() as lure, phone_with({}) as phone:
        second.say(486)
        there = f"127.0.0.1:{second.sip.port}"
        redirecting(
            first,
            f"<sip:19005551234@{there}>;q=1",
            f"<sip:100@{CLOSED}:{lure.port}>;q=0.9",
            f"<sip:100@{there};transport=udp>;q=0.8",
            "<tel:+100>",
        )
        assert await ended(phone, uri=first.uri, follow_redirects=3) is HangupCause.BUSY
        assert lure.caught == []
        assert {each.uri.user for each in second.asked("INVITE")} == {"100"}
