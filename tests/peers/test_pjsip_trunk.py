"""What a trunk does besides calls, on PJSIP as engine: TLS, registration, failover, transfers by REFER, the
record of a call whose process is killed, and a hundred calls at once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from mediaserver.server import Server
from sip.client_tls import ClientTlsSettings
from sip.endpoint import Endpoint, EndpointSettings
from sip.states import CallState, HangupCause
from sip.trunk_settings import TrunkSettings
from tests.peers.test_pjsip_engine import Line
from tests.support.certificates import tls_of_localhost
from tests.support.http.webhooks import receiver
from tests.support.node.node import place_call, running, until_final, write_site
from tests.support.ports import free_rtp_range
from tests.support.sip.ladder import NUMBERS, ladder
from tests.support.waiting import until
from tests.system.calls.test_trunk_hunt import SPARE, carrier, hang_up

pytestmark = [pytest.mark.peer, pytest.mark.nightly("ci")]

pytest.importorskip("pjsua2")

PJSIP = 'engine = "pjsua2"'
AT_ONCE = 100


async def test_a_trunk_over_tls_calls_and_is_heard(tmp_path: Path) -> None:
    context, ca = await tls_of_localhost(tmp_path)
    here = EndpointSettings(udp="127.0.0.1:0", rtp_ports=free_rtp_range(20))
    there = EndpointSettings(tls="127.0.0.1:0", tls_server=context, rtp_ports=free_rtp_range(20))
    async with Endpoint(here) as ours, Endpoint(there) as theirs:
        theirs.add_trunk(TrunkSettings(id="line", uri="sip:127.0.0.1:9", allow_from=("127.0.0.1",)))
        assert theirs.tls_address is not None
        uri = f"sip:localhost:{theirs.tls_address[1]};transport=tls"
        trunk = ours.add_trunk(
            TrunkSettings(id="line", uri=uri, engine="pjsua2", tls=ClientTlsSettings(ca=ca))
        )
        call = await trunk.call("200")
        far = await asyncio.wait_for(anext(theirs.incoming()), 20)
        await far.answer()
        await call.answered()
        assert len([each for each in ours.processes.all if each.calls]) == 1
        await far.hang_up()
        assert await call.ended() is HangupCause.NORMAL


async def test_a_registrar_calls_the_contact_of_a_trunk() -> None:
    here, there = (EndpointSettings(udp="127.0.0.1:0", rtp_ports=free_rtp_range(20)) for _ in range(2))
    async with Endpoint(here) as ours, Endpoint(there) as theirs:
        assert ours.udp_address is not None
        assert theirs.udp_address is not None
        account = {"username": "acme", "password": "secret"}
        far = theirs.add_trunk(
            TrunkSettings(id="us", uri="sip:127.0.0.1:9", accept_register=True, **account)  # type: ignore[arg-type]
        )
        uri = f"sip:127.0.0.1:{theirs.udp_address[1]};transport=udp"
        trunk = ours.add_trunk(
            TrunkSettings(id="line", uri=uri, register=True, engine="pjsua2", **account)  # type: ignore[arg-type]
        )
        await until(lambda: trunk.registered)
        ringing = await far.call("300")
        call = await asyncio.wait_for(anext(ours.incoming()), 20)
        await call.answer()
        await ringing.answered()
        assert len([each for each in ours.processes.all if each.calls]) == 1
        await ringing.hang_up()
        assert await call.ended() is HangupCause.NORMAL


@pytest.mark.parametrize("statuses", [(100, 503), ()])
async def test_a_call_that_a_trunk_does_not_take_goes_over_the_next(
    tmp_path: Path, statuses: tuple[int, ...]
) -> None:
    """Refused with 503, or not answered at all."""
    async with carrier(*statuses) as first, carrier(100, 180, 200) as second:
        site = write_site(tmp_path, more=SPARE, spare=second.port, keys=PJSIP).send_to(first.port)
        site.add('name = "Reminder"', 'trunks = ["spare"]')
        site.add('[[trunk]]\nid = "carrier"', f"failover_s = 0.5\n{PJSIP}")
        async with running(site) as (server, client):
            call_id = await place_call(client)
            await until(lambda: second.of("ACK"), timeout_s=20)
            (call,) = server.endpoint.calls.values()
            assert (call.trunk_id, call.state) == ("spare", CallState.ANSWERED)
            await hang_up(client, call_id)
            report = await until_final(client, call_id)
    assert len(first.of("INVITE")) == 1
    assert report["sip"]["passedOver"] == [{"trunkId": "carrier", "status": 503 if statuses else 408}]


@pytest.mark.parametrize(("name", "outcome"), [("202+NOTIFY", "answered"), ("603", "refused")])
async def test_a_caller_is_transferred_by_refer(tmp_path: Path, name: str, outcome: str) -> None:
    async with ladder(tmp_path, transfer="refer", trunk=PJSIP) as line:
        report, caller = await line.transferred(NUMBERS[name])
        assert line.node.server.endpoint.stats.rtp_ports_used == 0
    assert len(caller.referred) == 1
    assert report["analysis"]["transfer"]["outcome"] == outcome
    assert report["status"] == "COMPLETED"


async def test_the_record_and_the_webhook_of_a_call_whose_process_is_killed(tmp_path: Path) -> None:
    async with carrier(180, 200) as far, receiver() as hooks:
        hook = f'[[company.webhook]]\nurl = "{hooks.url}"\nsecret = "whsec_c2VjcmV0LXNlY3JldA=="'
        site = write_site(tmp_path).send_to(far.port).reach_this_machine()
        site.add('[[trunk]]\nid = "carrier"', PJSIP)
        site.change('[[company]]\nid = "other"', f'{hook}\n[[company]]\nid = "other"')
        async with running(site) as (server, client):
            call_id = await place_call(client)
            await until(lambda: far.of("ACK"), timeout_s=20)
            os.kill(_process(server), signal.SIGKILL)
            report = await until_final(client, call_id)
            await until(lambda: any('"call.completed"' in text for _, text in hooks.requests))
            assert server.endpoint.stats.rtp_ports_used == 0
    assert (report["status"], report["hangupCause"], report["endedBy"]) == (
        "COMPLETED",
        "engine_failed",
        "local",
    )
    assert len(far.of("INVITE")) == len(far.of("BYE")) == 1
    told = [json.loads(text) for _, text in hooks.requests]
    (ended,) = [each["data"] for each in told if each["type"] == "call.completed"]
    assert (ended["callTaskId"], ended["hangupCause"]) == (call_id, "engine_failed")


def _process(server: Server) -> int:
    (process,) = [each for each in server.endpoint.processes.all if each.calls]
    assert process.pid is not None
    return process.pid


async def test_a_hundred_calls_at_once_and_no_process_is_left() -> None:
    here, there = (
        EndpointSettings(udp="127.0.0.1:0", rtp_ports=free_rtp_range(2 * AT_ONCE + 20), max_calls=AT_ONCE)
        for _ in range(2)
    )
    async with Endpoint(here) as ours, Endpoint(there) as theirs:
        line = Line(ours, theirs)
        calls = [await line.call() for _ in range(AT_ONCE)]
        busy = [each for each in ours.processes.all if each.calls]
        assert len(busy) == AT_ONCE / 4
        assert {each.state for each, _ in calls} == {CallState.ANSWERED}
        for call, _ in calls:
            await call.hang_up()
        for call, far in calls:
            assert await call.ended() is HangupCause.NORMAL
            assert await far.ended() is HangupCause.NORMAL
        await until(lambda: len(ours.processes.all) <= 2, timeout_s=20)  # those that are kept warm
        assert (ours.processes.crashes, ours.stats.rtp_ports_used) == (0, 0)
