"""Who is let in, in which order, and who is refused before a message is even parsed. Time is a number."""

from __future__ import annotations

import itertools

import pytest

from sip.message.message import Request, Response, parse
from sip.stack.glance import glance
from sip.stack.inflow import ASKED_PER_S, MAX_WAITING, PATIENCE_S, PLACES, Inflow
from sip.stack.stack import Stack, server_key
from sip.transaction.hop import Hop, Transmission
from tests.support.sip.sip_world import OpenGate

HERE = Hop("udp", "192.0.2.1", 5070)
CARRIER = Hop("udp", "192.0.2.2", 5070)
OFFER = b"v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\n"


def asked(
    method: str, branch: str = "1", *, tag: str = "", of: str = "", via: str = "192.0.2.1:5070;rport"
) -> bytes:
    place, _, params = via.partition(";")
    body = OFFER if method == "INVITE" else b""
    head = (
        f"{method} sip:100@192.0.2.9 SIP/2.0\r\n"
        f"Via: SIP/2.0/UDP {place};branch=z9hG4bK{branch}{';' if params else ''}{params}\r\n"
        f"Max-Forwards: 70\r\nFrom: <sip:x@h>;tag=f\r\nTo: <sip:100@h>{tag}\r\nCall-ID: {of or branch}\r\n"
        f"CSeq: 1 {method}\r\nContact: <sip:x@192.0.2.1:5070>\r\nContent-Length: {len(body)}\r\n"
    )
    return (head + ("Content-Type: application/sdp\r\n" if body else "")).encode() + b"\r\n" + body


class Site:
    """An inflow before a stack that lets everybody in."""

    def __init__(self) -> None:
        self.now = 10.0
        self.busy = self.full = self.undecided = 0
        self.stack = Stack(OpenGate(), lambda hop: ("192.0.2.9", 5060))
        self.inflow = Inflow(
            self.stack,
            busy=lambda: self.busy,
            full=lambda: self.full,
            undecided=lambda: self.undecided,
            of_a_trunk=lambda host: host == CARRIER.host,
        )

    def take(self, *messages: bytes) -> list[Response]:
        """What is answered to datagrams that come in one turn of the loop."""
        for message in messages:
            self.inflow.datagram(message, HERE, self.now)
        return self.answers()

    def turn(self, seconds: float = 0.01) -> list[Response]:
        """The next turn."""
        self.now += seconds
        self.inflow.turn(self.now)
        return self.answers()

    def sent(self) -> list[Transmission]:
        return self.stack.transmissions()

    def answers(self) -> list[Response]:
        found = [parse(each.data) for each in self.sent()]
        self.stack.events()
        return [each for each in found if isinstance(each, Response)]


@pytest.fixture
def site() -> Site:
    return Site()


def told(answers: list[Response]) -> list[tuple[str, int]]:
    return [(each.call_id, each.status) for each in answers]


def test_of_calls_that_come_together_each_has_a_turn_of_its_own(site: Site) -> None:
    assert told(site.take(*(asked("INVITE", name) for name in "abc"))) == [("a", 100)]
    assert told(site.turn()) == [("b", 100)]
    assert told(site.turn()) == [("c", 100)]
    assert site.inflow.waiting  # until the turn after the last one is over
    assert (site.turn(), site.inflow.waiting) == ([], False)


def test_what_waits_is_waited_for_only_so_long_and_only_so_much_of_it(site: Site) -> None:
    many = [asked("INVITE", str(number)) for number in range(MAX_WAITING + 3)]
    answers = told(site.take(*many))
    assert answers == [("0", 100), (str(MAX_WAITING + 1), 503), (str(MAX_WAITING + 2), 503)]
    assert site.inflow.longest_wait_s(site.now) == 0
    assert told(site.turn(PATIENCE_S / 2)) == [(str(number), 100) for number in range(1, 1 + PLACES)]
    assert site.inflow.longest_wait_s(site.now) == pytest.approx(PATIENCE_S / 2)
    late = site.turn(PATIENCE_S)
    assert {each.status for each in late} == {503}
    assert len(late) == MAX_WAITING - PLACES


