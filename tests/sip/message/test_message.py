from __future__ import annotations

import pytest
from hypothesis import given, settings

from sip.errors import LocalError, MalformedMessage
from sip.message.headers import Headers
from sip.message.message import REASONS, MalformedRequest, Request, Response, parse, response_to
from sip.message.uri import Uri
from tests.support.hostile.fuzz import datagrams

HEAD = (
    "Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKa\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>\r\n"
    "Call-ID: x\r\nCSeq: 1 {method}\r\n"
)


def text(start: str, extra: str = "", body: str = "", method: str = "INVITE") -> bytes:
    return f"{start}\r\n{HEAD.format(method=method)}{extra}\r\n{body}".encode()


def invite(extra: str = "", body: str = "") -> Request:
    message = parse(text("INVITE sip:c@d SIP/2.0", extra, body))
    assert isinstance(message, Request)
    return message


def fault(data: bytes) -> MalformedMessage:
    with pytest.raises(MalformedMessage) as caught:
        parse(data)
    return caught.value


def test_request_is_read_and_written() -> None:
    message = invite(
        "Content-Type: Application/SDP;charset=utf-8\r\nl: 4\r\nMax-Forwards: 70\r\n", "v=0\nmore"
    )
    assert (message.method, message.uri, message.body) == ("INVITE", Uri("sip", "c", "d"), b"v=0\n")
    assert (message.content_type, message.header("Max-Forwards")) == ("application/sdp", "70")
    wire = message.to_bytes()
    assert wire.endswith(b"Content-Length: 4\r\n\r\nv=0\n")
    assert parse(wire) == parse(parse(wire).to_bytes())


def test_body_without_a_length_fills_the_datagram() -> None:
    assert invite("", "whole").body == b"whole"


def test_line_breaks_before_a_message_are_ignored() -> None:
    assert parse(b"\r\n\r\n" + text("INVITE sip:c@d SIP/2.0")) == invite()


def test_option_tags_of_many_lines() -> None:
    message = invite("Supported: 100rel, Timer\r\nk: replaces\r\nRequire:\r\nk:\r\n")
    assert message.supported == {"100rel", "timer", "replaces"}
    assert message.require == frozenset()


def test_optional_headers_may_be_absent() -> None:
    message = invite()
    assert message.header("Max-Forwards") is None
    assert message.content_type is None
    assert message.contacts == message.routes == message.record_routes == []
    assert message.header("Subject") is None


@pytest.mark.parametrize("name", ["Via", "From", "To", "Call-ID", "CSeq"])
def test_mandatory_headers(name: str) -> None:
    lines = text("INVITE sip:c@d SIP/2.0").decode().split("\r\n")
    without = "\r\n".join(line for line in lines if not line.startswith(name + ":"))
    found = fault(without.encode())
    assert found.code == 400
    assert isinstance(found, MalformedRequest) is (name != "Via")


@pytest.mark.parametrize(
    "extra",
    [
        "From: <sip:a@b>;tag=2\r\n",
        "t: <sip:c@d>\r\n",
        "i: y\r\n",
        "CSeq: 1 INVITE\r\n",
        "Max-Forwards: 1\r\nMax-Forwards: 1\r\n",
        "l: 0\r\nContent-Length: 0\r\n",
        "Max-Forwards: 256\r\n",
        "Max-Forwards: ten\r\n",
        f"Max-Forwards: {'0' * 5000}1\r\n",
        "Expires: 4294967296\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: 5\r\n",
        "Contact: <sip:a@b>;expires=99999999999\r\n",
        "Contact: <sip:a@b\r\n",
        "Route: *junk*\r\n",
        "Content-Type: sdp\r\n",
        "Session-Expires: soon\r\n",
        "Broken header\r\n",
        ": no name\r\n",
        "Bad name: x\r\n",
        "X: a\rb\r\n",
        "X: a\nInjected: b\r\n",
        "X: " + "x" * 9000 + "\r\n",
    ],
)
def test_broken_headers_are_answered_400(extra: str) -> None:
    found = fault(text("INVITE sip:c@d SIP/2.0", extra))
    assert found.code == 400
    assert isinstance(found, MalformedRequest)
    assert response_to(found.request, 400).to_bytes().startswith(b"SIP/2.0 400 Bad Request\r\n")


