"""RFC 4475: torture messages, through the parser and through a stream."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sip.errors import MalformedMessage
from sip.message.framing import StreamParser
from sip.message.headers import CSeq, NameAddr, Via
from sip.message.message import MalformedRequest, Request, Response, parse, response_to
from tests.support.hostile.fuzz_stack import INVITE, conversations, survive
from tests.support.hostile.torture import FOLDER, MESSAGES

VALID = [name for name, (_, expected) in MESSAGES.items() if expected.valid]
INVALID = [name for name, (_, expected) in MESSAGES.items() if not expected.valid]
BYE = b"SIP/2.0 200 OK\r\nv: SIP/2.0/TCP a;branch=z9hG4bKb\r\nf: <sip:a@b>;tag=1\r\nt: <sip:c@d>;tag=2\r\n"
BYE += b"i: next\r\nCSeq: 2 BYE\r\nl: 0\r\n\r\n"


def parsed(name: str) -> Request | Response:
    return parse(MESSAGES[name][0])


def request(name: str) -> Request:
    message = parsed(name)
    assert isinstance(message, Request)
    return message


def test_every_message_of_the_rfc_is_here() -> None:
    assert len(MESSAGES) == 49
    assert {path.stem for path in FOLDER.glob("*.dat")} == set(MESSAGES)


@pytest.mark.parametrize("name", VALID)
def test_valid_message_survives_a_round_trip(name: str) -> None:
    message = parsed(name)
    again = parse(message.to_bytes())
    assert type(again) is type(message)
    assert again.body == message.body
    assert (again.vias, again.from_, again.to) == (message.vias, message.from_, message.to)
    assert (again.call_id, again.cseq, again.contacts) == (message.call_id, message.cseq, message.contacts)
    assert [item for item in again.headers.items() if item[0] != "Content-Length"] == [
        item for item in message.headers.items() if item[0].lower() != "content-length"
    ]
    if isinstance(message, Request) and isinstance(again, Request):
        assert (again.method, again.uri) == (message.method, message.uri)


@pytest.mark.parametrize("name", INVALID)
def test_invalid_message_is_refused_with_the_right_code(name: str) -> None:
    data, expected = MESSAGES[name]
    with pytest.raises(MalformedMessage) as caught:
        parse(data)
    assert caught.value.code == expected.error
    if expected.is_response:
        assert not isinstance(caught.value, MalformedRequest)


@pytest.mark.parametrize("name", [name for name in INVALID if not MESSAGES[name][1].may_be_silent])
def test_invalid_request_can_be_answered(name: str) -> None:
    data, expected = MESSAGES[name]
    with pytest.raises(MalformedMessage) as caught:
        parse(data)
    if expected.is_response:
        return
    assert isinstance(caught.value, MalformedRequest)
    answer = response_to(caught.value.request, caught.value.code, to_tag="here")
    wire = answer.to_bytes()
    assert wire.startswith(b"SIP/2.0 %d " % caught.value.code)
    assert answer.headers.get("Call-ID") == caught.value.request.headers.get("Call-ID")
    assert answer.via.host


@pytest.mark.parametrize("name", [name for name in MESSAGES if not MESSAGES[name][1].datagram_only])
def test_stream_goes_on_or_says_that_it_cannot(name: str) -> None:
    data, expected = MESSAGES[name]
    stream = StreamParser()
    events = stream.receive(data + BYE)
    assert isinstance(events[0], Request | Response) is expected.valid
    if isinstance(events[0], MalformedMessage):
        assert events[0].code == expected.error
    if not stream.broken:
        assert isinstance(events[-1], Response)
        assert events[-1].call_id == "next"


@pytest.mark.parametrize("name", [name for name in VALID if not MESSAGES[name][1].datagram_only])
def test_stream_gives_the_same_message_byte_by_byte(name: str) -> None:
    data, _ = MESSAGES[name]
    stream = StreamParser()
    events = [event for place in range(len(data)) for event in stream.receive(data[place : place + 1])]
    assert events == [parse(data)]


def test_wsinv_means_what_the_rfc_says() -> None:
    invite = request("wsinv")
    assert invite.to.tag == "1918181833n"
    assert invite.from_.display == 'J Rosenberg \\"'
    assert invite.from_.tag == "98asjd8"
    assert int(invite.header("Max-Forwards") or 0) == 68
    assert invite.cseq == CSeq(9, "INVITE")
    assert [(via.transport, via.host, via.branch) for via in invite.vias] == [
        ("UDP", "192.0.2.2", "390skdjuw"),
        ("TCP", "spindle.example.com", "z9hG4bK9ikj8"),
        ("UDP", "192.168.255.111", "z9hG4bK30239"),
    ]
    assert invite.routes[0].uri.params == {"lr": None, "unknownwith": "value", "unknown-no-value": None}
    assert invite.contacts[0].params == {"newparam": "newvalue", "secondparam": None, "q": "0.33"}
    assert invite.header("Subject") == ""
    assert invite.header("NewFangledHeader") == "newfangled value continued newfangled value"
    assert invite.content_type == "application/sdp"
    assert len(invite.body) == 150


def test_unusual_characters_keep_their_meaning() -> None:
    message = request("intmeth")
    assert message.method == "!interesting-Method0123456789_*+`.%indeed'~"
    assert message.to.display == "BEL:\x07 NUL:\x00 DEL:\x7f"
    assert message.from_.params["fromparam''~+*_!.-%"] == "работающий"
    assert message.header("extensionHeader-!.%*+_`'~") == "\ufeff大停電"
    assert message.uri.host == "example.com"
    assert message.uri.password == "&it+has=1,weird!*pas$wo~d_too.(doesn't-it)"
    assert "работающий".encode() in message.to_bytes()


def test_escapes_are_undone_once_and_only_in_uris() -> None:
    invite = request("esc01")
    assert invite.uri.user == "sips:user@example.com"
    assert invite.to.uri == NameAddr.parse("<sip:user@example.com>").uri
    assert invite.from_.uri.user == "I have spaces"
    assert invite.contacts[0].uri.params == {"lr": None, "name": "value%41"}
    nulls = request("escnull").contacts
    assert [contact.uri.user for contact in nulls] == ["\0", "\0\0"]
    percent = request("esc02")
    assert percent.method == "RE%47IST%45R"
    assert percent.to.display == "%Z%45"
    assert [contact.uri.user for contact in percent.contacts] == ["alias1", "alias3"]


def test_second_message_of_a_datagram_is_not_seen() -> None:
    message = request("dblreq")
    assert message.method == "REGISTER"
    assert message.body == b""


def test_transports_and_long_values_are_read() -> None:
    assert [via.transport for via in parsed("transports").vias] == ["UDP", "SCTP", "TLS", "UNKNOWN", "TCP"]
    long = request("longreq")
    assert len(long.vias) == 34
    assert long.via == Via("TCP", "sip33.example.com")
    assert long.from_.uri.user == "amazinglylongcallername" * 5


def test_parameters_belong_where_the_brackets_say() -> None:
    bare, bracketed = parsed("cparam01").contacts[0], parsed("cparam02").contacts[0]
    assert (bare.params, bare.uri.params) == ({"unknownparam": None}, {})
    assert (bracketed.params, bracketed.uri.params) == ({}, {"unknownparam": None})
    assert parsed("regescrt").contacts[0].uri.headers == {"Route": "<sip:sip.example.com>"}


def test_unknown_schemes_are_kept_for_the_416() -> None:
    assert (request("unkscm").uri.scheme, request("unkscm").uri.opaque) == (
        "nobodyknowsthisscheme",
        "totallyopaquecontent",
    )
    assert request("novelsc").uri.scheme == "soap.beep"
    assert [request("unksm2").to.uri.scheme, request("unksm2").from_.uri.scheme] == ["isbn", "http"]


def test_reasons_may_be_anything_or_nothing() -> None:
    unusual, empty = parsed("unreason"), parsed("noreason")
    assert isinstance(unusual, Response)
    assert unusual.reason == "= 2**3 * 5**2 но сто девяносто девять - простое"
    assert isinstance(empty, Response)
    assert (empty.status, empty.reason) == (100, "")


def test_binary_bodies_arrive_whole() -> None:
    body = parsed("mpart01").body
    assert bytes(range(256)) in body
    assert body.endswith(b"--7a9cbec02ceef655--\r\n")


def test_rfc_2543_peers_are_understood() -> None:
    invite = request("inv2543")
    assert invite.via.branch is None
    assert invite.header("Max-Forwards") is None
    assert invite.from_.tag is None
    assert invite.body.endswith(b"m=audio 49217 RTP/AVP 0\r\n")


@pytest.mark.parametrize("name", MESSAGES)
def test_stack_forgets_every_torture_message(name: str) -> None:
    data, expected = MESSAGES[name]
    sent = survive([data])
    assert sent or expected.may_be_silent
    if expected.is_response:
        assert sent == 0


def test_stack_forgets_a_call_that_is_never_acknowledged_and_one_that_is_never_answered() -> None:
    assert survive([INVITE]) > 10  # the 200 again and again, then BYE
    assert survive([INVITE], answers=False) > 1


@settings(max_examples=200, deadline=None)
@given(conversations(), st.booleans())
def test_no_conversation_leaves_anything_behind(data: list[bytes], answers: bool) -> None:
    survive(data, answers=answers)
