"""REFER within a call, and the NOTIFYs that tell how it goes."""

from __future__ import annotations

import pytest

from sip.dialog.referral import LINGER_S, Referral, ReferralState, replacing
from sip.dialog.uac import OutgoingInvite
from sip.dialog.uas import IncomingInvite
from sip.errors import LocalError
from sip.message.message import Request
from sip.message.uri import Uri
from sip.transaction.hop import Hop
from sip.transaction.transaction import FireAndForget
from tests.support.sip.sip_world import Party, World, answer, safe

ALICE, BOB = "192.0.2.1", "192.0.2.2"
DESK = Uri("sip", "+14155550188", BOB)


def but_refusals(data: bytes) -> list[float]:
    """A network without the answers of Bob's own stack, which takes no REFER."""
    return [] if data.startswith(b"SIP/2.0 4") and b" REFER\r\n" in data else safe(data)


class Referred:
    """A call from Alice, who refers Bob to the desk; Bob says what a test lets him say."""

    def __init__(self) -> None:
        self.alice, self.bob = Party(ALICE), Party(BOB)
        self.world = World(self.alice, self.bob, fate=but_refusals)
        self.called: list[IncomingInvite] = []
        self.bob.on_invite = self._pick_up
        self.invite: OutgoingInvite = self.alice.call(BOB)
        self.invite.dial(self.world.now)
        self.world.run(1)
        self.told: list[tuple[ReferralState, int]] = []
        self.notifies = 0

    def refer(self) -> Referral:
        referral = Referral(self.invite.usage, DESK, self._changed)
        referral.send(self.world.now)
        self.world.settle()
        return referral

    def accept(self, status: int = 202) -> Request:
        """Bob's answer, past his own stack, which knows no REFER."""
        self.world.run(0.02)
        refer = self.bob.requests("REFER")[-1]
        lines = [f"SIP/2.0 {status} Said"]
        for name in ("Via", "From", "To", "Call-ID", "CSeq"):
            lines.append(f"{name}: {refer.header(name)}")
        data = "\r\n".join([*lines, "Content-Length: 0", "", ""]).encode()
        self.world.send(data, self.alice, source=Hop("udp", BOB, 5060))
        return refer

    def notify(self, status: int, *, last: bool = False, event: str = "refer", **other: str) -> int:
        """A NOTIFY of Bob's; returns the status that Alice answered."""
        dialog = self.called[0].usage.dialog
        assert dialog is not None
        notify = dialog.request("NOTIFY")
        notify.headers.add("Event", event)
        notify.headers.add(
            "Subscription-State", "terminated;reason=noresource" if last else "active;expires=9"
        )
        notify.headers.add("Contact", dialog.contact)
        notify.headers.add("Content-Type", other.get("kind", "message/sipfrag;version=2.0"))
        notify.body = f"SIP/2.0 {status} Said\r\n".encode() if status else b""
        before = len(self.bob.statuses("NOTIFY"))
        self.bob.stack.send_request(notify, dialog.next_hop(), FireAndForget(), self.world.now)
        self.world.run(0.1)
        return self.bob.statuses("NOTIFY")[before]

    def _pick_up(self, invite: IncomingInvite, now: float) -> None:
        self.called.append(invite)
        answer(invite, now)

    def _changed(self, referral: Referral, now: float) -> None:
        self.told.append((referral.state, referral.status))


@pytest.mark.parametrize(
    ("statuses", "end"),
    [
        ((100, 180, 200), ReferralState.CONNECTED),
        ((100, 486), ReferralState.FAILED),
        ((302,), ReferralState.FAILED),
        ((603,), ReferralState.FAILED),
    ],
)
def test_a_referral_goes_as_the_far_end_tells(statuses: tuple[int, ...], end: ReferralState) -> None:
    call = Referred()
    referral = call.refer()
    request = call.accept()
    assert (request.header("Refer-To"), request.header("Referred-By")) == (f"<{DESK}>", f"<sip:7@{ALICE}>")
    assert request.contacts
    for status in statuses:
        assert call.notify(status, last=status == statuses[-1]) == 200
    assert (referral.state, referral.status) == (end, statuses[-1])
    assert call.told[0] == (ReferralState.ACCEPTED, 202)
    assert call.invite.usage.confirmed  # who refers hangs up


@pytest.mark.parametrize("status", [302, 405, 416, 481, 603])
def test_a_refusal_ends_a_referral_and_not_the_call(status: int) -> None:
    call = Referred()
    referral = call.refer()
    call.accept(status)
    assert call.told == [(ReferralState.REFUSED, status)]
    assert call.invite.usage.confirmed
    assert call.notify(200, last=True) == 200  # late and wrong: the end is told
    assert referral.state is ReferralState.REFUSED


def test_a_notify_may_overtake_the_response() -> None:
    call = Referred()
    referral = call.refer()
    call.world.run(0.02)
    call.notify(200, last=True)
    call.accept()
    assert (referral.state, call.told) == (ReferralState.CONNECTED, [(ReferralState.CONNECTED, 200)])


def test_a_subscription_that_ends_without_a_word_leaves_the_end_unknown() -> None:
    call = Referred()
    referral = call.refer()
    call.accept()
    assert call.notify(100, last=True) == 200
    assert referral.state is ReferralState.UNKNOWN


def test_a_far_end_without_a_response_leaves_the_end_unknown_and_the_call_up() -> None:
    call = Referred()
    referral = call.refer()
    call.world.run(33)
    assert (referral.state, referral.status) == (ReferralState.UNKNOWN, 408)
    assert call.invite.usage.confirmed


def test_a_notify_after_the_call_still_counts() -> None:
    call = Referred()
    referral = call.refer()
    call.accept()
    call.called[0].hang_up(call.world.now)
    call.world.run(0.1)
    assert call.invite.usage.ended
    assert call.notify(180) == 200
    assert call.notify(200, last=True) == 200
    assert referral.state is ReferralState.CONNECTED
    call.world.run(LINGER_S + 40)
    assert (call.alice.stack.dialogs, call.alice.stack.transactions) == (0, 0)
    assert call.notify(200) == 481


def test_what_is_no_notify_of_a_referral_is_refused() -> None:
    call = Referred()
    assert call.notify(200) == 481
    referral = call.refer()
    call.accept()
    assert call.notify(200, event="presence") == 489
    assert call.notify(200, kind="text/plain") == 415
    assert call.notify(200, event="refer;id=4711") == 200  # of another REFER
    assert referral.state is ReferralState.ACCEPTED


def test_one_referral_at_a_time_and_only_in_a_call() -> None:
    call = Referred()
    call.refer()
    with pytest.raises(LocalError, match="under way"):
        call.refer()
    call.invite.hang_up(call.world.now)
    with pytest.raises(LocalError, match="that is up"):
        call.refer()


def test_replaces_names_the_dialog_as_its_other_end_knows_it() -> None:
    call = Referred()
    dialog, theirs = call.invite.usage.dialog, call.called[0].usage.dialog
    assert dialog is not None
    assert theirs is not None
    uri = Uri.parse(str(replacing(DESK, dialog)))
    tags = f"to-tag={theirs.local.tag};from-tag={theirs.remote.tag}"
    assert uri.headers == {"Replaces": f"{dialog.call_id};{tags}"}
