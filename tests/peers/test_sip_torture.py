"""RFC 4475 over real sockets: each message, byte for byte, to a phone that takes calls, and then a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sip.call import CallFailed
from sip.endpoint import Endpoint, EndpointSettings
from sip.states import HangupCause
from sip.trunk_settings import TrunkSettings
from tests.support.hostile.hostile import wrong_answer
from tests.support.hostile.torture import MESSAGES
from tests.support.ports import free_rtp_range

pytestmark = pytest.mark.peer


@pytest.fixture
async def phones() -> AsyncIterator[tuple[Endpoint, Endpoint]]:
    """One that answers every call, and one that calls it."""
    settings = EndpointSettings(udp="127.0.0.1:0", tcp="127.0.0.1:0", rtp_ports=free_rtp_range(300))
    async with Endpoint(settings) as called, Endpoint(settings) as caller:
        called.add_trunk(TrunkSettings(id="in", uri="sip:127.0.0.1:9", allow_from=("127.0.0.0/8",)))
        answering = asyncio.create_task(answer_all(called))
        yield called, caller
        answering.cancel()


async def answer_all(phone: Endpoint) -> None:
    async for call in phone.incoming():
        try:
            await call.answer()
        except CallFailed:
            continue


async def one_call(caller: Endpoint, uri: str) -> HangupCause:
    trunk = caller.trunks.get(uri) or caller.add_trunk(TrunkSettings(id=uri, uri=uri))
    call = await trunk.call("+14155550101")
    async with asyncio.timeout(30):
        await call.answered()
        await call.hang_up()
        return await call.ended()


@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_every_message_gets_its_answer_and_the_next_call_works(
    phones: tuple[Endpoint, Endpoint], transport: str
) -> None:
    called, caller = phones
    address = called.udp_address if transport == "udp" else called.tcp_address
    assert address is not None
    uri = f"sip:127.0.0.1:{address[1]};transport={transport}"
    for name in MESSAGES:
        assert await wrong_answer(name, address[1], transport) is None, name
        assert await one_call(caller, uri) is HangupCause.NORMAL, name
