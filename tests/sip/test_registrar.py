"""Telephones that register: what is bound, for how long, and to where."""

from __future__ import annotations

import pytest

from sip.message.headers import Headers
from sip.message.message import Request
from sip.message.uri import Uri
from sip.registrar import LONGEST_S, Binding, registered
from sip.transaction.hop import Hop

HOME = Hop("udp", "198.51.100.7", 40_000)
CONTACT = Uri.parse("sip:desk-1f@192.168.1.5:5060;ob")


def register(*lines: tuple[str, str], to: str = "<sip:desk@us.example>") -> Request:
    return Request("REGISTER", Uri.parse("sip:us.example"), Headers([("To", to), *lines]))


def test_a_contact_is_bound_to_where_it_came_from() -> None:
    request = register(("Contact", f"<{CONTACT}>"), ("Expires", "300"))
    binding, answer = registered(request, "desk", HOME, 100.0, None)
    assert binding == Binding(CONTACT, HOME, 400.0)
    assert answer.status == 200
    assert answer.headers == (("Contact", f"<{CONTACT}>;expires=300"),)
    assert str(binding.target) == "sip:desk-1f@198.51.100.7:40000"


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ((("Contact", f"<{CONTACT}>;expires=120"), ("Expires", "300")), 120),
        ((("Contact", f"<{CONTACT}>"),), LONGEST_S),
        ((("Contact", f"<{CONTACT}>;expires=999999"),), LONGEST_S),
    ],
)
def test_the_contacts_wish_counts_within_bounds(lines: tuple[tuple[str, str], ...], seconds: int) -> None:
    binding, _ = registered(register(*lines), "desk", HOME, 0.0, None)
    assert binding is not None
    assert binding.expires_at == seconds


@pytest.mark.parametrize(
    ("request_", "status", "stays"),
    [
        (register(("Contact", f"<{CONTACT}>"), to="<sip:boss@us.example>"), 403, True),
        (register(("Contact", f"<{CONTACT}>;expires=10")), 423, True),
        (register(("Contact", "<mailto:desk@example.com>")), 400, True),
        (register(("Contact", "*")), 400, True),
        (register(), 200, True),
        (register(("Contact", "*"), ("Expires", "0")), 200, False),
        (register(("Contact", f"<{CONTACT}>;expires=0")), 200, False),
    ],
)
def test_what_leaves_a_binding_and_what_takes_it_away(request_: Request, status: int, stays: bool) -> None:
    before = Binding(CONTACT, HOME, 500.0)
    binding, answer = registered(request_, "desk", HOME, 100.0, before)
    assert (answer.status, binding) == (status, before if stays else None)
