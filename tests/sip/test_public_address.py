"""A trunk behind a NAT of its own: its peers see its public address, those of other trunks do not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sip.endpoint import Endpoint, EndpointSettings
from sip.message.message import Request
from sip.trunk_settings import TrunkSettings
from tests.support.ports import free_port
from tests.support.sip.raw_call import RawCall
from tests.support.sip.raw_carrier import raw_carrier, says
from tests.support.sip.sip_phones import address
from tests.support.waiting import until

PUBLIC = "203.0.113.7"


@asynccontextmanager
async def endpoint(port: int, public: str, **options: object) -> AsyncIterator[Endpoint]:
    settings = {"id": "mine", "uri": f"sip:127.0.0.1:{port};transport=udp", "allow_from": ("127.0.0.1/32",)}
    async with Endpoint(EndpointSettings(udp="127.0.0.1:0", rtp_ports=(25200, 25299))) as phone:
        phone.add_trunk(TrunkSettings(**settings, public_address=public, **options))  # type: ignore[arg-type]
        yield phone


def places(request: Request) -> dict[str, str]:
    """The addresses that a request names as its sender's."""
    found = re.search(rb"c=IN IP4 (\S+)", request.body)
    named = {"Via": request.via.host, "Contact": request.contacts[0].uri.host}
    return named | ({"From": request.from_.uri.host, "SDP": found[1].decode()} if found else {})


@pytest.mark.parametrize(("public", "seen"), [(PUBLIC, PUBLIC), ("", "127.0.0.1")])
async def test_whom_a_trunk_calls_sees_its_public_address(public: str, seen: str) -> None:
    port = free_port()
    async with raw_carrier(port, says(487)) as carrier, endpoint(port, public) as phone:
        call = await phone.trunks["mine"].call("100")
        await until(lambda: carrier.seen)
        assert places(carrier.seen[0]) == dict.fromkeys(("Via", "Contact", "From", "SDP"), seen)
        await call.hang_up()
        await call.ended()


@pytest.mark.parametrize("options", [{"register": True, "username": "acme"}, {"options_ping_s": 30.0}])
async def test_registrars_and_pinged_servers_see_it(options: dict[str, object]) -> None:
    port = free_port()
    async with raw_carrier(port, says(487)) as carrier, endpoint(port, PUBLIC, **options):
        await until(lambda: carrier.seen)
        assert places(carrier.seen[0]) == {"Via": PUBLIC, "Contact": PUBLIC}
        carrier.answer(carrier.seen[0], 200)


@pytest.mark.parametrize(("public", "seen"), [(PUBLIC, PUBLIC), ("", "127.0.0.1")])
async def test_who_calls_by_a_trunk_sees_it(public: str, seen: str) -> None:
    async with endpoint(9, public) as phone, RawCall(address(phone)[1], "100") as caller:
        caller.invite()
        call = await anext(phone.incoming())
        await call.answer()
        answer = await caller.final()
        caller.take_answer(answer)
        caller.send(caller.request("ACK", cseq=1))
        assert answer.headers.get("Contact") is not None
        assert answer.contacts[0].uri.host == seen
        assert f"c=IN IP4 {seen}".encode() in answer.body
        hanging_up = asyncio.create_task(call.hang_up())
        bye = await caller.asked("BYE")
        assert bye.via.host == seen
        caller.reply(bye)
        await hanging_up
