"""A REFER of the far end: accepted where the settings say so, and told how it goes."""

from __future__ import annotations

import pytest

from sip.dialog.events import InviteEnded, MoveAsked
from sip.dialog.uac import OutgoingInvite
from sip.dialog.uas import IncomingInvite
from sip.dialog.usage import InviteSettings
from sip.transaction.transaction import FireAndForget
from tests.support.sip.sip_world import Party, World, answer

ALICE, BOB = "192.0.2.1", "192.0.2.2"


class Asked:
    """A call from Alice to Bob, who refers her to somebody else."""

    def __init__(self, *, accepts: bool = True) -> None:
        self.alice = Party(ALICE, settings=InviteSettings(accept_refer=accepts))
        self.bob = Party(BOB)
        self.world = World(self.alice, self.bob)
        self.called: list[IncomingInvite] = []
        self.bob.on_invite = self._pick_up
        self.invite: OutgoingInvite = self.alice.call(BOB)
        self.invite.dial(self.world.now)
        self.world.run(1)

    def refer(self, *refer_to: str) -> int:
        """Sends a REFER of Bob's; returns the status of its answer."""
        dialog = self.called[0].usage.dialog
        assert dialog is not None
        request = dialog.request("REFER")
        request.headers.add("Contact", dialog.contact)
        for each in refer_to:
            request.headers.add("Refer-To", each)
        before = len(self.bob.statuses("REFER"))
        self.bob.stack.send_request(request, dialog.next_hop(), FireAndForget(), self.world.now)
        self.world.run(0.1)
        return self.bob.statuses("REFER")[before]

    def told(self) -> list[tuple[str, str]]:
        """First line and Subscription-State of each NOTIFY, repetitions left out."""
        seen = {str(each.cseq): each for each in self.bob.requests("NOTIFY")}
        return [
            (each.body.decode().split()[1], (each.header("Subscription-State") or "").partition(";")[0])
            for each in seen.values()
        ]

    def _pick_up(self, invite: IncomingInvite, now: float) -> None:
        self.called.append(invite)
        answer(invite, now)


def test_a_refer_is_accepted_and_told_how_it_goes() -> None:
    call = Asked()
    assert "REFER" in (call.bob.requests("INVITE")[0].header("Allow") or "")
    assert call.refer("<sip:desk@192.0.2.9>") == 202
    (asked,) = call.alice.heard(MoveAsked)
    assert (asked.move.to.user, asked.move.pending) == ("desk", True)
    asked.move.tell(200, call.world.now)
    asked.move.tell(486, call.world.now)  # after the end
    call.world.run(1)
    assert call.told() == [("100", "active"), ("200", "terminated")]
    assert not asked.move.pending


def test_the_end_is_told_after_the_call_as_well() -> None:
    call = Asked()
    call.refer("<sip:desk@192.0.2.9>")
    call.called[0].hang_up(call.world.now)
    call.world.run(1)
    assert call.alice.heard(InviteEnded)
    (asked,) = call.alice.heard(MoveAsked)
    asked.move.tell(200, call.world.now)
    call.world.run(1)
    assert call.told()[-1] == ("200", "terminated")


@pytest.mark.parametrize(
    ("refer_to", "status"),
    [((), 400), (("<sip:a@b>, <sip:c@d>",), 400), (("<sip:",), 400)],
)
def test_a_refer_that_cannot_be_taken_is_refused(refer_to: tuple[str, ...], status: int) -> None:
    call = Asked()
    assert call.refer(*refer_to) == status
    assert call.alice.heard(MoveAsked) == []
    assert call.told() == []


def test_one_refer_at_a_time() -> None:
    call = Asked()
    assert [call.refer("<sip:a@b>"), call.refer("<sip:c@d>")] == [202, 491]
    (asked,) = call.alice.heard(MoveAsked)
    asked.move.tell(603, call.world.now)
    assert call.refer("<sip:c@d>") == 202


def test_who_does_not_accept_a_refer_does_not_offer_to() -> None:
    call = Asked(accepts=False)
    assert call.refer("<sip:desk@192.0.2.9>") == 405
    assert "REFER" not in (call.bob.requests("INVITE")[0].header("Allow") or "")
    assert call.alice.heard(MoveAsked) == []