def test_nobody_is_let_wait_longer_than_the_pace_of_the_last_ones_allows(site: Site) -> None:
    site.take(*(asked("INVITE", f"first-{number}") for number in range(1 + 2 * PLACES)))
    for seconds in (0.4, 0.4, 0.01):
        site.turn(seconds)
    answers = told(site.take(*(asked("INVITE", str(number)) for number in range(20))))
    assert answers[0] == ("0", 100)
    assert {status for _, status in answers[1:]} == {503}
    assert 5 <= len(answers[1:]) <= 10


def test_calls_that_the_application_has_not_looked_at_wait_as_well(site: Site) -> None:
    site.undecided = MAX_WAITING
    assert told(site.take(asked("INVITE", "a"))) == [("a", 503)]
    site.undecided = MAX_WAITING - 1
    assert told(site.take(asked("INVITE", "b"))) == [("b", 100)]


def test_what_is_up_is_dealt_with_in_order_however_much_comes_at_once(site: Site) -> None:
    names = [str(number) for number in range(100)]
    answers = site.take(*(asked("BYE", name, tag=";tag=x") for name in names))
    assert len(answers) < 20
    assert told(site.take(asked("INVITE", "new"))) == [("new", 100)]  # and waits for none of them
    site.busy = 2
    assert told(site.take(asked("INVITE", "late"))) == [("late", 503)]
    turns = 0
    while site.inflow.waiting:
        answers += site.turn()
        turns += 1
    assert 5 < turns < 30
    assert told(answers) == [(name, 481) for name in names]


@pytest.mark.parametrize("why", ["busy", "full"])
def test_new_calls_are_refused_and_what_is_up_goes_on(site: Site, why: str) -> None:
    (trying,) = site.take(asked("INVITE", "up"))
    site.turn()
    setattr(site, why, 7)
    refused, *others = site.take(asked("INVITE", "new"), asked("INVITE", "up"), asked("CANCEL", "up"))
    site.turn()
    assert (refused.status, refused.header("Retry-After")) == (503, "7")
    assert refused.to.tag
    assert {each.call_id for each in others} == {"up"}
    assert 200 in {each.status for each in others}  # the CANCEL
    (gone,) = site.take(asked("BYE", "x", tag=";tag=nobody"))
    assert gone.status == 481  # asked of its dialog, and not refused for want of time
    assert site.stack.counts.strays == 0
    assert trying.status == 100


def test_a_refusal_is_repeated_whatever_has_changed_and_its_acknowledgement_forgotten(site: Site) -> None:
    site.busy = 2
    (first,) = site.take(asked("INVITE", "a"))
    site.busy = 0
    (again,) = site.take(asked("INVITE", "a"))
    assert again.to_bytes() == first.to_bytes()
    assert site.take(asked("ACK", "a", tag=";tag=x")) == []
    assert site.stack.counts.strays == 0
    assert told(site.take(asked("INVITE", "b"))) == [("b", 100)]  # the same caller, another try
    site.now += 200
    site.inflow.turn(site.now)
    assert told(site.take(asked("INVITE", "a"))) == [("a", 100)]


def test_who_gives_up_while_waiting_never_rings(site: Site) -> None:
    assert told(site.take(asked("INVITE", "a"), asked("INVITE", "b"), asked("CANCEL", "b"))) == [("a", 100)]
    site.inflow.datagram(asked("INVITE", "b"), HERE, site.now)  # repeated
    finals = [each for each in site.turn() if each.call_id == "b" and each.status >= 200]
    assert sorted((each.cseq.method, each.status) for each in finals) == [("CANCEL", 200), ("INVITE", 487)]


def test_a_storm_of_questions_is_refused_and_no_call_with_it(site: Site) -> None:
    storm = [asked("OPTIONS", str(number)) for number in range(int(ASKED_PER_S) + 20)]
    statuses = [each.status for each in site.take(*storm)]
    assert statuses.count(503) == 20
    assert told(site.take(asked("INVITE", "a"))) == [("a", 100)]
    site.turn(1.0)
    assert 503 not in {each.status for each in site.take(asked("REGISTER", "r"))}
    site.busy = 3
    (refused,) = site.take(asked("OPTIONS", "late"))
    assert (refused.status, refused.header("Retry-After")) == (503, "3")


