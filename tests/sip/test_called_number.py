"""The number that an INVITE is for, wherever a carrier writes it and whatever it writes behind it."""

from __future__ import annotations

import pytest

from sip.called_number import called_numbers
from sip.message.headers import Headers
from sip.message.message import Request
from sip.message.uri import Uri


@pytest.mark.parametrize(
    ("uri", "number"),
    [
        ("sip:+14155550101@carrier.example", "+14155550101"),
        ("sip:+14155550101;npdi;rn=+14155550000@carrier.example", "+14155550101"),
        ("sip:+14155550101;npdi=yes;rn=+14155550000@carrier.example;user=phone", "+14155550101"),
        ("sip:+14155550101;verstat=TN-Validation-Passed@carrier.example", "+14155550101"),
        ("sip:14155550101;phone-context=+1@carrier.example;user=phone", "14155550101"),
        ("sip:+1-415-555-0101@carrier.example;user=phone", "+14155550101"),
        ("tel:+1(415)555-0101;npdi", "+14155550101"),
        ("sip:front-desk@pbx.example", "front-desk"),
        ("sip:jane.doe@pbx.example;user=phone", "jane.doe"),
        ("sip:carrier.example", ""),
    ],
)
def test_a_number_is_what_stands_before_its_parameters(uri: str, number: str) -> None:
    assert Uri.parse(uri).number == number


def test_parameters_of_a_number_are_read() -> None:
    uri = Uri.parse("sip:+14155550101;npdi;rn=+1415;VerStat=TN-Validation-Passed@h;user=phone")
    assert uri.number_params == {"npdi": None, "rn": "+1415", "verstat": "TN-Validation-Passed"}
    assert Uri.parse("tel:+1415;rn=+1").number_params == {"rn": "+1"}
    assert Uri.parse("sip:+1415@h;user=phone").number_params == {}


def invite(uri: str, *lines: tuple[str, str], to: str = "<sip:acme@carrier.example>") -> Request:
    return Request("INVITE", Uri.parse(uri), Headers([("To", to), *lines]))


@pytest.mark.parametrize(
    ("request_", "numbers"),
    [
        (invite("sip:+14155550101@us", to="<sip:+14155550999@h>"), ("+14155550101",)),
        (invite("sip:acme@us", to="<sip:+14155550101;npdi@h>"), ("+14155550101",)),
        (invite("sip:acme@us", ("P-Called-Party-ID", "<tel:+14155550101>")), ("+14155550101",)),
        (invite("sip:acme@us", ("X-DID", "14155550101")), ("14155550101",)),
        (invite("sip:acme@us", ("X-DID", "14155550101@carrier.example")), ("14155550101",)),
        (
            invite("sip:acme@us", ("P-Called-Party-ID", '"B" <sip:+1@h>'), to="<sip:+2@h>"),
            ("+1", "+2"),
        ),
        (invite("sip:us", to="<sip:+14155550101@h>"), ("+14155550101",)),
        (invite("sip:acme@us", ("X-DID", '"')), ("acme",)),
        (invite("sip:acme@us"), ("acme",)),
    ],
)
def test_the_called_number_of_a_call_to_an_account(request_: Request, numbers: tuple[str, ...]) -> None:
    assert called_numbers(request_, "acme") == numbers


def test_only_the_fields_that_are_named_count() -> None:
    request = invite("sip:acme@us", ("X-Number", "1"), ("X-DID", "2"))
    assert called_numbers(request, "acme", ("X-Number",)) == ("1",)
