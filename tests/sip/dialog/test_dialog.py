"""RFC 3261 section 12: what a dialog remembers, and which way its requests go."""

from __future__ import annotations

import pytest

from sip.dialog.dialog import Dialog
from sip.message.headers import NameAddr
from sip.message.message import Request, Response, parse, response_to
from sip.transaction.hop import Hop

SOURCE = Hop("udp", "192.0.2.2", 5060)


def invite(*routes: str, contact: str = "<sip:alice@192.0.2.1:5070>") -> Request:
    record_routes = "".join(f"Record-Route: {route}\r\n" for route in routes)
    text = (
        "INVITE sip:bob@example.com SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\n"
        f"{record_routes}Max-Forwards: 70\r\nFrom: <sip:alice@example.org>;tag=a\r\n"
        f"To: <sip:bob@example.com>\r\nCall-ID: c\r\nCSeq: 5 INVITE\r\nContact: {contact}\r\n\r\n"
    )
    parsed = parse(text.encode())
    assert isinstance(parsed, Request)
    return parsed


def accepted(request: Request, contact: str = "<sip:bob@192.0.2.2>") -> Response:
    return response_to(request, 200, to_tag="b", headers=[("Contact", contact)])


def called(request: Request) -> Dialog:
    return Dialog.as_called(request, local_tag="b", contact="<sip:me@192.0.2.2>", source=SOURCE)


def test_both_sides_see_the_same_dialog_from_their_end() -> None:
    request = invite("<sip:p2.example;lr>", "<sip:p1.example;lr>")
    ours, theirs = Dialog.as_caller(request, accepted(request)), called(request)
    assert ours.id == ("c", "a", "b")
    assert theirs.id == ("c", "b", "a")
    # The first proxy passed is the last in Record-Route: the caller goes backwards, the called forwards.
    assert [each.uri.host for each in ours.route_set] == ["p1.example", "p2.example"]
    assert [each.uri.host for each in theirs.route_set] == ["p2.example", "p1.example"]
    assert str(ours.remote_target) == "sip:bob@192.0.2.2"
    assert str(theirs.remote_target) == "sip:alice@192.0.2.1:5070"


def test_requests_go_to_the_contact_with_rising_cseq() -> None:
    request = invite()
    dialog = Dialog.as_caller(request, accepted(request))
    first, second = dialog.request("INFO"), dialog.request("BYE")
    assert (first.cseq.number, second.cseq.number) == (6, 7)
    assert str(first.uri) == "sip:bob@192.0.2.2"
    assert (first.from_.tag, first.to.tag, first.call_id) == ("a", "b", "c")
    assert dialog.request("ACK", cseq=5).cseq.number == 5
    assert dialog.next_hop() == Hop("udp", "192.0.2.2", 5060, elastic=True)


def test_loose_routes_keep_the_request_uri() -> None:
    request = invite("<sip:p2.example;lr>", "<sip:p1.example:5080;lr;transport=tcp>")
    dialog = Dialog.as_caller(request, accepted(request))
    bye = dialog.request("BYE")
    assert str(bye.uri) == "sip:bob@192.0.2.2"
    assert [each.uri.host for each in bye.routes] == ["p1.example", "p2.example"]
    assert dialog.next_hop() == Hop("tcp", "p1.example", 5080)


def test_a_strict_router_is_put_into_the_request_uri() -> None:
    request = invite("<sip:p2.example;lr>", "<sip:strict.example>")
    dialog = Dialog.as_caller(request, accepted(request))
    bye = dialog.request("BYE")
    assert str(bye.uri) == "sip:strict.example"
    assert [str(each.uri) for each in bye.routes] == ["sip:p2.example;lr", "sip:bob@192.0.2.2"]
    assert dialog.next_hop().host == "strict.example"


def test_a_target_refresh_moves_the_contact_but_not_the_routes() -> None:
    dialog = called(invite("<sip:p1.example;lr>"))
    dialog.refresh_target(invite(contact="<sip:alice@198.51.100.7:5090>"))
    assert str(dialog.remote_target) == "sip:alice@198.51.100.7:5090"
    assert dialog.next_hop().host == "p1.example"


@pytest.mark.parametrize(("numbers", "good"), [((6, 7, 20), True), ((5,), False), ((6, 6), False)])
def test_requests_must_come_in_order(numbers: tuple[int, ...], good: bool) -> None:
    dialog = called(invite())
    taken = []
    for number in numbers:
        request = invite()
        request.headers.set("CSeq", f"{number} INFO")
        taken.append(dialog.in_order(request))
    assert taken[-1] is good
    assert all(taken[:-1])


def test_somebody_who_called_over_tcp_is_answered_on_that_connection() -> None:
    source = Hop("tcp", "192.0.2.2", 40001, connection=3)
    request = invite(contact="<sip:alice@10.0.0.1;transport=tcp>")
    dialog = Dialog.as_called(request, local_tag="b", contact="<sip:me@h>", source=source)
    assert dialog.next_hop().connection == 3


def test_an_rfc_2543_peer_without_tags_can_be_talked_to() -> None:
    request = invite()
    request.headers.set("From", "<sip:alice@example.org>")
    dialog = called(request)
    assert dialog.id == ("c", "b", "")
    assert NameAddr.parse(dialog.request("BYE").headers.get("To") or "").tag is None
