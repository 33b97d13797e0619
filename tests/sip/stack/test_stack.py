"""The stack from outside: requests that are no calls, strangers, broken messages, and nothing left behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sip.dialog.uas import IncomingInvite
from sip.message.message import Request, Response, parse, response_to
from sip.stack.admission import Refused
from sip.stack.events import InviteReceived
from sip.stack.transport import Message
from sip.transaction.hop import Hop
from tests.support.hostile.torture import MESSAGES, Expectation
from tests.support.sip.sip_world import Party, World

STRANGER = Hop("udp", "198.51.100.7", 5060)


def request(method: str, *lines: str, to: str = "<sip:100@192.0.2.2>", branch: str = "1") -> bytes:
    extra = "".join(f"{line}\r\n" for line in lines)
    return (
        f"{method} sip:100@192.0.2.2 SIP/2.0\r\n"
        f"Via: SIP/2.0/UDP 198.51.100.7;branch=z9hG4bK{branch};rport\r\nMax-Forwards: 70\r\n"
        f"From: <sip:x@198.51.100.7>;tag=f\r\nTo: {to}\r\nCall-ID: c\r\nCSeq: 1 {method}\r\n{extra}\r\n"
    ).encode()


def asked(data: bytes, *, party: Party | None = None) -> list[Response]:
    """What a party answers to one datagram of a stranger."""
    party = party or Party("192.0.2.2")
    party.stack.receive(data, STRANGER, 0.0)
    responses = [parse(each.data) for each in party.stack.transmissions()]
    return [each for each in responses if isinstance(each, Response)]


def refused_by(status: int, *headers: tuple[str, str]) -> Party:
    party = Party("192.0.2.2")
    party.gate.refusal = Refused(status, headers)
    return party


def test_options_says_what_we_can_do() -> None:
    (response,) = asked(request("OPTIONS"))
    assert response.status == 200
    assert "INVITE" in (response.header("Allow") or "")
    assert response.header("Accept") == "application/sdp"
    assert {"100rel", "timer"} <= response.supported
    assert response.to.tag


@pytest.mark.parametrize(
    ("data", "status", "header"),
    [
        (request("SUBSCRIBE", "Event: presence"), 405, "Allow"),
        (request("REFER", "Refer-To: <sip:premium@example.com>"), 405, "Allow"),
        (request("MESSAGE"), 405, "Allow"),
        (request("REGISTER"), 405, "Allow"),
        (request("NEWMETHOD"), 501, "Allow"),
        (request("INVITE", "Require: nothingSupportsThis, timer"), 420, "Unsupported"),
        (request("BYE"), 481, None),
        (request("BYE", to="<sip:100@192.0.2.2>;tag=never-ours"), 481, None),
        (request("INVITE", to="<sip:100@192.0.2.2>;tag=never-ours"), 481, None),
        (request("PRACK", "RAck: 1 1 INVITE", to="<sip:100@192.0.2.2>;tag=never-ours"), 481, None),
        (request("CANCEL"), 481, None),
        (request("OPTIONS").replace(b"SIP/2.0\r\nVia", b"SIP/7.0\r\nVia"), 505, None),
        (request("OPTIONS").replace(b"OPTIONS sip:100@", b"OPTIONS soap:100@"), 416, None),
        (request("OPTIONS").replace(b"Max-Forwards: 70", b"Max-Forwards: many"), 400, None),
    ],
)
def test_what_is_no_call_is_answered_and_forgotten(data: bytes, status: int, header: str | None) -> None:
    party = Party("192.0.2.2")
    (response,) = asked(data, party=party)
    assert response.status == status
    if header:
        assert response.header(header)
    assert (party.stack.transactions, party.stack.dialogs) == (0, 0)


def test_the_unsupported_option_is_named() -> None:
    (response,) = asked(request("INVITE", "Require: nothingSupportsThis, timer"))
    assert response.header("Unsupported") == "nothingsupportsthis"


def test_whoever_calls_or_is_called_by_sips_gets_a_sips_contact() -> None:
    ours, theirs = Party("192.0.2.1"), Party("192.0.2.2")
    world = World(ours, theirs)
    ours.call("sips:100@192.0.2.2").dial(world.now)
    world.run(1.0)
    (invite,) = theirs.requests("INVITE")
    (answer,) = [
        each
        for each in ours.received
        if isinstance(each, Response) and (each.status, each.cseq.method) == (200, "INVITE")
    ]
    for message in (invite, answer):
        uri = message.contacts[0].uri
        assert (uri.scheme, uri.params) == ("sips", {})


@pytest.mark.parametrize("line", ["Record-Route: <sips:192.0.2.9;lr>", "Contact: <sips:x@198.51.100.7>"])
def test_a_path_or_a_caller_of_sips_gets_a_sips_contact(line: str) -> None:
    contact = () if line.startswith("Contact") else ("Contact: <sip:x@198.51.100.7>",)
    party = Party("192.0.2.2")
    party.on_invite = lambda invite, now: invite.ring(now)
    party.stack.receive(request("INVITE", line, *contact), STRANGER, 0.0)
    for event in party.stack.events():
        assert isinstance(event, InviteReceived)
        event.invite.describe(party.capabilities, 0.0)
        event.invite.ring(0.0)
    ringing = parse(party.stack.transmissions()[-1].data)
    assert isinstance(ringing, Response)
    assert ringing.status == 180
    assert ringing.contacts[0].uri.scheme == "sips"


def test_acks_keepalives_and_stray_responses_are_not_answered() -> None:
    party = Party("192.0.2.2")
    stray = response_to(parse_request(request("OPTIONS")), 200, to_tag="x").to_bytes()
    for data in (request("ACK"), b"\r\n\r\n", b"\0", stray):
        assert asked(data, party=party) == []
    assert party.stack.counts.strays == 2


def parse_request(data: bytes) -> Request:
    parsed = parse(data)
    assert isinstance(parsed, Request)
    return parsed


def test_a_refusal_costs_nothing_and_is_the_same_each_time() -> None:
    party = refused_by(503, ("Retry-After", "10"))
    answers = [asked(request("INVITE"), party=party)[0] for _ in range(3)]
    assert {(each.status, each.header("Retry-After"), each.to.tag) for each in answers} == {
        (503, "10", answers[0].to.tag)
    }
    for number in range(500):
        asked(request("INVITE", branch=str(number)), party=party)
    assert (party.stack.transactions, party.stack.dialogs, len(party.stack.clock)) == (0, 0, 0)
    assert asked(request("ACK"), party=party) == []


def test_strangers_learn_the_same_about_every_method() -> None:
    party = refused_by(404)
    methods = ("INVITE", "OPTIONS", "REGISTER", "SUBSCRIBE", "BYE", "NEWMETHOD")
    statuses = {asked(request(method), party=party)[0].status for method in methods}
    assert statuses == {404}


def test_responses_go_where_the_request_came_from() -> None:
    party = Party("192.0.2.2")
    source = Hop("udp", "203.0.113.9", 40_000)
    party.stack.receive(request("OPTIONS"), source, 0.0)
    (transmission,) = party.stack.transmissions()
    assert transmission.hop == source  # rport
    response = parse(transmission.data)
    assert (response.via.received, response.via.params["rport"]) == ("203.0.113.9", "40000")
    party.stack.receive(request("OPTIONS").replace(b";rport", b":5099"), source, 0.0)
    party.stack.receive(
        request("OPTIONS").replace(b"7;branch", b"7:5099;maddr=192.0.2.66;branch"), source, 0.0
    )
    hops = [each.hop for each in party.stack.transmissions()]
    assert {hop.host for hop in hops} == {"203.0.113.9"}  # whatever maddr says


def test_a_merged_request_is_a_loop() -> None:
    party = Party("192.0.2.2")
    world = World(party)
    world.send(request("INVITE", branch="1"), party, source=STRANGER)
    world.send(request("INVITE", branch="1"), party, source=STRANGER)  # a repetition
    world.send(request("INVITE", branch="2"), party, source=STRANGER)  # by another way
    assert len(party.heard(InviteReceived)) == 1
    assert world.sent[-1].startswith(b"SIP/2.0 482")


def test_a_branch_that_is_the_cookie_alone_names_no_transaction() -> None:
    party = Party("192.0.2.2")
    party.on_invite = IncomingInvite.ring
    world = World(party)
    for number in range(2):
        data = request("INVITE", branch="").replace(b"Call-ID: c", b"Call-ID: c%d" % number)
        world.send(data, party, source=STRANGER)
        world.send(data, party, source=STRANGER)  # a repetition
    first, second = (event.invite for event in party.heard(InviteReceived))
    world.send(request("CANCEL", branch="").replace(b"Call-ID: c", b"Call-ID: c1"), party, source=STRANGER)
    assert (first.usage.ended, second.usage.ended) == (False, True)


def test_what_was_accepted_is_forgotten_in_the_end() -> None:
    party = Party("192.0.2.2")
    world = World(party)
    for number in range(50):
        data = request("INVITE", branch=f"i{number}").replace(b"Call-ID: c", b"Call-ID: c%d" % number)
        world.send(data, party, source=STRANGER)
    assert len(party.heard(InviteReceived)) == 50
    world.run(300)
    assert (party.stack.transactions, party.stack.dialogs, len(party.stack.clock)) == (0, 0, 0)
    assert (party.stack._invited, party.stack._initial) == ({}, {})


def test_a_large_request_leaves_over_tcp_only_where_nobody_asked_for_udp() -> None:
    for streams, target, expected in (
        (True, "sip:100@192.0.2.9", "tcp"),
        (True, "sip:100@192.0.2.9;transport=udp", "udp"),
        (False, "sip:100@192.0.2.9", "udp"),
    ):
        party = Party("192.0.2.1", streams=streams)
        invite = party.call(target)
        invite._invitation = replace(invite._invitation, call_id="big", headers={"X-Large": "x" * 900})
        invite.dial(0.0)
        (transmission,) = party.stack.transmissions()
        assert len(transmission.data) > 1300
        assert transmission.hop.transport == expected
        via = parse(transmission.data).via
        assert via.transport == expected.upper()
        party.stack.transmission_failed(transmission, 0.1)
        again = party.stack.transmissions()
        assert [each.hop.transport for each in again] == (["udp"] if expected == "tcp" else [])


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_rfc_4475(name: str) -> None:
    data, expectation = MESSAGES[name]
    party = Party("192.0.2.2")
    world = World(party)
    party.stack.receive(data, Hop("udp", "192.0.2.50", 5060), 0.0)
    finals = final_statuses(party)
    for event in party.stack.events():
        if isinstance(event, InviteReceived) and event.invite.describe(party.capabilities, 0.0):
            event.invite.accept(0.0)
    finals += final_statuses(party)
    if finals == [481]:
        assert b"tag" in data  # a request within a dialog that there is none of
    else:
        check(expectation, finals)
    world.run(400)
    assert (party.stack.transactions, party.stack.dialogs) == (0, 0)


def final_statuses(party: Party) -> list[int]:
    """What was answered; read without the parser, as the answer to a broken request repeats its headers."""
    statuses = [int(each.data[8:11]) for each in party.stack.transmissions() if each.data[:7] == b"SIP/2.0"]
    return [status for status in statuses if status >= 200]


def check(expectation: Expectation, finals: list[int]) -> None:
    if not expectation.statuses or not finals:
        assert finals == []
        assert expectation.may_be_silent or not expectation.statuses
    else:
        assert len(set(finals)) == 1
        assert finals[0] in expectation.statuses


def test_a_message_cut_out_of_a_stream_is_like_a_datagram() -> None:
    party = Party("192.0.2.2")
    source = Hop("tcp", "198.51.100.7", 33_000, connection=4)
    message: Message = parse(request("OPTIONS").replace(b"UDP", b"TCP"))
    party.stack.receive_message(message, source, 0.0)
    (transmission,) = party.stack.transmissions()
    assert transmission.hop.connection == 4


@pytest.mark.parametrize("method", ["INVITE", "OPTIONS", "PRACK", "BYE"])
@pytest.mark.parametrize(
    "line", ["Record-Route: <<<", "Require: ,,,", 'Authorization: Digest "', "Supported: \xff", "RSeq: x"]
)
def test_a_broken_header_does_no_harm_to_whoever_comes_next(line: str, method: str) -> None:
    party = Party("192.0.2.2")
    finals = [each.status for each in asked(request(method, line, branch="bad"), party=party)]
    assert all(status in (100, 200, 400, 481) for status in finals)
    for event in party.stack.events():
        assert isinstance(event, InviteReceived)
        event.invite.describe(party.capabilities, 0.0)
    assert [
        each.status for each in asked(request("OPTIONS"), party=party) if each.cseq.method != "INVITE"
    ] == [200]
