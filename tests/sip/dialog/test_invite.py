"""Calls between two stacks on a virtual clock: set-up, refusal, races, changes, a bad network."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sip.dialog.events import (
    ChangeFinished,
    DigitsReceived,
    InviteAnswered,
    InviteEnded,
    InviteProgressed,
    MediaAgreed,
)
from sip.dialog.uac import OutgoingInvite
from sip.dialog.uas import IncomingInvite
from sip.dialog.usage import InviteSettings, InviteState
from sip.errors import LocalError
from sip.message.body import SDP
from sip.message.headers import Headers
from sip.message.message import Request, Response, parse, response_to
from sip.states import HangupCause
from sip.transaction.hop import Hop
from tests.support.sip.sip_world import Party, World, answer, hostile

ALICE, BOB = "192.0.2.1", "192.0.2.2"


def pair(settings: InviteSettings | None = None) -> tuple[World, Party, Party]:
    alice, bob = Party(ALICE, settings=settings), Party(BOB, settings=settings)
    return World(alice, bob), alice, bob


def dial(world: World, alice: Party, *targets: str) -> OutgoingInvite:
    invite = alice.call(*(targets or (BOB,)))
    invite.dial(world.now)
    world.settle()
    return invite


def answered_call() -> tuple[World, Party, Party, OutgoingInvite, IncomingInvite]:
    world, alice, bob = pair()
    calls: list[IncomingInvite] = []

    def pick_up(invite: IncomingInvite, now: float) -> None:
        calls.append(invite)
        answer(invite, now)

    bob.on_invite = pick_up
    invite = dial(world, alice)
    world.run(1)
    assert invite.usage.confirmed
    return world, alice, bob, invite, calls[0]


def nothing_left(world: World, *parties: Party) -> bool:
    """After every timer has run out, nobody holds anything."""
    world.run(200)
    return all(
        (party.stack.transactions, party.stack.dialogs, len(party.stack.clock)) == (0, 0, 0)
        for party in parties
    )


# Set-up and tear-down -------------------------------------------------------------------------------------


def test_a_call_rings_is_answered_talks_and_is_hung_up() -> None:
    world, alice, bob, invite, called = answered_call()
    assert [type(each) for each in alice.events] == [InviteProgressed, MediaAgreed, InviteAnswered]
    (plan,) = [each.plan for each in alice.heard(MediaAgreed)]
    assert (plan.remote_host, plan.remote_port) == (BOB, 4000)
    assert called.usage.state is InviteState.CONFIRMED
    invite.hang_up(world.now)
    world.run(1)
    assert (alice.end.cause, alice.end.status, alice.end.by) == (HangupCause.NORMAL, 200, "local")
    assert (bob.end.cause, bob.end.status, bob.end.by) == (HangupCause.NORMAL, 200, "remote")
    assert nothing_left(world, alice, bob)


def test_the_called_may_hang_up_too_and_hanging_up_twice_is_nothing() -> None:
    world, alice, bob, invite, called = answered_call()
    called.hang_up(world.now)
    called.hang_up(world.now)
    world.run(1)
    invite.hang_up(world.now)
    assert alice.end.by == "remote"
    assert bob.end.by == "local"
    assert len(alice.requests("BYE")) == 1
    assert nothing_left(world, alice, bob)


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (404, HangupCause.NOT_FOUND),
        (480, HangupCause.NO_ANSWER),
        (486, HangupCause.BUSY),
        (488, HangupCause.INCOMPATIBLE),
        (500, HangupCause.REMOTE_ERROR),
        (503, HangupCause.UNREACHABLE),
        (600, HangupCause.BUSY),
        (603, HangupCause.REJECTED),
    ],
)
def test_a_refusal_says_why(status: int, cause: HangupCause) -> None:
    world, alice, bob = pair()
    bob.on_invite = lambda invite, now: invite.reject(status, now)
    dial(world, alice)
    world.run(1)
    assert (alice.end.cause, alice.end.status, alice.end.by) == (cause, status, "remote")
    assert nothing_left(world, alice, bob)


def test_nobody_there_is_unreachable_after_timer_b() -> None:
    alice = Party(ALICE)
    world = World(alice)
    dial(world, alice, "192.0.2.99")
    world.run(33)
    assert (alice.end.cause, alice.end.status) == (HangupCause.UNREACHABLE, 408)
    assert nothing_left(world, alice)


def test_ringing_out_sends_cancel_and_means_no_answer() -> None:
    world, alice, bob = pair(InviteSettings(ring_timeout_s=20))
    bob.on_invite = lambda invite, now: invite.ring(now)
    dial(world, alice)
    world.run(25)
    assert (alice.end.cause, alice.end.status) == (HangupCause.NO_ANSWER, 487)
    assert (bob.end.cause, bob.end.by) == (HangupCause.CANCELLED, "remote")
    assert nothing_left(world, alice, bob)


def test_an_application_that_never_decides_is_decided_for() -> None:
    world, alice, bob = pair(InviteSettings(ring_timeout_s=1000))
    bob.on_invite = lambda invite, now: None
    dial(world, alice)
    world.run(181)
    assert alice.end.cause is HangupCause.NO_ANSWER
    assert nothing_left(world, alice, bob)


def test_ringing_is_repeated_every_minute() -> None:
    world, alice, bob = pair(InviteSettings(ring_timeout_s=1000))
    bob.on_invite = lambda invite, now: invite.ring(now)
    dial(world, alice)
    world.run(150)
    assert alice.statuses().count(180) == 3


# Cancelling -----------------------------------------------------------------------------------------------


def test_cancel_waits_for_a_provisional_response() -> None:
    world, alice, bob = pair()
    bob.on_invite = lambda invite, now: invite.ring(now)
    invite = dial(world, alice)
    invite.hang_up(world.now)  # nothing has come back yet
    world.settle()
    assert sent(world, "CANCEL") == []
    world.run(1)
    assert len(bob.requests("CANCEL")) == 1
    assert (alice.end.cause, alice.end.status, alice.end.by) == (HangupCause.CANCELLED, 487, "local")
    assert nothing_left(world, alice, bob)


def test_cancelling_into_silence_ends_with_timer_b() -> None:
    alice = Party(ALICE)
    world = World(alice)
    invite = dial(world, alice, "192.0.2.99")
    invite.hang_up(world.now)
    world.run(40)
    assert alice.end.cause is HangupCause.CANCELLED
    assert sent(world, "CANCEL") == []
    assert nothing_left(world, alice)


def test_a_2xx_that_crosses_the_cancel_is_acknowledged_and_hung_up() -> None:
    world, alice, bob = pair()
    calls: list[IncomingInvite] = []

    def ring(invite: IncomingInvite, now: float) -> None:
        calls.append(invite)
        invite.ring(now)

    bob.on_invite = ring
    invite = dial(world, alice)
    world.run(1)
    calls[0].accept(world.now)
    invite.hang_up(world.now)
    world.run(1)
    assert alice.heard(InviteAnswered) == []
    assert (alice.end.cause, alice.end.by) == (HangupCause.CANCELLED, "local")
    assert len(bob.requests("ACK")) == 1
    assert (bob.end.cause, bob.end.by) == (HangupCause.NORMAL, "remote")
    assert nothing_left(world, alice, bob)


def test_a_cancelled_invite_without_a_final_response_is_not_waited_for_forever() -> None:
    world, alice, _ = pair()
    invite = dial(world, alice)
    ringing = response_to(sent_invite(world), 180, to_tag="x", headers=[("Contact", f"<sip:{BOB}>")])
    world = World(alice)  # bob is gone
    world.send(ringing.to_bytes(), alice, source=Hop("udp", BOB, 5060))
    invite.hang_up(world.now)
    world.run(70)
    assert alice.end.cause is HangupCause.CANCELLED
    assert nothing_left(world, alice)


def sent_invite(world: World, index: int = 0) -> Request:
    sent = [parse(data) for data in world.sent if data.startswith(b"INVITE")]
    request = sent[index]
    assert isinstance(request, Request)
    return request


# A far end played by hand ---------------------------------------------------------------------------------

REMOTE = Hop("udp", BOB, 5060)
ANSWER = (
    b"v=0\r\no=- 1 1 IN IP4 192.0.2.2\r\ns=-\r\nc=IN IP4 192.0.2.2\r\nt=0 0\r\n"
    b"m=audio %d RTP/AVP 0 101\r\na=rtpmap:101 telephone-event/8000\r\n"
)


def says(
    request: Request, status: int, *, tag: str = "b", port: int = 0, headers: tuple[tuple[str, str], ...] = ()
) -> bytes:
    """A response of somebody at `tag`, with an SDP answer where a port is given."""
    response = response_to(request, status, to_tag=tag, headers=[("Contact", f"<sip:{tag}@{BOB}>"), *headers])
    if port:
        response.headers.add("Content-Type", SDP)
        response.body = ANSWER % port
    return response.to_bytes()


def by_hand() -> tuple[World, Party, OutgoingInvite, Request]:
    alice = Party(ALICE)
    world = World(alice)
    invite = dial(world, alice, BOB)
    return world, alice, invite, sent_invite(world)


def sent(world: World, method: str) -> list[Request]:
    parsed = [parse(data) for data in world.sent]
    return [each for each in parsed if isinstance(each, Request) and each.method == method]


def test_of_two_forks_that_answer_the_second_is_acknowledged_and_hung_up() -> None:
    world, alice, _, request = by_hand()
    for tag in ("x", "y"):
        world.send(says(request, 180, tag=tag), alice, source=REMOTE)
    assert alice.stack.dialogs == 2
    world.send(says(request, 200, tag="x", port=4002), alice, source=REMOTE)
    world.send(says(request, 200, tag="y", port=4004), alice, source=REMOTE)
    world.send(says(request, 200, tag="x", port=4002), alice, source=REMOTE)  # again: its ACK was lost
    assert [each.to.tag for each in sent(world, "ACK")] == ["x", "y", "x"]
    assert [(each.to.tag, str(each.uri)) for each in sent(world, "BYE")] == [("y", f"sip:y@{BOB}")]
    assert [each.plan.remote_port for each in alice.heard(MediaAgreed)] == [4002]
    assert alice.stack.dialogs == 1
    assert alice.heard(InviteEnded) == []


def test_early_media_of_one_fork_gives_way_to_the_one_that_answers() -> None:
    world, alice, invite, request = by_hand()
    reliable = (("Require", "100rel"), ("RSeq", "1"))
    world.send(says(request, 183, tag="x", port=4002, headers=reliable), alice, source=REMOTE)
    assert alice.heard(InviteProgressed)[0].early_media
    world.send(says(request, 200, tag="y", port=4004), alice, source=REMOTE)
    assert [each.plan.remote_port for each in alice.heard(MediaAgreed)] == [4002, 4004]
    assert invite.usage.confirmed


def test_a_reliable_provisional_response_is_acknowledged_once_and_in_order() -> None:
    world, alice, _, request = by_hand()
    for rseq in ("8", "8", "10", "9"):
        headers = (("Require", "100rel"), ("RSeq", rseq))
        world.send(says(request, 180, headers=headers), alice, source=REMOTE)
    racks = [each.header("RAck") for each in sent(world, "PRACK")]
    assert racks == ["8 1 INVITE", "9 1 INVITE"]
    assert len(alice.heard(InviteProgressed)) == 2


def test_bye_before_the_2xx_ends_the_call_and_the_late_2xx_is_acknowledged() -> None:
    world, alice, invite, request = by_hand()
    world.send(says(request, 180), alice, source=REMOTE)
    bye = Request("BYE", request.contacts[0].uri, Headers())
    for name, value in (
        ("Via", f"SIP/2.0/UDP {BOB};branch=z9hG4bKbye"),
        ("From", f"{request.headers.get('To')};tag=b"),
        ("To", request.headers.get("From") or ""),
        ("Call-ID", request.call_id),
        ("CSeq", "1 BYE"),
        ("Max-Forwards", "70"),
    ):
        bye.headers.add(name, value)
    world.send(bye.to_bytes(), alice, source=REMOTE)
    assert (alice.end.cause, alice.end.by) == (HangupCause.NORMAL, "remote")
    world.send(says(request, 200, port=4002), alice, source=REMOTE)
    assert len(sent(world, "ACK")) == 1
    assert alice.heard(InviteAnswered) == []
    world.run(70)
    assert invite.usage.ended
    assert nothing_left(world, alice)


@pytest.mark.parametrize("body", [b"", b"v=0\r\n", b"not sdp at all"])
def test_a_2xx_without_a_usable_answer_is_acknowledged_and_hung_up(body: bytes) -> None:
    world, alice, _, request = by_hand()
    response = response_to(request, 200, to_tag="b", headers=[("Contact", f"<sip:b@{BOB}>")])
    if body:
        response.headers.add("Content-Type", SDP)
        response.body = body
    world.send(response.to_bytes(), alice, source=REMOTE)
    assert alice.end.cause is HangupCause.INCOMPATIBLE
    assert len(sent(world, "ACK")) == 1
    assert len(sent(world, "BYE")) == 1


# The called -----------------------------------------------------------------------------------------------


def test_our_2xx_is_repeated_until_the_ack_and_without_one_the_call_is_hung_up() -> None:
    world, alice, bob = pair()
    world.fate = lambda data: [] if data.startswith(b"ACK") else [0.01]
    dial(world, alice)
    world.run(40)
    assert bob.end.cause is HangupCause.NO_ACK
    repeats = [at for at, data in world.sent_at if data.startswith(b"SIP/2.0 200") and b" INVITE" in data]
    gaps = [round(later - earlier, 2) for earlier, later in pairwise(repeats)]
    assert gaps[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(gaps) == 4.0
    assert alice.end.by == "remote"
    assert len(alice.requests("BYE")) == 1
    assert nothing_left(world, alice, bob)


def test_hanging_up_before_the_ack_waits_for_it() -> None:
    world, alice, bob = pair()

    def pick_up_and_drop(invite: IncomingInvite, now: float) -> None:
        invite.accept(now)
        invite.hang_up(now)

    bob.on_invite = pick_up_and_drop
    dial(world, alice)
    world.settle()
    assert alice.requests("BYE") == []
    world.run(1)
    methods = [each.method for each in bob.received if isinstance(each, Request)]
    assert methods == ["INVITE", "ACK"]
    assert len(alice.requests("BYE")) == 1
    assert bob.end.cause is HangupCause.NORMAL


def test_early_media_is_described_reliably_and_once() -> None:
    world, alice, bob = pair()
    calls: list[IncomingInvite] = []

    def ring(invite: IncomingInvite, now: float) -> None:
        calls.append(invite)
        invite.ring(now, early_media=True)

    bob.on_invite = ring
    invite = dial(world, alice)
    world.run(1)
    assert alice.heard(InviteProgressed)[0].early_media
    assert len(bob.requests("PRACK")) == 1
    calls[0].accept(world.now)
    world.run(1)
    assert invite.usage.confirmed
    assert len(alice.heard(MediaAgreed)) == len(bob.heard(MediaAgreed)) == 1


def test_the_answer_waits_for_the_prack() -> None:
    world, alice, bob = pair()
    lost: list[bytes] = []

    def lose_first_prack(data: bytes) -> list[float]:
        if data.startswith(b"PRACK") and not lost:
            lost.append(data)
            return []
        return [0.01]

    def ring_and_answer(invite: IncomingInvite, now: float) -> None:
        invite.ring(now, early_media=True)
        invite.accept(now)

    world.fate = lose_first_prack
    bob.on_invite = ring_and_answer
    invite = dial(world, alice)
    world.run(0.3)
    assert not invite.usage.confirmed
    world.run(1)
    assert invite.usage.confirmed
    assert lost


def test_without_a_prack_the_call_is_refused() -> None:
    world, alice, bob = pair()
    world.fate = lambda data: [] if data.startswith(b"PRACK") else [0.01]
    bob.on_invite = lambda invite, now: invite.ring(now, early_media=True)
    dial(world, alice)
    world.run(40)
    assert alice.end.status == 504
    assert nothing_left(world, alice, bob)


def test_bye_during_the_invite_is_answered_and_ends_it() -> None:
    world, alice, bob = pair()
    bob.on_invite = lambda invite, now: invite.ring(now)
    invite = dial(world, alice)
    world.run(1)
    assert invite.usage.dialog is not None
    bye = invite.usage.dialog.request("BYE", cseq=2)
    bye.headers.prepend("Via", f"SIP/2.0/UDP {ALICE};branch=z9hG4bKearly")
    world.send(bye.to_bytes(), bob, source=Hop("udp", ALICE, 5060))
    world.run(1)
    assert alice.statuses("INVITE")[-1] == 487
    assert 200 in [each.status for each in alice.received if isinstance(each, Response)]
    assert bob.end.cause is HangupCause.CANCELLED


@pytest.mark.parametrize("verb", ["ring", "accept", "reject"])
def test_verbs_of_a_ringing_call_are_refused_once_it_is_over(verb: str) -> None:
    world, alice, bob = pair()
    calls: list[IncomingInvite] = []

    def refuse(invite: IncomingInvite, now: float) -> None:
        calls.append(invite)
        invite.reject(486, now)

    bob.on_invite = refuse
    dial(world, alice)
    world.run(1)
    call = calls[0]
    with pytest.raises(LocalError):
        call.reject(603, world.now) if verb == "reject" else getattr(call, verb)(world.now)
    with pytest.raises(LocalError):
        call.set_hold(True, world.now)


def test_a_late_offer_is_answered_in_the_ack() -> None:
    world, alice, bob = pair()
    dial(world, alice)
    request = sent_invite(world)
    request.headers.remove("Content-Type")
    request.headers.set("Call-ID", "late")
    request.headers.set("Via", f"SIP/2.0/UDP {ALICE};branch=z9hG4bKlate")
    request.body = b""
    bob = Party(BOB)
    world = World(bob)
    world.send(request.to_bytes(), bob, source=Hop("udp", ALICE, 5060))
    accepted = parse(next(data for data in world.sent if data.startswith(b"SIP/2.0 200")))
    assert isinstance(accepted, Response)
    assert accepted.content_type == SDP
    assert bob.heard(MediaAgreed) == []
    ack = Request("ACK", request.uri, request.headers.copy())
    ack.headers.set("CSeq", "1 ACK")
    ack.headers.set("To", accepted.headers.get("To") or "")
    ack.headers.set("Content-Type", SDP)
    ack.body = ANSWER % 4010
    world.send(ack.to_bytes(), bob, source=Hop("udp", ALICE, 5060))
    assert [each.plan.remote_port for each in bob.heard(MediaAgreed)] == [4010]


def test_a_late_offer_without_an_answer_ends_the_call() -> None:
    world, alice, bob = pair()
    dial(world, alice)
    request = sent_invite(world)
    request.headers.remove("Content-Type")
    request.body = b""
    bob = Party(BOB)
    world = World(bob)
    world.send(request.to_bytes(), bob, source=Hop("udp", ALICE, 5060))
    accepted = parse(next(data for data in world.sent if data.startswith(b"SIP/2.0 200")))
    ack = Request("ACK", request.uri, request.headers.copy())
    ack.headers.set("CSeq", "1 ACK")
    ack.headers.set("To", accepted.headers.get("To") or "")
    world.send(ack.to_bytes(), bob, source=Hop("udp", ALICE, 5060))
    assert bob.end.cause is HangupCause.INCOMPATIBLE


# Changes of a call that is up -----------------------------------------------------------------------------


def test_hold_and_resume_are_heard_by_both_sides() -> None:
    world, alice, bob, invite, called = answered_call()
    invite.set_hold(True, world.now)
    world.run(1)
    assert invite.usage.held
    assert called.usage.held
    assert not bob.heard(MediaAgreed)[-1].plan.sends
    invite.set_hold(False, world.now)
    world.run(1)
    assert not invite.usage.held
    assert not called.usage.held
    assert bob.heard(MediaAgreed)[-1].plan.sends
    assert [each.status for each in alice.heard(ChangeFinished)] == [200, 200]


def test_a_late_repetition_of_one_answer_is_none_to_the_next_change() -> None:
    world, alice, _, invite, _ = answered_call()
    invite.set_hold(True, world.now)
    world.run(1)
    (ok,) = [data for data in world.sent if data.startswith(b"SIP/2.0 200") and b"recvonly" in data]
    invite.set_hold(False, world.now)
    world.send(ok, alice, source=Hop("udp", BOB, 5060))
    assert invite.usage.changing  # theirs is refused as glare until ours is answered (RFC 3261 14.2)
    world.run(1)
    assert not invite.usage.changing
    assert [each.status for each in alice.heard(ChangeFinished)] == [200, 200]


def reinvites(data: bytes, host: str) -> bool:
    return data.startswith(b"INVITE") and f"Via: SIP/2.0/UDP {host}:".encode() in data and b"sendonly" in data


def test_both_sides_holding_at_once_succeed_one_after_the_other() -> None:
    world, alice, bob, invite, called = answered_call()
    invite.set_hold(True, world.now)
    called.set_hold(True, world.now)
    world.run(10)
    assert 491 in alice.statuses() + bob.statuses()
    tried = {host: [at for at, data in world.sent_at if reinvites(data, host)] for host in (ALICE, BOB)}
    assert 2.1 <= tried[ALICE][1] - tried[ALICE][0] <= 4.1  # the owner of the Call-ID (RFC 3261 14.1)
    assert tried[BOB][1] - tried[BOB][0] <= 2.1
    assert [each.status for each in alice.heard(ChangeFinished)] == [200]
    assert [each.status for each in bob.heard(ChangeFinished)] == [200]
    assert invite.usage.held
    assert called.usage.held
    called.set_hold(False, world.now)
    world.run(5)
    assert invite.usage.held  # the other side's hold is its own


def test_a_change_that_cannot_be_answered_leaves_the_call_as_it_was() -> None:
    world, _, bob, invite, called = answered_call()
    assert invite.usage.dialog is not None
    before = len(bob.heard(MediaAgreed))
    for body, kind, status in (
        (b"nonsense", SDP, 400),
        (b"<xml/>", "text/xml", 415),
        (ANSWER.replace(b"RTP/AVP 0 101", b"RTP/AVP 18") % 4000, SDP, 488),
    ):
        request = invite.usage.dialog.request("INVITE")
        request.headers.prepend("Via", f"SIP/2.0/UDP {ALICE};branch=z9hG4bKx{status}")
        request.headers.add("Content-Type", kind)
        request.body = body
        world.send(request.to_bytes(), bob, source=Hop("udp", ALICE, 5060))
        assert f"SIP/2.0 {status}".encode() in world.sent[-1]
    assert called.usage.confirmed
    assert len(bob.heard(MediaAgreed)) == before


def test_a_hold_that_nobody_answers_ends_the_call() -> None:
    world, alice, _, invite, _ = answered_call()
    world.fate = lambda data: []
    invite.set_hold(True, world.now)
    world.run(40)
    assert alice.heard(ChangeFinished)[0].status == 408
    assert alice.end.cause is HangupCause.UNREACHABLE


def test_a_second_change_is_refused_while_one_waits() -> None:
    world, _, _, invite, _ = answered_call()
    invite.set_hold(True, world.now)
    invite.set_hold(False, world.now)  # waits for the first
    with pytest.raises(LocalError):
        invite.set_hold(True, world.now)
    world.run(2)
    assert not invite.usage.held


@pytest.mark.parametrize(
    ("kind", "body", "status", "digits"),
    [
        ("application/dtmf-relay", b"Signal=5\r\nDuration=160\r\n", 200, ["5"]),
        ("application/dtmf-relay", b"Signal= #\r\n", 200, ["#"]),
        ("application/dtmf-relay", b"Signal=11\r\n", 200, ["#"]),
        ("application/dtmf", b"7", 200, ["7"]),
        ("application/dtmf", b"77", 400, []),
        ("application/dtmf-relay", b"Duration=160\r\n", 400, []),
        ("text/plain", b"5", 415, []),
        ("", b"", 200, []),
    ],
)
def test_digits_in_info(kind: str, body: bytes, status: int, digits: list[str]) -> None:
    world, _, bob, invite, _ = answered_call()
    assert invite.usage.dialog is not None
    info = invite.usage.dialog.request("INFO")
    info.headers.prepend("Via", f"SIP/2.0/UDP {ALICE};branch=z9hG4bKinfo")
    if kind:
        info.headers.add("Content-Type", kind)
    info.body = body
    world.send(info.to_bytes(), bob, source=Hop("udp", ALICE, 5060))
    assert f"SIP/2.0 {status}".encode() in world.sent[-1]
    assert [each.digit for each in bob.heard(DigitsReceived)] == digits


def test_an_old_request_is_refused_and_a_foreign_one_unknown() -> None:
    world, _, bob, invite, called = answered_call()
    assert invite.usage.dialog is not None
    for cseq, tag, status in ((1, None, 500), (9, "other", 481)):
        request = invite.usage.dialog.request("OPTIONS", cseq=cseq)
        request.headers.prepend("Via", f"SIP/2.0/UDP {ALICE};branch=z9hG4bKo{status}")
        if tag:
            request.headers.set("To", f"<sip:{BOB}>;tag={tag}")
        world.send(request.to_bytes(), bob, source=Hop("udp", ALICE, 5060))
        assert f"SIP/2.0 {status}".encode() in world.sent[-1]
    assert called.usage.confirmed


def test_sdp_within_multipart_is_read() -> None:
    world, alice, _ = pair()
    dial(world, alice)
    request = sent_invite(world)
    offer = request.body
    request.headers.set("Content-Type", 'multipart/mixed; boundary="cut"')
    request.headers.set("Via", f"SIP/2.0/UDP {ALICE};branch=z9hG4bKmulti")
    request.body = (
        b"--cut\r\nContent-Type: application/isup\r\n\r\n\x01\x02\xff\r\n"
        b"--cut\r\nContent-Type: application/sdp\r\n\r\n" + offer + b"\r\n--cut--\r\n"
    )
    bob = Party(BOB)
    World(bob).send(request.to_bytes(), bob, source=Hop("udp", ALICE, 5060))
    assert len(bob.heard(MediaAgreed)) == 1


# A network that misbehaves --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_a_call_survives_loss_doubling_and_reordering(seed: int) -> None:
    alice, bob = Party(ALICE), Party(BOB)
    world = World(alice, bob, fate=hostile(seed))
    calls: list[IncomingInvite] = []

    def ring(invite: IncomingInvite, now: float) -> None:
        calls.append(invite)
        invite.ring(now, early_media=seed % 2 == 0)

    bob.on_invite = ring
    invite = dial(world, alice)
    world.run(8)
    assert len(calls) == 1  # however often the INVITE came
    calls[0].accept(world.now)
    world.run(20)
    assert invite.usage.confirmed
    assert calls[0].usage.confirmed
    invite.set_hold(True, world.now)
    world.run(30)
    assert invite.usage.held == calls[0].usage.held
    (invite if seed % 3 else calls[0]).hang_up(world.now)
    world.run(40)
    assert len(alice.heard(InviteEnded)) == 1
    assert len(bob.heard(InviteEnded)) == 1
    assert nothing_left(world, alice, bob)


@pytest.mark.parametrize("seed", range(15))
def test_a_call_cancelled_at_any_moment_leaves_nothing(seed: int) -> None:
    alice, bob = Party(ALICE), Party(BOB)
    world = World(alice, bob, fate=hostile(seed))
    pending: list[IncomingInvite] = []

    def ring(invite: IncomingInvite, now: float) -> None:
        invite.ring(now)
        pending.append(invite)

    bob.on_invite = ring
    invite = dial(world, alice)
    world.run(seed * 0.15)
    if seed % 2 and pending and pending[0].usage.state is InviteState.INVITED:
        pending[0].accept(world.now)
    invite.hang_up(world.now)
    world.run(120)
    assert len(alice.heard(InviteEnded)) == 1
    assert nothing_left(world, alice, bob)
