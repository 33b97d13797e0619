"""Which servers of a carrier live, by OPTIONS, and that calls try the others first."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from sip.dialog.options_ping import PATIENCE_S, SLOWEST_S, Health, OptionsPing, ServerHealth
from sip.dialog.target_set import Target
from sip.egress import ANYWHERE
from sip.endpoint import Endpoint, EndpointSettings
from sip.message.headers import NameAddr
from sip.message.message import Request, parse, response_to
from sip.message.uri import Uri
from sip.states import HangupCause
from sip.trunk_settings import TrunkSettings
from tests.support.hostile.rogue import rogue
from tests.support.ports import free_port, free_rtp_range
from tests.support.sip.sip_world import Party
from tests.support.waiting import until

ALICE, BOB = "192.0.2.1", "192.0.2.2"
PATIENCE = 20.0


class Asking:
    """Alice asks Bob, who answers `status`, 0: not at all."""

    def __init__(self, status: int, every_s: float = 30.0) -> None:
        self.status = status
        self.alice = Party(ALICE)
        self._seen: set[str] = set()
        self.now = 0.0
        self.asked: list[float] = []
        self.changes: list[Health] = []
        self.ping = OptionsPing(
            self.alice.stack,
            every_s=every_s,
            caller=NameAddr(Uri("sip", "acme", ALICE)),
            egress=ANYWHERE,
            changed=self._changed,
        )
        self.target = Target.of(Uri.parse(f"sip:{BOB}"))
        self.ping.look_at([self.target], 0.0)
        self._answer()

    @property
    def server(self) -> ServerHealth:
        return self.ping.servers[0]

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while (at := self.alice.stack.timer_at()) is not None and at <= end:
            self.now = max(self.now, at)
            self.alice.stack.handle_timer(self.now)
            self._answer()
        self.now = end

    def _changed(self, server: ServerHealth) -> None:
        self.changes.append(server.health)

    def _answer(self) -> None:
        for each in self.alice.stack.transmissions():
            request = parse(each.data)
            assert isinstance(request, Request)
            assert request.method == "OPTIONS"
            if request.call_id not in self._seen:  # no repetition
                self._seen.add(request.call_id)
                self.asked.append(self.now)
            if self.status:
                self.now += 0.02
                self.alice.stack.receive(
                    response_to(request, self.status, to_tag="b").to_bytes(), each.hop, self.now
                )


@pytest.mark.parametrize(
    ("status", "health"),
    [
        (200, Health.UP),
        (404, Health.UP),
        (405, Health.UP),
        (486, Health.UP),
        (503, Health.DOWN),
        (408, Health.DOWN),
    ],
)
def test_any_answer_but_a_refusal_of_all_calls_is_a_sign_of_life(status: int, health: Health) -> None:
    asking = Asking(status)
    asking.run(1)
    assert (asking.server.health, asking.server.status) == (health, status)
    assert asking.ping.down(asking.target.hop) is (health is Health.DOWN)
    assert round(asking.server.rtt_ms or 0) == 20


def test_a_live_server_is_asked_in_its_interval() -> None:
    asking = Asking(200, every_s=30)
    asking.run(400)
    gaps = [later - earlier for earlier, later in pairwise(asking.asked)]
    assert len(gaps) >= 12
    assert all(26 <= gap <= 31 for gap in gaps)
    assert asking.changes == [Health.UP]


def test_a_silent_server_is_down_soon_asked_ever_less_and_up_with_its_first_answer() -> None:
    asking = Asking(0, every_s=10)
    asking.run(PATIENCE_S + 0.1)
    assert asking.server.health is Health.DOWN
    asking.run(3000)
    gaps = [later - earlier for earlier, later in pairwise(asking.asked)]
    assert gaps[0] < gaps[1] < gaps[2]
    assert max(gaps) <= SLOWEST_S + PATIENCE_S + 1
    assert gaps[-1] > 0.8 * SLOWEST_S
    asking.status = 200
    asking.run(SLOWEST_S + 10)
    assert asking.changes == [Health.DOWN, Health.UP]
    asking.ping.stop()
    asking.run(100)
    assert len(asking.alice.stack.clock) == 0


def test_servers_that_the_names_no_longer_lead_to_are_asked_no_more() -> None:
    asking = Asking(200)
    other = Target.of(Uri.parse("sip:192.0.2.3"))
    asking.ping.look_at([other], 1.0)
    assert [each.hop.host for each in asking.ping.servers] == ["192.0.2.3"]


async def test_a_server_that_is_down_is_passed_over_without_an_invite() -> None:
    settings = EndpointSettings(udp="127.0.0.1:0", rtp_ports=free_rtp_range())
    async with Endpoint(settings) as phone, rogue() as far:
        far.say(486)
        dead = free_port()
        line = TrunkSettings(
            id="out", uri=f"sip:127.0.0.1:{dead};transport=udp", backup_uris=(far.uri,), options_ping_s=30
        )
        trunk = phone.add_trunk(line)
        await until(lambda: {each.health for each in trunk.servers} >= {Health.DOWN})
        call = await trunk.call("100")
        assert await asyncio.wait_for(call.ended(), PATIENCE) is HangupCause.BUSY
        assert call.trace is not None
        assert {each.hop.port for each in call.trace} == {far.sip.port}
        phone.remove_trunk("out")
        assert trunk.servers == []
