from __future__ import annotations

import pytest

from sip.errors import MalformedMessage
from sip.message.headers import (
    WILDCARD,
    CSeq,
    Headers,
    NameAddr,
    Via,
    format_params,
    parse_params,
    split_list,
)
from sip.message.uri import Uri


def test_names_are_found_whatever_their_case_or_form() -> None:
    headers = Headers([("v", "one"), ("VIA", "two"), ("X-Odd", "three")])
    assert headers.get_all("via") == ["one", "two"]
    assert headers.get("V") == "one"
    assert "x-odd" in headers
    assert headers.get("Absent") is None
    assert headers.items() == [("Via", "one"), ("VIA", "two"), ("X-Odd", "three")]


def test_order_is_kept_by_every_change() -> None:
    headers = Headers([("Via", "b"), ("To", "t"), ("Via", "c")])
    headers.prepend("Via", "a")
    assert headers.get_all("Via") == ["a", "b", "c"]
    headers.set("Via", "only")
    assert headers.items() == [("Via", "only"), ("To", "t")]
    headers.set("From", "f")
    headers.remove("t")
    assert headers.items() == [("Via", "only"), ("From", "f")]
    assert len(headers) == 2


def test_copy_is_independent() -> None:
    headers = Headers([("To", "a")])
    other = headers.copy()
    other.add("From", "b")
    assert headers == Headers([("to", "a")])
    assert other != headers


def test_popping_takes_one_value_not_one_line() -> None:
    headers = Headers([("Route", '"a, b" <sip:a,x@b;lr>, <sip:c;lr>'), ("Route", "<sip:d;lr>")])
    assert headers.pop_first("Route") == '"a, b" <sip:a,x@b;lr>'
    assert headers.pop_first("route") == "<sip:c;lr>"
    assert headers.pop_first("Route") == "<sip:d;lr>"
    assert headers.pop_first("Route") is None


@pytest.mark.parametrize(
    ("text", "display", "uri", "params"),
    [
        ("sip:a@b;tag=1", "", "sip:a@b", {"tag": "1"}),
        ("<sip:a@b;user=phone>;tag=1", "", "sip:a@b;user=phone", {"tag": "1"}),
        ('"Bell, \\"A\\"" <sip:a@b>', 'Bell, "A"', "sip:a@b", {}),
        ("Alice Smith <sip:a@b>", "Alice Smith", "sip:a@b", {}),
        ("Müller, Hans <sip:a@b>", "Müller, Hans", "sip:a@b", {}),
        ("caller<sip:a@b>", "caller", "sip:a@b", {}),
        ('"" <sip:a@b> ; Q = 0.5 ; text = "x;y"', "", "sip:a@b", {"q": "0.5", "text": "x;y"}),
        ("<tel:+1555>", "", "tel:+1555", {}),
    ],
)
def test_addresses(text: str, display: str, uri: str, params: dict[str, str]) -> None:
    address = NameAddr.parse(text)
    assert (address.display, str(address.uri), address.params) == (display, uri, params)
    assert NameAddr.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        '"Mr. J. User <sip:j.user@example.com>',
        "<sip:a@b",
        "<sip:a@b> trailing",
        "<sip:a@b>;;",
        "<sip:a@b>;tag=",
        '"quoted" sip:a@b',
        "sip:a@b?Route=x",
        "<sip:a@b>, <sip:c@d>",
    ],
)
def test_broken_addresses(text: str) -> None:
    with pytest.raises(MalformedMessage):
        NameAddr.parse(text)


def test_lists_of_addresses_and_the_wildcard() -> None:
    found = NameAddr.parse_list(['"a,b" <sip:a@b>, <sip:c@d>;q=1', "sip:e@f"])
    assert [each.uri.user for each in found] == ["a", "c", "e"]
    assert NameAddr.parse_list(["*"]) == [WILDCARD]
    assert str(WILDCARD) == "*"
    assert NameAddr.parse("*").is_wildcard


def test_tag_is_put_on_a_copy() -> None:
    address = NameAddr(Uri.parse("sip:a@b"))
    assert address.tag is None
    assert address.with_tag("x").tag == "x"
    assert str(address.with_tag("x")) == "<sip:a@b>;tag=x"


def test_via_with_everything() -> None:
    via = Via.parse(
        "SIP / 2.0 / udp [2001:db8::9]:5062 ; branch = z9hG4bKa;rport=5099;received=[2001:db8::1]"
    )
    assert (via.transport, via.host, via.port) == ("UDP", "2001:db8::9", 5062)
    assert (via.branch, via.params["rport"], via.received) == ("z9hG4bKa", "5099", "2001:db8::1")
    assert Via.parse(str(via)) == via


def test_via_asks_for_rport_without_a_value() -> None:
    via = Via.parse("SIP/2.0/UDP host;branch=z9hG4bKa;rport")
    assert via.params["rport"] is None
    answered = via.with_params(rport="1024", received="192.0.2.1")
    assert str(answered) == "SIP/2.0/UDP host;branch=z9hG4bKa;rport=1024;received=192.0.2.1"


@pytest.mark.parametrize(
    "text",
    ["", "HTTP/1.1/TCP a", "SIP/2.0/UDP", "SIP/2.0/UDP ;branch=x", "SIP/2.0/UDP a:b", "SIP/2.0/UDP a b"],
)
def test_broken_vias(text: str) -> None:
    with pytest.raises(MalformedMessage):
        Via.parse(text)


def test_cseq() -> None:
    assert CSeq.parse("0009  INVITE") == CSeq(9, "INVITE")
    assert str(CSeq(4294967295, "BYE")) == "4294967295 BYE"


@pytest.mark.parametrize(
    "text", ["", "1", "INVITE", "x INVITE", "-1 BYE", "4294967296 BYE", "1 BYE x", "9" * 5000]
)
def test_broken_cseqs(text: str) -> None:
    with pytest.raises(MalformedMessage):
        CSeq.parse(text)


def test_lists_are_cut_outside_quotes_and_brackets() -> None:
    assert split_list('a, "b, \\" c" , <d,e>') == ["a", '"b, \\" c"', "<d,e>"]
    assert split_list("") == []
    for broken in ("a,,b", 'a, "b', "a, <b", ",a"):
        with pytest.raises(MalformedMessage):
            split_list(broken)


def test_parameters_are_unquoted_and_quoted_again() -> None:
    params = parse_params('; A = "x \\" y" ;flag;a=second')
    assert params == {"a": 'x " y', "flag": None}
    assert format_params(params) == ';a="x \\" y";flag'
    assert format_params({"host": "[2001:db8::1]"}) == ";host=[2001:db8::1]"
