"""Requests too large for a datagram: a carrier that takes no connections gets them over UDP, soon."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from sip.endpoint import Endpoint, EndpointSettings
from sip.stack import transport
from sip.trunk_settings import TrunkSettings
from tests.support.hostile.rogue import rogue
from tests.support.ports import free_rtp_range
from tests.support.waiting import until

SIGNED = {"Identity": "a" * 600 + ";info=<https://cert.example.org/passport.cer>", "X-Long": "b" * 500}
PATIENCE_S = 5.0


@pytest.fixture
async def phone() -> AsyncIterator[Endpoint]:
    settings = EndpointSettings(udp="127.0.0.1:0", tcp="127.0.0.1:0", rtp_ports=free_rtp_range())
    async with Endpoint(settings) as endpoint:
        yield endpoint


@contextmanager
def dropped(port: int) -> Iterator[None]:
    """A port at which nobody takes connections, and nobody refuses them."""
    sockets = [socket.socket() for _ in range(5)]
    sockets[0].bind(("127.0.0.1", port))
    sockets[0].listen(0)
    for each in sockets[1:]:
        each.setblocking(False)
        each.connect_ex(("127.0.0.1", port))
    try:
        yield
    finally:
        for each in sockets:
            each.close()


async def test_a_carrier_that_drops_connections_gets_a_large_invite_over_udp(
    phone: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONNECT_TIMEOUT_S", 60.0)
    async with rogue() as far:
        far.say(486)
        with dropped(far.sip.port):
            trunk = phone.add_trunk(TrunkSettings(id="out", uri=far.uri.removesuffix(";transport=udp")))
            call = await trunk.call("1", headers=SIGNED)
            await until(lambda: far.asked("INVITE"), timeout_s=PATIENCE_S)
            assert len(far.asked("INVITE")[0].to_bytes()) > 1300
            await asyncio.wait_for(call.ended(), PATIENCE_S)
            monkeypatch.setattr(transport, "SWITCH_S", 60.0)  # is not waited for: no connection is tried
            call = await trunk.call("1", headers=SIGNED)
            await asyncio.wait_for(call.ended(), PATIENCE_S)


async def test_the_wait_for_a_connection_is_no_silence_of_the_carrier(phone: Endpoint) -> None:
    async with rogue() as first, rogue() as second:
        first.say(486)
        second.say(486)
        uris = [each.uri.removesuffix(";transport=udp") for each in (first, second)]
        with dropped(first.sip.port):
            trunk = phone.add_trunk(
                TrunkSettings(id="out", uri=uris[0], backup_uris=(uris[1],), failover_s=0.5)
            )
            call = await trunk.call("1", headers=SIGNED)
            await asyncio.wait_for(call.ended(), PATIENCE_S)
        assert (len(first.asked("INVITE")), second.asked("INVITE")) == (1, [])
