"""Failover: which silence, refusal or error leads to the next server, and that nobody is called twice."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import pytest

from pipeline.net.egress import EgressPolicy
from sip.dialog.events import InviteEnded
from sip.dialog.target_set import Target
from sip.dialog.uac import Invitation, OutgoingInvite
from sip.dialog.uas import IncomingInvite
from sip.dialog.usage import InviteSettings
from sip.endpoint import Endpoint, EndpointSettings
from sip.message.body import SDP
from sip.message.headers import NameAddr
from sip.message.message import Request, parse, response_to
from sip.message.uri import Uri
from sip.states import HangupCause
from sip.transaction.hop import Hop, Transmission
from sip.trunk_settings import TrunkSettings
from tests.support.hostile.rogue import rogue
from tests.support.ports import free_port, free_rtp_range
from tests.support.sip.sip_world import Party, World

ALICE, BOB, CAROL = "192.0.2.1", "192.0.2.2", "192.0.2.3"
REMOTE = Hop("udp", BOB, 5060)
PATIENCE_S = 20.0


def dial(world: World, alice: Party, *targets: str) -> OutgoingInvite:
    invite = alice.call(*targets)
    invite.dial(world.now)
    world.settle()
    return invite


def by_hand() -> tuple[World, Party, Party, OutgoingInvite, Request]:
    """Bob, who comes first, says what the test says; Carol answers."""
    alice, carol = Party(ALICE), Party(CAROL)
    world = World(alice, carol)
    invite = dial(world, alice, BOB, CAROL)
    request = parse(world.sent[0])
    assert isinstance(request, Request)
    return world, alice, carol, invite, request


def says(request: Request, status: int) -> bytes:
    """A response of Bob's; 200 has an answer to the offer."""
    headers = [("Contact", f"<sip:b@{BOB}>")]
    response = response_to(request, status, to_tag="b" if status > 100 else None, headers=headers)
    if status == 200:
        response.headers.add("Content-Type", SDP)
        response.body = request.body
    return response.to_bytes()


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_that_cannot_take_the_call_passes_it_to_the_next(status: int) -> None:
    world, alice, carol, invite, request = by_hand()
    world.send(says(request, status), alice, source=REMOTE)
    world.run(1)
    assert invite.usage.confirmed
    assert len(carol.requests("INVITE")) == 1


@pytest.mark.parametrize("status", [404, 408, 480, 486, 487, 501, 505, 603])
def test_any_other_refusal_is_the_answer(status: int) -> None:
    world, alice, carol, _, request = by_hand()
    world.send(says(request, status), alice, source=REMOTE)
    world.run(10)
    assert carol.requests("INVITE") == []
    assert (alice.end.status, alice.end.definite) == (status, True)


@pytest.mark.parametrize("status", [180, 183])
@pytest.mark.parametrize("final", [500, 502, 503, 504])
def test_a_server_that_may_have_rung_the_phone_is_the_last(status: int, final: int) -> None:
    world, alice, carol, _, request = by_hand()
    world.send(says(request, status), alice, source=REMOTE)
    world.run(10)
    world.send(says(request, final), alice, source=REMOTE)
    world.run(10)
    assert carol.requests("INVITE") == []
    assert (alice.end.status, alice.end.definite) == (final, True)


def test_silence_leads_to_the_next_server_long_before_timer_b() -> None:
    world, _, carol, invite, _ = by_hand()
    world.run(3.9)
    assert carol.requests("INVITE") == []
    world.run(0.3)
    assert invite.usage.confirmed
    world.run(40)
    assert len(carol.requests("INVITE")) == 1
    tried = [at for at, data in world.sent_at if data.startswith(b"INVITE")]
    assert max(tried) <= 1004.0  # the silent one gets no repetition, which might ring after all


