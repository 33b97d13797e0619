"""Telephones that register: what is bound, for how long, and to where."""

from __future__ import annotations

from typing import NoReturn

import pytest

from sip.message.headers import Headers
from sip.message.message import Request
from sip.message.uri import Uri
from sip.telephones.registrar import LONGEST_S, NAT_S, Binding, Limits, Registrar, registered
from sip.transaction.hop import Hop

HOME = Hop("udp", "198.51.100.7", 40_000)
OFFICE = Hop("tcp", "198.51.100.8", 40_001, 7)
CONTACT = Uri.parse("sip:desk-1f@198.51.100.7:5060;ob")
PRIVATE = Uri.parse("sip:desk-1f@192.168.1.5:5060;ob")
OTHER = Uri.parse("sip:desk@198.51.100.8:5060")
ACCOUNT = ("users:acme", "desk")


def register(*lines: tuple[str, str], to: str = "<sip:desk@us.example>", cseq: int = 1) -> Request:
    own = [("To", to), ("Call-ID", "one"), ("CSeq", f"{cseq} REGISTER")]
    return Request("REGISTER", Uri.parse("sip:us.example"), Headers([*own, *lines]))


def test_a_contact_is_bound_to_where_it_came_from() -> None:
    request = register(("Contact", f"<{CONTACT}>"), ("Expires", "300"))
    bound, answer = registered(request, "desk", HOME, 100.0)
    assert bound == (Binding(CONTACT, HOME, 400.0, call_id="one", cseq=1),)
    assert answer.status == 200
    assert answer.headers == (("Contact", f"<{CONTACT}>;expires=300"),)


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ((("Contact", f"<{CONTACT}>;expires=120"), ("Expires", "300")), 120),
        ((("Contact", f"<{CONTACT}>"),), LONGEST_S),
        ((("Contact", f"<{CONTACT}>;expires=999999"),), LONGEST_S),
        ((("Contact", f"<{PRIVATE}>;expires=600"),), NAT_S),  # refreshing keeps the NAT open
    ],
)
def test_the_contacts_wish_counts_within_bounds(lines: tuple[tuple[str, str], ...], seconds: int) -> None:
    bound, _ = registered(register(*lines), "desk", HOME, 0.0)
    assert [each.expires_at for each in bound] == [seconds]


@pytest.mark.parametrize(
    ("request_", "status", "stays"),
    [
        (register(("Contact", f"<{CONTACT}>"), to="<sip:boss@us.example>"), 403, True),
        (register(("Contact", f"<{CONTACT}>;expires=10")), 423, True),
        (register(("Contact", "<mailto:desk@example.com>")), 400, True),
        (register(("Contact", "*")), 400, True),
        (register(("Contact", "*"), ("Contact", f"<{CONTACT}>"), ("Expires", "0")), 400, True),
        (register(*[("Contact", f"<sip:{each}@h>") for each in range(11)]), 400, True),
        (register(("Contact", f"<{CONTACT}>;expires=0"), cseq=0), 500, True),  # overtaken
        (register(), 200, True),
        (register(("Contact", "*"), ("Expires", "0")), 200, False),
        (register(("Contact", f"<{CONTACT}>;expires=0")), 200, False),
    ],
)
def test_what_leaves_a_binding_and_what_takes_it_away(request_: Request, status: int, stays: bool) -> None:
    before = (Binding(CONTACT, HOME, 500.0, call_id="one", cseq=1),)
    bound, answer = registered(request_, "desk", HOME, 100.0, before=before)
    assert (answer.status, bound) == (status, before if stays else ())


def test_several_telephones_of_a_user_and_the_oldest_gives_way() -> None:
    registrar = Registrar()
    for number in range(4):
        contact = f"<sip:desk@198.51.100.7:{6000 + number}>"
        answer = registrar.register(register(("Contact", contact)), ACCOUNT, HOME, float(number), most=3)
    assert [each.contact.port for each in registrar.bound(ACCOUNT, 5.0)] == [6001, 6002, 6003]
    assert len([name for name, _ in answer.headers if name == "Contact"]) == 3
    assert registrar.count(5.0) == {"users:acme": 3}