def test_strangers_who_ask_too_much_take_nothing_from_a_trunk(site: Site) -> None:
    site.take(*(asked("OPTIONS", str(number)) for number in range(int(ASKED_PER_S))))
    assert told(site.take(asked("OPTIONS", "stranger"))) == [("stranger", 503)]
    site.inflow.datagram(asked("OPTIONS", "carrier"), CARRIER, site.now)
    assert [(name, status) for name, status in told(site.answers()) if status == 503] == []


def test_who_was_let_wait_has_a_turn_though_the_node_is_busy_by_then(site: Site) -> None:
    """Told no after the wait, a caller would have waited for nothing."""
    assert told(site.take(asked("INVITE", "a"), asked("INVITE", "b"))) == [("a", 100)]
    site.busy = 2
    assert told(site.take(asked("INVITE", "c"))) == [("c", 503)]
    assert told(site.turn()) == [("b", 100)]


def test_messages_of_streams_keep_to_the_same(site: Site) -> None:
    site.busy = 4
    message = parse(asked("INVITE", "a").replace(b"/UDP", b"/TCP"))
    hop = Hop("tcp", "192.0.2.1", 5070, 3)
    site.inflow.message(message, hop, site.now)
    (sent,) = site.sent()
    refused = parse(sent.data)
    assert isinstance(refused, Response)
    assert (refused.status, refused.header("Retry-After"), sent.hop.connection) == (503, "4", 3)


@pytest.mark.parametrize(
    ("via", "host", "port"),
    [
        ("192.0.2.1:5070;rport", "192.0.2.1", 5070),
        ("phone.example:5080", "192.0.2.1", 5080),
        ("phone.example", "192.0.2.1", 5060),
        ("[2001:db8::1]:5070;rport", "192.0.2.1", 5070),
    ],
)
def test_a_refusal_goes_where_the_parser_s_would(site: Site, via: str, host: str, port: int) -> None:
    """And says the same, but for the tag."""
    data = asked("OPTIONS", "a", via=via)
    site.take(*(asked("OPTIONS", str(number)) for number in range(int(ASKED_PER_S))))
    site.inflow.datagram(data, HERE, site.now)
    (cheap,) = site.sent()
    assert (cheap.hop.host, cheap.hop.port) == (host, port)
    site.stack.receive(data, HERE, site.now)
    (dear,) = site.sent()
    assert cheap.hop == dear.hop
    ours, theirs = parse(cheap.data), parse(dear.data)
    assert isinstance(ours, Response)
    assert isinstance(theirs, Response)
    assert ours.via == theirs.via
    for name in ("From", "Call-ID", "CSeq"):
        assert ours.header(name) == theirs.header(name)


@pytest.mark.parametrize(
    "data",
    [
        asked("INVITE", "a"),
        asked("INVITE", "a", via="[2001:db8::1]"),
        asked("INVITE", "a", via="PHONE.example:5090;rport"),
        asked("OPTIONS", "a"),
        asked("ACK", "a"),
        asked("INVITE", "a").replace(b"Via:", b"v :").replace(b"To:", b"t:").replace(b"Call-ID", b"i"),
        asked("INVITE", "a").replace(b"\r\nMax", b",SIP/2.0/UDP 192.0.2.7;branch=z9hG4bKzz\r\nMax"),
    ],
)
def test_a_glance_finds_the_transaction_that_the_parser_finds(data: bytes) -> None:
    seen = glance(data)
    request = parse(data)
    assert seen is not None
    assert isinstance(request, Request)
    assert seen.key == server_key(request, request.via)
    assert seen.outside is (request.to.tag is None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n\r\n",
        b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\n\r\n",
        asked("INVITE", "a").replace(b"z9hG4bK", b""),
        asked("INVITE", "a").replace(b"\r\nMax", b"\r\n ;folded\r\nMax"),
        asked("INVITE", "a").replace(b"1 INVITE", b"1 BYE"),
        asked("INVITE", "a").replace(b"Call-ID: a\r\n", b""),
        asked("INVITE", "a").partition(b"\r\n\r\n")[0],
    ],
)
def test_what_takes_a_parser_is_left_to_it(data: bytes) -> None:
    assert glance(data) is None


def test_a_glance_at_anything_raises_nothing() -> None:
    whole = asked("INVITE", "a")
    for start, length in itertools.product(range(0, len(whole), 7), (1, 3)):
        glance(whole[:start] + whole[start + length :])
        glance(whole[:start] + b"\xff\x00" + whole[start:])
