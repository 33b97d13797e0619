"""RFC 4028: who refreshes, how often, and what happens when nobody does."""

from __future__ import annotations

import pytest

from sip.dialog.invite import Invite
from sip.dialog.session_timer import SessionTimer, SessionTimerSettings, delta_seconds, session_expires
from sip.dialog.usage import InviteSettings
from sip.errors import MalformedMessage
from sip.message.headers import Headers
from sip.message.message import Request, Response
from sip.message.uri import Uri
from sip.states import HangupCause
from tests.support.sip.sip_world import Party, World


def request(**headers: str) -> Request:
    items = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Request("INVITE", Uri("sip", "x", "h"), Headers(items))


def response(**headers: str) -> Response:
    return Response(200, "OK", Headers([(name.replace("_", "-"), value) for name, value in headers.items()]))


def timer(expires_s: int = 1800, min_s: int = 90) -> SessionTimer:
    return SessionTimer(SessionTimerSettings(expires_s, min_s))


def test_the_caller_asks_and_takes_what_the_called_says() -> None:
    ours = timer()
    headers = Headers()
    ours.ask(headers)
    assert headers.get("Session-Expires") == "1800"
    ours.agreed(response(Session_Expires="600;refresher=uac"), 100.0)
    assert (ours.refresh_at, ours.expires_at) == (400.0, 100.0 + 600 - 32)
    ours.agreed(response(Session_Expires="600;refresher=uas"), 100.0)
    assert ours.refresh_at is None
    headers = Headers()
    ours.ask(headers)
    assert headers.get("Session-Expires") == "600;refresher=uas"


def test_a_far_end_that_knows_no_timers_is_refreshed_by_us() -> None:
    ours = timer()
    ours.agreed(response(), 0.0)
    assert ours.refresh_at == 900.0
    answer = Headers()
    ours.answer(request(), answer, 0.0)
    assert answer.get("Session-Expires") == "1800;refresher=uas"
    assert answer.get("Require") is None
    assert ours.we_refresh


@pytest.mark.parametrize(
    ("asked", "answered", "we_refresh"),
    [
        ({"Session_Expires": "3600"}, "1800;refresher=uac", False),
        ({"Session_Expires": "600;refresher=uas"}, "600;refresher=uas", True),
        ({"Session_Expires": "600;refresher=uac"}, "600;refresher=uac", False),
        ({"Session_Expires": "3600", "Min_SE": "2000"}, "2000;refresher=uac", False),
        ({}, "1800;refresher=uas", True),
    ],
)
def test_the_called_decides(asked: dict[str, str], answered: str, we_refresh: bool) -> None:
    ours, headers = timer(), Headers()
    ours.answer(request(Supported="timer", **asked), headers, 0.0)
    assert headers.get("Session-Expires") == answered
    assert (headers.get("Require") == "timer") is not we_refresh
    assert ours.we_refresh is we_refresh


def test_switched_off_it_asks_for_nothing_but_agrees_to_theirs() -> None:
    ours, headers = timer(0), Headers()
    ours.ask(headers)
    ours.answer(request(), headers, 0.0)
    ours.agreed(response(), 0.0)
    assert len(headers) == 0
    assert not ours.running
    ours.answer(request(Supported="timer", Session_Expires="300"), headers, 0.0)
    assert headers.get("Session-Expires") == "300;refresher=uac"


def test_too_short_an_interval_is_refused_with_ours() -> None:
    assert timer().refusal(request(Supported="timer", Session_Expires="60")) == 90
    assert timer(min_s=300).refusal(request(Supported="timer", Session_Expires="200")) == 300
    assert timer().refusal(request(Supported="timer", Session_Expires="90")) is None
    assert timer().refusal(request(Session_Expires="60")) is None  # they would not understand 422
    with pytest.raises(MalformedMessage):
        timer().refusal(request(Session_Expires="soon"))


def test_their_minimum_is_taken_once() -> None:
    ours = timer(600)
    assert ours.too_brief(response(Min_SE="1200"))
    headers = Headers()
    ours.ask(headers)
    assert headers.get("Session-Expires") == "1200"
    assert not ours.too_brief(response(Min_SE="1200"))  # refused for something that we cannot help
    assert not ours.too_brief(response())
    assert not ours.too_brief(response(Min_SE="999999999"))


def test_numbers_of_seconds() -> None:
    assert session_expires("1800 ; refresher=UAC") == (1800, "uac")
    assert delta_seconds("120;duration=5") == 120
    assert delta_seconds("99999999999999999999") == 2**32 - 1
    for bad in (None, "", "-1", "1.5", "²"):
        assert delta_seconds(bad) is None


# In a call ------------------------------------------------------------------------------------------------

SETTINGS = InviteSettings(session_expires_s=200)


def up(refresher_alice: bool) -> tuple[World, Party, Party]:
    settings_bob = InviteSettings(session_expires_s=0) if refresher_alice else SETTINGS
    alice = Party("192.0.2.1", settings=SETTINGS)
    bob = Party("192.0.2.2", settings=settings_bob)
    world = World(alice, bob)
    alice.call("192.0.2.2").dial(world.now)
    world.run(1)
    return world, alice, bob


def test_a_call_is_refreshed_by_update_for_hours() -> None:
    world, alice, bob = up(refresher_alice=True)
    world.run(3600)
    refreshes = len(bob.requests("UPDATE")) + len(alice.requests("UPDATE"))
    assert 30 <= refreshes <= 40
    assert len(bob.requests("INVITE")) == 1
    assert alice.stack.dialogs == bob.stack.dialogs == 1
    assert alice.stack.transactions + bob.stack.transactions <= 4


def test_a_far_end_without_update_is_refreshed_by_invite() -> None:
    world, alice, bob = up(refresher_alice=True)
    ((_, invite),) = alice.stack.within._open.values()
    assert isinstance(invite, Invite)
    invite.usage.peer_updates = False
    world.run(300)
    assert len(bob.requests("INVITE")) >= 3
    versions = {
        line for each in bob.requests("INVITE") for line in each.body.splitlines() if line[:2] == b"o="
    }
    assert len(versions) == 1  # nothing has changed: the same version (RFC 3264 section 8)


def test_a_call_whose_far_end_is_gone_ends_by_itself_on_both_sides() -> None:
    world, alice, bob = up(refresher_alice=True)
    world.fate = lambda data: []
    world.run(400)
    assert alice.end.cause is HangupCause.SESSION_EXPIRED
    assert bob.end.cause is HangupCause.SESSION_EXPIRED
    world.run(100)
    assert alice.stack.dialogs == bob.stack.dialogs == 0