def test_trying_is_an_answer_and_silence_without_a_spare_lasts_for_timer_b() -> None:
    world, alice, carol, _, request = by_hand()
    world.send(says(request, 100), alice, source=REMOTE)
    world.run(50)
    assert carol.requests("INVITE") == []
    alone = Party(ALICE)
    world = World(alone)
    dial(world, alone, BOB)
    world.run(31)
    assert alone.heard(InviteEnded) == []
    world.run(2)
    assert (alone.end.cause, alone.end.status) == (HangupCause.UNREACHABLE, 408)


@pytest.mark.parametrize("late", [100, 180, 200])
def test_a_server_that_answers_after_it_was_passed_over_is_told_to_stop(late: int) -> None:
    world, alice, carol, invite, request = by_hand()
    world.run(5)
    assert invite.usage.confirmed
    for _ in range(2):
        world.send(says(request, late), alice, source=REMOTE)
    methods = [each.split()[0] for each in world.sent if f"@{BOB}".encode() in each.split(b"\r\n")[0]]
    assert methods[-1] == (b"CANCEL" if late < 200 else b"ACK")
    assert methods.count(b"CANCEL") == (late < 200)
    assert (methods.count(b"ACK"), methods.count(b"BYE")) == ((2, 1) if late == 200 else (0, 0))
    assert invite.usage.confirmed
    assert carol.requests("BYE") == []
    invite.hang_up(world.now)
    world.run(100)
    assert (alice.stack.transactions, alice.stack.dialogs, len(alice.stack.clock)) == (0, 0, 0)


@pytest.mark.parametrize("status", [302, 480, 486, 487, 503, 603])
def test_after_silence_no_refusal_of_another_server_is_definite(status: int) -> None:
    """The silent server may ring all the same: the dispatcher must not dial again."""
    world, alice, carol, _, _ = by_hand()
    carol.on_invite = lambda invite, now: invite.reject(status, now)
    world.run(6)
    assert (alice.end.status, alice.end.definite) == (status, False)


@pytest.mark.parametrize(("late", "definite"), [(180, False), (200, False), (487, True)])
def test_a_refusal_is_definite_once_the_silent_server_has_refused_too(late: int, definite: bool) -> None:
    world, alice, carol, _, request = by_hand()
    rung: list[IncomingInvite] = []
    carol.on_invite = lambda invite, now: rung.append(invite)
    world.run(6)
    world.send(says(request, late), alice, source=REMOTE)
    rung[0].reject(486, world.now)
    world.run(1)
    assert (alice.end.status, alice.end.definite) == (486, definite)


@pytest.mark.parametrize("late", [180, 200])
def test_who_rang_at_a_server_that_was_passed_over_is_called_at_no_third_one(late: int) -> None:
    """The second server cannot take the call either, once the first has let the phone ring."""
    alice, dave = Party(ALICE), Party("192.0.2.4")
    world = World(alice, dave)
    invite = dial(world, alice, BOB, CAROL, "192.0.2.4")
    first = parse(world.sent[0])
    assert isinstance(first, Request)
    world.run(4.2)
    second = next(
        each
        for each in map(parse, world.sent)
        if isinstance(each, Request) and each.method == "INVITE" and each.uri.host == CAROL
    )
    world.send(says(first, late), alice, source=REMOTE)
    world.settle()
    world.send(says(second, 503), alice, source=Hop("udp", CAROL, 5060))
    world.run(10)
    assert not invite.usage.confirmed
    assert dave.requests("INVITE") == []
    assert (alice.end.status, alice.end.definite) == (503, False)


def test_icmp_counts_once_every_transmission_came_back() -> None:
    alice = Party(ALICE)
    invite = alice.call(BOB, CAROL)
    invite.dial(0.0)
    (first,) = alice.stack.transmissions()
    alice.stack.clients.bounced(first.data[:20], 0.01)  # too short to prove anything
    alice.stack.clients.bounced(first.data.replace(b"branch=z9hG4bK", b"branch=z9hG4bKf")[:400], 0.01)
    alice.stack.handle_timer(0.6)
    (again,) = alice.stack.transmissions()
    alice.stack.clients.bounced(again.data[:400], 0.6)
    assert alice.stack.transmissions() == []  # the first may have arrived
    alice.stack.clients.bounced(first.data[:400], 0.7)
    (second,) = alice.stack.transmissions()
    assert (second.hop.host, invite.usage.ended) == (CAROL, False)


