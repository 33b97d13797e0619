from __future__ import annotations

import pytest

from sip.errors import MalformedMessage
from sip.message.uri import Uri


@pytest.mark.parametrize(
    "text",
    [
        "sip:alice@example.com",
        "sip:+966110000000@192.0.2.1:5060;user=phone",
        "sips:alice:secret@example.com;transport=tcp",
        "sip:[2001:db8::1]:5070;lr",
        "sip:atlanta.com;method=REGISTER?to=alice%40atlanta.com",
        "sip:alice;day=tuesday@atlanta.com",
        "sip:%00%00@host5.example.com",
        "sip:sips%3Auser%40example.com@example.net",
        "sip:*98#@pbx.local",
        "sip:host;unknown=a/b;flag",
        "tel:+1-201-555-0123;phone-context=example.com",
        "http://www.example.com",
    ],
)
def test_what_is_parsed_is_written_back(text: str) -> None:
    assert str(Uri.parse(text)) == text
    assert Uri.parse(str(Uri.parse(text))) == Uri.parse(text)


def test_parts_of_a_carrier_address() -> None:
    uri = Uri.parse("SIP:+1555%2A;ext=1:p%40ss@[2001:DB8::1]:5061;Transport=TCP;lr?Subject=a%20b")
    assert (uri.scheme, uri.user, uri.password) == ("sip", "+1555*;ext=1", "p@ss")
    assert (uri.host, uri.port) == ("2001:DB8::1", 5061)
    assert uri.params == {"transport": "TCP", "lr": None}
    assert uri.transport == "tcp"
    assert uri.headers == {"Subject": "a b"}
    assert uri.without_headers().headers == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com",
        "sip:",
        "sip:@example.com",
        "sip::secret@example.com",
        "sip:a@b@example.com",
        "sip:alice@",
        "sip:alice@exa mple.com",
        "sip:alice@example.com\r\nInjected: yes",
        "<sip:alice@example.com>",
        "sip:alice@example.com:",
        "sip:alice@example.com:65536",
        "sip:alice@example.com:-1",
        "sip:alice@example.com:5०60",
        "sip:alice@[2001:db8::1",
        "sip:alice@[fe80::1%25eth0]",
        "sip:alice@[192.0.2.1]",
        "sip:alice@[::1]5060",
        "sip:alice@-example.com",
        "sip:alice@example.com;;lr",
        "sip:alice@example.com?novalue",
        "sip:%4@example.com",
        "sip:%zz@example.com",
        "tel:",
        "tel:;phone-context=x",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        Uri.parse(text)
    assert caught.value.code == 400


def test_number_from_outside_cannot_break_out_of_the_user_part() -> None:
    dialled = Uri("sip", "123@evil.example;lr\r\nRoute: <sip:evil>", "carrier.example")
    assert "\r" not in str(dialled)
    assert Uri.parse(str(dialled)) == dialled
    assert Uri.parse(str(dialled)).host == "carrier.example"


def test_parameters_are_added_and_taken_away_on_a_copy() -> None:
    uri = Uri.parse("sip:a@b;transport=udp")
    assert str(uri.with_params(lr=None, transport="tcp")) == "sip:a@b;transport=tcp;lr"
    assert str(uri.with_params(lr=None).without_params("transport")) == "sip:a@b;lr"
    assert str(uri.with_params(lr=None).without_params()) == "sip:a@b"
    assert str(uri) == "sip:a@b;transport=udp"


def test_uris_can_be_keys() -> None:
    assert {Uri.parse("sip:a@b;lr"): 1}[Uri.parse("sip:a@b;lr")] == 1
