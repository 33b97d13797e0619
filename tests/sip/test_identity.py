"""Who calls, as carriers write it."""

from __future__ import annotations

import pytest

from sip.identity import CallerIdentity, Diversion, caller_identity, identity_headers, told, user_to_user
from sip.message.headers import Headers, NameAddr

FROM = ("From", '"Ann" <sip:+14155550177@carrier.example>;tag=1')
PAI = ("P-Asserted-Identity", '"Bo" <sip:+14155550188@carrier.example;user=phone>')
RPID = ("Remote-Party-ID", '"Cy" <sip:+14155550199@h>;party=calling;screen=yes;privacy=off')


@pytest.mark.parametrize(
    ("source", "lines", "number", "name", "asserted"),
    [
        ("from", (FROM, PAI), "+14155550177", "Ann", False),
        ("pai", (FROM, PAI), "+14155550188", "Bo", True),
        ("pai", (FROM, ("P-Asserted-Identity", "<tel:+1-415-555-0188>")), "+14155550188", "Ann", True),
        ("pai", (FROM, ("P-Asserted-Identity", f"{PAI[1]}, <tel:+1999>")), "+14155550188", "Bo", True),
        ("pai", (FROM,), "+14155550177", "Ann", False),
        ("pai", (FROM, ("P-Asserted-Identity", "<broken")), "+14155550177", "Ann", False),
        ("rpid", (FROM, RPID), "+14155550199", "Cy", True),
        ("rpid", (FROM, ("Remote-Party-ID", "<sip:1@h>;party=called")), "+14155550177", "Ann", False),
        ("from", (("From", "<sip:+1415;npdi@h;user=phone>"),), "+1415", "", False),
    ],
)
def test_a_trunk_says_which_identity_counts(
    source: str, lines: tuple[tuple[str, str], ...], number: str, name: str, asserted: bool
) -> None:
    caller = caller_identity(Headers(lines), source)
    assert (caller.number, caller.display_name, caller.asserted) == (number, name, asserted)
    assert not caller.withheld


MASKED = (("From", '"Anonymous" <sip:anonymous@anonymous.invalid>;tag=1'),)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("from", (FROM, PAI, ("Privacy", "id"))),
        ("pai", (FROM, PAI, ("Privacy", "id"))),
        ("pai", (FROM, PAI, ("Privacy", "user; critical"))),
        ("from", MASKED),
        ("pai", MASKED),
        ("pai", (*MASKED, PAI, ("Privacy", "id"))),
        ("from", (("From", "<sip:c8oqz84zk7z@anonymous.invalid>;tag=1"),)),
        ("rpid", (FROM, ("Remote-Party-ID", "<sip:+14155550199@h>;party=calling;privacy=full"))),
    ],
)
def test_who_withholds_a_number_is_nobody(source: str, lines: tuple[tuple[str, str], ...]) -> None:
    caller = caller_identity(Headers(lines), source)
    assert (caller.number, caller.display_name, caller.withheld) == ("anonymous", "", True)


@pytest.mark.parametrize(
    "lines",
    [
        (("From", "<sip:+1415;verstat=TN-Validation-Passed@h;user=phone>"),),
        (("From", "<tel:+1415;verstat=TN-Validation-Passed>"),),
        (FROM, ("P-Asserted-Identity", "<sip:+1415;verstat=TN-Validation-Passed@h>")),
        (("From", "<sip:+1415@h>;verstat=TN-Validation-Passed;tag=1"),),
    ],
)
def test_the_verdict_on_a_signature_is_read(lines: tuple[tuple[str, str], ...]) -> None:
    assert caller_identity(Headers(lines)).verstat == "TN-Validation-Passed"


def test_diversions_come_in_the_order_in_which_they_happened() -> None:
    first, second = Diversion("+14155550101", "unconditional"), Diversion("+14155550102", "user-busy")
    lines = [
        ("Diversion", "<sip:+14155550102@h>;reason=user-busy"),
        ("Diversion", "<tel:+14155550101>;reason=unconditional"),
    ]
    assert caller_identity(Headers([FROM, *lines])).diversions == (first, second)
    history = (
        "<sip:+14155550101@h>;index=1, <sip:+14155550102@h?Reason=SIP%3Bcause%3D302>;index=1.1;mp=1,"
        " <sip:+14155550103@h>;index=1.2"
    )
    found = caller_identity(Headers([FROM, ("History-Info", history)])).diversions
    assert found == (Diversion("+14155550101", ""), Diversion("+14155550102", "302"))


def test_what_a_stranger_writes_is_bounded_and_plain() -> None:
    headers = Headers(
        [("From", '"A\x01B" <sip:1@h>'), ("X-Long", "x" * 5000), ("X-Two", "1"), ("X-Two", "2")]
    )
    assert caller_identity(headers) == CallerIdentity(number="1", display_name="A B")
    assert (len(told(headers, "x-long")), told(headers, "X-Two"), told(headers, "X-No")) == (2048, "1, 2", "")
    assert caller_identity(Headers()).withheld


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("48656c6c6f;encoding=hex", "Hello"),
        ("48656c6c6f;purpose=isdn-uui;encoding=hex", "Hello"),
        ("04ff00;encoding=hex", "04ff00"),
        ("zz;encoding=hex", "zz"),
        ('"order 7"', "order 7"),
        ("", ""),
        ('"', ""),
    ],
)
def test_user_to_user_is_read(value: str, text: str) -> None:
    assert user_to_user(Headers([("User-to-User", value)])) == text


def test_our_number_goes_where_the_carrier_wants_it() -> None:
    caller = NameAddr.parse('"Acme" <sip:+14155550100@h>')
    assert identity_headers("from", caller, withheld=False) == {}
    assert identity_headers("pai", caller, withheld=False) == {"P-Asserted-Identity": str(caller)}
    assert identity_headers("pai", caller, withheld=True) == {
        "Privacy": "id",
        "P-Asserted-Identity": str(caller),
    }
    rpid = identity_headers("rpid", caller, withheld=True)["Remote-Party-ID"]
    assert rpid == f"{caller};party=calling;screen=yes;privacy=full"
