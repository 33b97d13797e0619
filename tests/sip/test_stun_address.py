"""A trunk whose public address a STUN server tells: learned, followed when it changes, kept when the server
falls silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sip.egress import PublicAddress
from sip.endpoint import Endpoint, EndpointSettings
from sip.errors import LocalError
from sip.message.message import Request
from sip.stack.resolver import Names
from sip.trunk import Trunk
from sip.trunk_settings import TrunkSettings
from tests.support.ports import free_port
from tests.support.sip.raw_carrier import RawCarrier, raw_carrier, says
from tests.support.sip.stun import ONE, stun_server
from tests.support.waiting import until

OTHER = "203.0.113.8"


@asynccontextmanager
async def trunk_of(server: int, carrier: int, **options: object) -> AsyncIterator[Trunk]:
    settings = {"id": "mine", "uri": f"sip:127.0.0.1:{carrier};transport=udp", "stun_every_s": 0.2}
    settings |= {"public_address": f"stun:127.0.0.1:{server}", **options}
    async with Endpoint(EndpointSettings(udp="127.0.0.1:0", rtp_ports=(25300, 25399))) as phone:
        yield phone.add_trunk(TrunkSettings(**settings))  # type: ignore[arg-type]


def places(request: Request) -> set[str]:
    return {request.via.host, request.contacts[0].uri.host} | (
        {request.body.decode().partition("c=IN IP4 ")[2].split()[0]} if request.body else set()
    )


async def called(trunk: Trunk, carrier: RawCarrier) -> set[str]:
    """The addresses that an INVITE names."""
    before = len(carrier.seen)
    call = await trunk.call("100")
    await until(lambda: len(carrier.seen) > before)
    await call.hang_up()
    await call.ended()
    return places(carrier.seen[before])


async def test_calls_show_what_the_server_says_and_follow_it() -> None:
    port = free_port()
    async with (
        stun_server() as server,
        raw_carrier(port, says(487)) as carrier,
        trunk_of(server.port, port) as trunk,
    ):
        await until(lambda: trunk.public.now == ONE)
        assert await called(trunk, carrier) == {ONE}
        server.address = OTHER
        await until(lambda: trunk.public.now == OTHER)
        assert await called(trunk, carrier) == {OTHER}


async def test_while_the_server_is_silent_what_it_said_last_counts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    port = free_port()
    async with (
        stun_server() as server,
        raw_carrier(port, says(487)) as carrier,
        trunk_of(server.port, port) as trunk,
    ):
        await until(lambda: trunk.public.now == ONE)
        server.address = ""
        await until(lambda: trunk.public.failed, timeout_s=20.0)
        assert await called(trunk, carrier) == {ONE}
        asked = server.asked
        await until(lambda: server.asked > asked + 4, timeout_s=20.0)  # a second round in vain
        server.address = ONE
        await until(lambda: not trunk.public.failed, timeout_s=20.0)
        assert await called(trunk, carrier) == {ONE}
    lines = [each.message for each in caplog.records if "public address" in each.message]
    assert lines == ["public address of a trunk changed", "public address of a trunk is not told"]


async def test_a_trunk_registers_with_the_address_that_it_was_told_and_moves_with_it() -> None:
    """No contact of an address that is not its own ever stands at the registrar."""
    port = free_port()
    async with stun_server() as server, raw_carrier(port, says(487)) as carrier:
        server.lost = 1  # the first question is lost: the registration waits
        async with trunk_of(server.port, port, register=True, username="acme"):
            await until(lambda: carrier.seen)
            first = carrier.seen[0]
            assert (first.method, places(first)) == ("REGISTER", {ONE})
            carrier.answer(first, 200, lines=[f"Contact: {first.header('Contact')};expires=600"])
            await asyncio.sleep(0.3)
            server.address = OTHER
            await until(lambda: len(carrier.seen) == 3)
            gone, new = carrier.seen[1:3]
            assert (gone.header("Expires"), gone.contacts[0].uri.host) == ("0", ONE)
            assert (new.header("Expires") != "0", places(new)) == (True, {OTHER})
            for each in (gone, new):
                carrier.answer(each, 200, lines=[f"Contact: {each.header('Contact')};expires=600"])


async def test_a_server_that_never_answers_holds_up_neither_calls_nor_the_registration() -> None:
    port = free_port()
    async with (
        raw_carrier(port, says(487)) as carrier,
        trunk_of(free_port(), port, register=True, username="acme") as trunk,
    ):
        await until(lambda: carrier.seen, timeout_s=20.0)
        assert places(carrier.seen[0]) == {"127.0.0.1"}
        carrier.answer(carrier.seen[0], 403)
        assert await called(trunk, carrier) == {"127.0.0.1"}


async def test_an_address_of_another_family_than_the_trunks_is_never_told() -> None:
    """A carrier of IPv4 can send nothing to what an IPv6 socket is seen as."""
    port = free_port()
    async with (
        stun_server(address="2001:db8::5") as server,
        raw_carrier(port, says(487)) as carrier,
        trunk_of(server.port, port) as trunk,
    ):
        await until(lambda: trunk.public.failed)
        assert await called(trunk, carrier) == {"127.0.0.1"}


@pytest.mark.parametrize("bound", ["127.0.0.1:0", "[::]:0"])
async def test_of_a_servers_addresses_those_of_the_trunks_family_are_asked_each_in_turn(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def both(names: Names, host: str) -> tuple[str, ...]:
        return ("::1", "127.0.0.9", "127.0.0.1")

    async with stun_server() as server, Endpoint(EndpointSettings(udp=bound)) as phone:
        monkeypatch.setattr(Names, "all_of", both)
        trunk = phone.add_trunk(
            TrunkSettings(
                id="mine", uri="sip:127.0.0.1", public_address=f"stun:stun.example.com:{server.port}"
            )
        )
        await until(lambda: trunk.public.now == ONE)


async def test_an_answer_that_cannot_be_read_is_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    async with stun_server() as server, trunk_of(server.port, free_port()) as trunk:
        await until(lambda: trunk.public.now == ONE)
    assert [each.message for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("text", ["stun:", "stun:host:99999", "stun:a/b", "stun:me@host"])
def test_what_names_no_stun_server_is_refused(text: str) -> None:
    with pytest.raises(LocalError, match="public_address"):
        TrunkSettings(id="mine", uri="sip:127.0.0.1", public_address=text)


def test_how_a_stun_server_is_named() -> None:
    assert PublicAddress.of("stun:stun.example.com").server == ("stun.example.com", 3478)
    assert PublicAddress.of("stun:[2001:db8::1]:3479").server == ("2001:db8::1", 3479)
    assert PublicAddress.of(ONE) == PublicAddress(ONE)