def test_a_repetition_that_cannot_be_sent_calls_nobody_else() -> None:
    """The first INVITE may ring already: only one that never left is sent to the next address."""
    alice = Party(ALICE)
    invite = alice.call("192.0.2.99", "192.0.2.3")
    invite.dial(0.0)
    (first,) = alice.stack.transmissions()
    alice.stack.handle_timer(0.6)
    (again,) = alice.stack.transmissions()
    alice.stack.transmission_failed(again, 0.6)
    assert alice.stack.transmissions() == []
    assert not invite.usage.ended
    alice.stack.transmission_failed(first, 0.7)
    (second,) = alice.stack.transmissions()
    assert second.hop.host == "192.0.2.3"


# Redirections ----------------------------------------------------------------------------------------------

SECURE = Target(Uri.parse(f"sips:100@{BOB}"), Hop("tls", BOB, 5061))
OVER_TLS = Target(Uri.parse(f"sip:100@{BOB};transport=tls"), Hop("tls", BOB, 5061))
CLEAR = Target(Uri.parse(f"sip:100@{BOB}"), REMOTE)
PROXY = Target(Uri.parse(f"sip:100@{BOB}"), Hop("udp", "192.0.2.9", 5060))


def redirected(target: Target, contact: str, *route: str) -> tuple[Party, list[Transmission]]:
    """An INVITE that was sent to a contact: whose it is, and what goes there."""
    alice = Party(ALICE, settings=InviteSettings(follow_redirects=1, username="acme", password="secret"))
    invitation = Invitation(
        targets=[target],
        route=[Uri.parse(each) for each in route],
        caller=NameAddr(Uri("sip", "7", ALICE)),
        call_id="c",
    )
    OutgoingInvite(alice.stack, alice.settings, invitation, alice.capabilities).dial(0.0)
    (first,) = alice.stack.transmissions()
    refuse(alice, first, 302, ("Contact", f"<{contact}>"))
    found = [each for each in alice.stack.transmissions() if each.data.startswith(b"INVITE ")]
    return alice, found


def refuse(alice: Party, sent: Transmission, status: int, *headers: tuple[str, str]) -> None:
    """Answers an INVITE of Alice's."""
    request = parse(sent.data)
    assert isinstance(request, Request)
    alice.stack.receive(response_to(request, status, to_tag="b", headers=headers).to_bytes(), REMOTE, 0.1)


@pytest.mark.parametrize(
    ("target", "contact", "followed"),
    [
        (SECURE, f"sip:100@{CAROL}", False),
        (SECURE, f"sip:100@{CAROL};transport=tls", False),
        (SECURE, f"sips:100@{CAROL}", True),
        (OVER_TLS, f"sip:100@{CAROL}", False),
        (OVER_TLS, f"sip:100@{CAROL};transport=tcp", False),
        (OVER_TLS, f"sip:100@{CAROL};transport=tls", True),
        (CLEAR, f"sip:100@{CAROL}", True),
    ],
)
def test_a_redirection_leads_to_nothing_less_protected(target: Target, contact: str, followed: bool) -> None:
    _, found = redirected(target, contact)
    assert [each.hop.host for each in found] == ([CAROL] if followed else [])


def test_a_redirected_call_goes_over_the_outbound_proxy_as_well() -> None:
    _, (again,) = redirected(PROXY, f"sip:100@{CAROL}", "sip:192.0.2.9;lr")
    assert again.hop.host == "192.0.2.9"
    assert again.data.startswith(f"INVITE sip:100@{CAROL} ".encode())
    assert b"\r\nRoute: <sip:192.0.2.9;lr>\r\n" in again.data


