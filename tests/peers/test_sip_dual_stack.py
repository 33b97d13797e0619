"""An endpoint on [::] and peers of both families."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from sip.endpoint import Endpoint, EndpointSettings
from sip.states import HangupCause
from sip.trunk_settings import TrunkSettings
from tests.support.ports import free_rtp_range
from tests.support.sip.sip_phones import PATIENCE_S, address
from tests.support.speech.leg import Party
from tests.support.speech.tones import tone
from tests.support.waiting import until

pytestmark = pytest.mark.peer


def heard(ear: Party) -> bool:
    return ear.heard.size > 800


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
@pytest.mark.parametrize("transport", ["udp", "tcp"])
async def test_a_listener_on_every_address_takes_and_places_calls_of_both_families(
    host: str, transport: str
) -> None:
    everywhere = EndpointSettings(udp="[::]:0", tcp="[::]:0", rtp_ports=free_rtp_range())
    peer = EndpointSettings(udp=f"{host}:0", tcp=f"{host}:0", rtp_ports=free_rtp_range())
    async with Endpoint(everywhere) as ours, Endpoint(peer) as theirs:
        networks = ("127.0.0.1/32", "::1/128")
        for here, there in ((ours, theirs), (theirs, ours)):
            uri = f"sip:{host}:{address(there, transport)[1]};transport={transport}"
            here.add_trunk(TrunkSettings(id="line", uri=uri, allow_from=networks))
        for caller, called in ((theirs, ours), (ours, theirs)):
            call = await caller.trunks["line"].call("100")
            offered = await asyncio.wait_for(anext(called.incoming()), PATIENCE_S)
            await offered.answer()
            await asyncio.wait_for(call.answered(), PATIENCE_S)
            ears = [Party(each, tone(440, 2.0, 8000)) for each in (call, offered)]
            for ear in ears:
                await until(partial(heard, ear))
            await offered.hang_up()
            assert await asyncio.wait_for(call.ended(), PATIENCE_S) is HangupCause.NORMAL