def test_a_telephone_that_names_itself_replaces_its_own_flow() -> None:
    """A browser names another contact each time it connects (RFC 5626)."""
    registrar = Registrar()
    for name, hop in (("aa", Hop("tcp", "h", 1, 3)), ("bb", Hop("tcp", "h", 2, 4))):
        contact = f'<sip:{name}@x.invalid;transport=ws>;+sip.instance="<urn:uuid:1>";reg-id=1'
        lines = (("Contact", contact), ("Supported", "path, outbound"))
        answer = registrar.register(register(*lines), ACCOUNT, hop, 0.0, most=3)
    assert [each.contact.user for each in registrar.bound(ACCOUNT, 1.0)] == ["bb"]
    assert ("Require", "outbound") in answer.headers
    assert answer.headers[0][1].endswith(';+sip.instance="<urn:uuid:1>";reg-id=1')


def test_a_contact_ends_with_its_connection() -> None:
    registrar = Registrar()
    registrar.register(register(("Contact", f"<{CONTACT}>")), ACCOUNT, HOME, 0.0, most=3)
    registrar.register(register(("Contact", f"<{OTHER}>")), ACCOUNT, OFFICE, 0.0, most=3)
    assert registrar.of_flow(OFFICE, [ACCOUNT], 1.0)
    assert not registrar.of_flow(Hop("udp", HOME.host, 40_002), [ACCOUNT], 1.0)
    registrar.flow_closed(7)
    assert [each.hop for each in registrar.bound(ACCOUNT, 1.0)] == [HOME]
    assert not registrar.of_flow(OFFICE, [ACCOUNT], 1.0)


def test_telephones_expire_and_go_with_their_account() -> None:
    registrar = Registrar(shortest_s=5, longest_s=20)
    registrar.register(register(("Contact", f"<{CONTACT}>")), ACCOUNT, HOME, 0.0, most=3)
    assert registrar.at("198.51.100.7", 19.0)
    assert (registrar.bound(ACCOUNT, 20.0), registrar.at("198.51.100.7", 20.0)) == ((), False)
    assert len(registrar.bound(ACCOUNT, 19.0)) == 1
    registrar.keep([])
    assert registrar.bound(ACCOUNT, 19.0) == ()


def test_proxies_on_the_way_are_kept_and_told() -> None:
    request = register(("Contact", f"<{CONTACT}>"), ("Path", "<sip:10.0.0.1;lr>"))
    bound, answer = registered(request, "desk", HOME, 0.0, limits=Limits())
    assert bound[0].path == (Uri.parse("sip:10.0.0.1;lr"),)
    assert ("Path", "<sip:10.0.0.1;lr>") in answer.headers


class Accounts(frozenset[tuple[str, str]]):
    """Accounts that may be looked up, not walked through: there are 10,000 of them."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("a request of a stranger costs as much as there are accounts")


def test_whose_flow_it_is_costs_the_same_for_any_number_of_accounts() -> None:
    registrar, names = Registrar(), Accounts([ACCOUNT, ("users:acme", "other")])
    registrar.register(register(("Contact", f"<{CONTACT}>")), ACCOUNT, HOME, 0.0, most=3)
    assert registrar.of_flow(Hop("udp", f"::ffff:{HOME.host}", HOME.port), names, 1.0)
    assert not registrar.of_flow(HOME, Accounts([("users:acme", "other")]), 1.0)
    assert not registrar.of_flow(HOME, names, LONGEST_S + 1.0)
    moved = Hop("udp", HOME.host, HOME.port + 1)
    registrar.register(register(("Contact", f"<{CONTACT}>"), cseq=2), ACCOUNT, moved, 1.0, most=3)
    assert (registrar.of_flow(HOME, names, 2.0), registrar.of_flow(moved, names, 2.0)) == (False, True)
    registrar.keep([])
    assert not registrar.of_flow(moved, names, 2.0)