@pytest.mark.parametrize(("host", "answered"), [(BOB, True), (CAROL, False)])
def test_a_stranger_that_a_redirection_names_gets_no_digest_for_its_realm(host: str, answered: bool) -> None:
    alice, (again,) = redirected(CLEAR, f"sip:100@{host}:5070")
    refuse(alice, again, 401, ("WWW-Authenticate", 'Digest realm="evil", nonce="n"'))
    sent = [each.data for each in alice.stack.transmissions() if each.data.startswith(b"INVITE ")]
    assert [b"\r\nAuthorization: Digest " in each for each in sent] == ([True] if answered else [])


# On sockets ------------------------------------------------------------------------------------------------


@pytest.mark.virtual_clock
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_a_port_where_nobody_listens_is_passed_over_at_once(host: str) -> None:
    settings = EndpointSettings(udp=f"{host}:0", rtp_ports=free_rtp_range())
    async with Endpoint(settings) as phone:
        dead = f"sip:{host}:{free_port()};transport=udp"
        loop = asyncio.get_running_loop()
        alone = phone.add_trunk(TrunkSettings(id="alone", uri=dead))
        asked = loop.time()
        call = await alone.call("1")
        assert await asyncio.wait_for(call.ended(), PATIENCE_S) is HangupCause.UNREACHABLE
        assert (call.status, loop.time() - asked < 3.0) == (503, True)


@pytest.mark.virtual_clock
async def test_of_several_dead_ports_each_is_passed_over_and_the_living_one_is_not_harmed() -> None:
    """The kernel reports an error of one datagram at the next, whoever that is for."""
    settings = EndpointSettings(udp="127.0.0.1:0", rtp_ports=free_rtp_range())
    async with Endpoint(settings) as phone, rogue() as far:
        far.say(486)
        dead = [f"sip:127.0.0.1:{free_port()};transport=udp" for _ in range(3)]
        line = TrunkSettings(
            id="out", uri=dead[0], backup_uris=(*dead[1:], far.uri), egress=EgressPolicy(["127.0.0.1/32"])
        )
        trunk = phone.add_trunk(line)
        calls = [await trunk.call(str(number)) for number in range(8)]
        for call in calls:
            assert await asyncio.wait_for(call.ended(), 3.0) is HangupCause.BUSY
        assert len({request.call_id for request in far.asked("INVITE")}) == 8


async def test_an_invite_that_waits_for_a_connection_is_not_sent_after_the_call_went_on() -> None:
    """A host that takes no connection for longer than `failover_s`, and does then."""
    loop = asyncio.get_running_loop()
    with socket.socket() as slow:
        slow.bind(("127.0.0.1", 0))
        slow.listen(0)
        crowd = [socket.socket() for _ in range(4)]
        for each in crowd:  # fills the queue: further connections wait
            each.setblocking(False)
            each.connect_ex(slow.getsockname())
        settings = EndpointSettings(udp="127.0.0.1:0", tcp="127.0.0.1:0", rtp_ports=free_rtp_range())
        async with Endpoint(settings) as phone, rogue() as far:
            far.say(486)
            uri = f"sip:127.0.0.1:{slow.getsockname()[1]};transport=tcp"
            trunk = phone.add_trunk(TrunkSettings(id="out", uri=uri, backup_uris=(far.uri,), failover_s=0.5))
            call = await trunk.call("1")
            assert await asyncio.wait_for(call.ended(), PATIENCE_S) is HangupCause.BUSY
            slow.setblocking(False)
            heard = b""
            until_at = loop.time() + 4.0
            while loop.time() < until_at:
                try:
                    connection, _ = slow.accept()
                except BlockingIOError:
                    await asyncio.sleep(0.05)
                    continue
                connection.settimeout(0.0)
                await asyncio.sleep(0.1)
                with suppress(BlockingIOError):
                    heard += connection.recv(65536)
                connection.close()
            assert b"INVITE" not in heard
        for each in crowd:
            each.close()
