"""Why a call ended: told in every message that ends one, and read from those of the far end."""

from __future__ import annotations

import pytest

from sip.dialog.uas import IncomingInvite
from sip.message.headers import Headers
from sip.message.message import Response
from sip.reason import Q850, Reason, reasons_of
from sip.states import HangupCause
from tests.support.sip.sip_world import Party, World


def parties() -> tuple[Party, Party, World]:
    ours, theirs = Party("192.0.2.1"), Party("192.0.2.2")
    return ours, theirs, World(ours, theirs)


def ringing(invite: IncomingInvite, now: float) -> None:
    invite.ring(now)


def test_a_bye_says_why_and_is_believed() -> None:
    ours, theirs, world = parties()
    call = ours.call("192.0.2.2")
    call.dial(world.now)
    world.run(1.0)
    call.hang_up(world.now, cause=HangupCause.MEDIA_TIMEOUT)
    world.run(1.0)
    (bye,) = theirs.requests("BYE")
    assert bye.header("Reason") == 'Q.850;cause=102;text="Recovery on timer expiry"'
    assert theirs.end.reasons == (Q850[HangupCause.MEDIA_TIMEOUT],)
    assert ours.end.reasons == ()


@pytest.mark.parametrize("cause", [HangupCause.NO_ANSWER, HangupCause.NORMAL])
def test_a_cancel_says_why(cause: HangupCause) -> None:
    ours, theirs, world = parties()
    theirs.on_invite = ringing
    call = ours.call("192.0.2.2")
    call.dial(world.now)
    world.run(1.0)
    call.hang_up(world.now, cause=cause)
    world.run(1.0)
    expected = Q850[HangupCause.CANCELLED if cause is HangupCause.NORMAL else cause]
    (cancel,) = theirs.requests("CANCEL")
    assert reasons_of(cancel.headers) == (expected,)
    assert theirs.end.reasons == (expected,)


def test_a_refusal_says_why() -> None:
    ours, theirs, world = parties()
    theirs.on_invite = lambda invite, now: invite.reject(486, now)
    ours.call("192.0.2.2").dial(world.now)
    world.run(1.0)
    refused = [each for each in ours.received if isinstance(each, Response) and each.status == 486]
    assert refused[0].header("Reason") == 'Q.850;cause=17;text="User busy"'
    assert (ours.end.cause, ours.end.reasons) == (HangupCause.BUSY, (Q850[HangupCause.BUSY],))


def test_every_cause_has_a_reason() -> None:
    assert set(Q850) == set(HangupCause)


@pytest.mark.parametrize(
    ("lines", "reasons"),
    [
        (["Q.850;cause=16"], (Reason("Q.850", 16),)),
        (
            ['SIP;cause=200;text="Call completed elsewhere", Q.850 ; cause=26'],
            (Reason("SIP", 200, "Call completed elsewhere"), Reason("Q.850", 26)),
        ),
        (["Q.850;cause=x", 'Q.850;text="', "Q.850", "Q.850;cause=12345", ""], ()),
        (["preemption;cause=1", "Q.850;cause=17"], (Reason("preemption", 1), Reason("Q.850", 17))),
    ],
)
def test_reasons_are_read_and_broken_ones_left_out(lines: list[str], reasons: tuple[Reason, ...]) -> None:
    assert reasons_of(Headers([("Reason", line) for line in lines])) == reasons