@pytest.mark.parametrize("via", ["", "\r\nVia: SIP/2.0/UDP second", " ,", " junk"])
def test_request_without_a_readable_via_cannot_be_answered(via: str) -> None:
    found = fault(
        text("INVITE sip:c@d SIP/2.0").replace(b" SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKa", via.encode())
    )
    assert found.code == 400
    assert not isinstance(found, MalformedRequest)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", 400),
        (b"\x00" * 40, 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (text("INVITE sip:c@d SIP/3.0"), 505),
        (text("INVITE sip:c@d"), 400),
        (text("BYE sip:c@d SIP/2.0"), 400),  # CSeq says INVITE
        (text("INVITE sip:c@d SIP/2.0")[:-2], 400),
        (text("SIP/2.0 999 No"), 400),
        (text("SIP/2.0 99 No"), 400),
        (text("SIP/2.0 200 O\nK"), 400),
        (text("INVITE sip:c@d SIP/2.0\r"), 400),
        (text("SIP/3.0 200 OK"), 400),
        (text("INVITE sip:c@d SIP/2.0", "X: y\r\n" * 300), 513),
        (text("INVITE sip:c@d SIP/2.0", f"m: {'<sip:a@b>,' * 300}<sip:a@b>\r\n"), 513),
        (text("INVITE sip:c@d SIP/2.0", body="x" * 65536), 513),
    ],
)
def test_what_is_no_message(data: bytes, code: int) -> None:
    assert fault(data).code == code


def test_unknown_header_may_repeat_and_fold() -> None:
    message = invite("X-Note: one\r\n\t two\r\nX-Note: three  \r\n")
    assert message.headers.get_all("x-note") == ["one two", "three"]


def test_bytes_that_are_not_utf8_pass_through() -> None:
    data = text("INVITE sip:c@d SIP/2.0").replace(b"Call-ID: x", b"Call-ID: x\xff\xfe")
    assert b"Call-ID: x\xff\xfe\r\n" in parse(data).to_bytes()


def test_response_copies_what_the_rfc_says() -> None:
    request = invite("Record-Route: <sip:p1;lr>\r\nv: SIP/2.0/UDP second\r\nTimestamp: 54\r\n")
    trying = response_to(request, 100)
    assert trying.header("Timestamp") == "54"
    assert trying.to.tag is None
    ringing = response_to(request, 180, to_tag="mine", headers=[("Contact", "<sip:me@here>")])
    assert [via.host for via in ringing.vias] == ["192.0.2.1", "second"]
    assert (ringing.from_, ringing.call_id, ringing.cseq) == (request.from_, request.call_id, request.cseq)
    assert ringing.to.tag == "mine"
    assert [str(route.uri) for route in ringing.record_routes] == ["sip:p1;lr"]
    assert ringing.contacts[0].uri.user == "me"
    refused = response_to(request, 486, to_tag="mine")
    assert refused.record_routes == []
    assert refused.reason == "Busy Here"
    assert response_to(request, 486, reason="No").to_bytes().startswith(b"SIP/2.0 486 No\r\n")


def test_response_keeps_a_tag_that_is_there() -> None:
    request = invite()
    request.headers.set("To", "<sip:c@d>;tag=theirs")
    assert response_to(request, 200, to_tag="mine").to.tag == "theirs"


def test_tag_is_put_outside_an_address_without_brackets() -> None:
    request = invite()
    request.headers.set("To", "sip:c@d;user=phone")
    answered = response_to(request, 200, to_tag="mine")
    assert answered.to.params == {"user": "phone", "tag": "mine"}


@pytest.mark.parametrize(
    ("name", "value"), [("Subject", "a\r\nInjected: b"), ("Subject", "a\nb"), ("Bad name", "x"), ("", "x")]
)
def test_nothing_is_injected(name: str, value: str) -> None:
    request = invite()
    request.headers.add(name, value)
    with pytest.raises(LocalError):
        request.to_bytes()


def test_start_lines_are_guarded_too() -> None:
    with pytest.raises(LocalError):
        Response(200, "OK\r\nInjected: b").to_bytes()
    with pytest.raises(LocalError):
        Request("IN VITE", Uri("sip", "", "a"), Headers()).to_bytes()


def test_every_status_that_is_named_in_the_rfcs_has_a_phrase() -> None:
    assert all(100 <= status <= 699 and phrase for status, phrase in REASONS.items())
    assert REASONS[488] == "Not Acceptable Here"


def answerable(found: MalformedMessage) -> None:
    assert 400 <= found.code <= 599
    if isinstance(found, MalformedRequest):
        answer = response_to(found.request, found.code, to_tag="x")
        assert answer.to_bytes().startswith(b"SIP/2.0 ")
        assert answer.via.host


@settings(max_examples=300, deadline=None)
@given(datagrams())
def test_only_malformed_message_escapes(data: bytes) -> None:
    try:
        message = parse(data)
    except MalformedMessage as found:
        answerable(found)
        return
    again = parse(message.to_bytes())
    assert (again.via, again.from_, again.to, again.cseq) == (
        message.via,
        message.from_,
        message.to,
        message.cseq,
    )
    assert (again.contacts, again.routes, again.body) == (message.contacts, message.routes, message.body)
