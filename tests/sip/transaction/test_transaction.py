"""RFC 3261 section 17 and RFC 6026, state by state and timer by timer."""

from __future__ import annotations

import pytest

from sip.message.message import Request, Response, parse, response_to
from sip.transaction.hop import Hop
from sip.transaction.timers import Clock, Timer
from sip.transaction.transaction import (
    ARMED,
    CLIENT,
    INVITE_CLIENT,
    INVITE_SERVER,
    SERVER,
    Cell,
    ClientTransaction,
    ServerTransaction,
    Table,
    Transaction,
    TransactionState,
    cancel_of,
)

UDP, TCP = Hop("udp", "192.0.2.2", 5060), Hop("tcp", "192.0.2.2", 5060)


def request(method: str) -> Request:
    text = (
        f"{method} sip:bob@192.0.2.2 SIP/2.0\r\n"
        "Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bKabc;rport\r\n"
        "Route: <sip:proxy.example;lr>\r\n"
        "Max-Forwards: 70\r\nFrom: <sip:alice@192.0.2.1>;tag=a\r\nTo: <sip:bob@192.0.2.2>\r\n"
        f"Call-ID: call\r\nCSeq: 7 {method}\r\n\r\n"
    )
    parsed = parse(text.encode())
    assert isinstance(parsed, Request)
    return parsed


class Bench:
    """The wire and the user of one transaction."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.sent: list[tuple[float, bytes]] = []
        self.forgotten: list[Transaction] = []
        self.statuses: list[int] = []
        self.failures: list[bool] = []
        self.now = 0.0

    def transmit(self, data: bytes, hop: Hop, key: str) -> None:
        self.sent.append((self.now, data))

    def forget(self, transaction: Transaction) -> None:
        self.forgotten.append(transaction)

    def response_received(self, response: Response, now: float) -> None:
        self.statuses.append(response.status)

    def no_response(self, now: float, *, transport_failed: bool) -> None:
        self.failures.append(transport_failed)

    def run_until(self, end: float) -> None:
        while (at := self.clock.next_at()) is not None and at <= end:
            self.now = at
            self.clock.run(at)
        self.now = end

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.sent]

    def client(self, method: str, hop: Hop = UDP) -> ClientTransaction:
        transaction = ClientTransaction(self, request(method), hop=hop, user=self)
        transaction.start(self.now)
        return transaction

    def server(self, method: str, hop: Hop = UDP) -> ServerTransaction:
        return ServerTransaction(self, request(method), hop=hop, key="k", source=hop)


def response(transaction: ClientTransaction, status: int) -> Response:
    return response_to(transaction.request, status, to_tag="b")


def test_an_invite_is_repeated_at_doubling_intervals_and_given_up_after_32_seconds() -> None:
    bench = Bench()
    transaction = bench.client("INVITE")
    bench.run_until(100)
    assert bench.times == [0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5]
    assert bench.failures == [False]
    assert transaction.terminated
    assert bench.forgotten == [transaction]


def test_other_requests_are_repeated_every_four_seconds_at_most() -> None:
    bench = Bench()
    bench.client("OPTIONS")
    bench.run_until(100)
    assert bench.times == [0, 0.5, 1.5, 3.5, 7.5, 11.5, 15.5, 19.5, 23.5, 27.5, 31.5]
    assert bench.failures == [False]


def test_a_provisional_response_slows_other_requests_and_stops_an_invite() -> None:
    bench = Bench()
    transaction = bench.client("OPTIONS")
    bench.run_until(0.1)
    transaction.receive(response(transaction, 100), 0.1)
    bench.run_until(20)
    assert bench.times == [0, 0.5, 4.5, 8.5, 12.5, 16.5]
    bench = Bench()
    transaction = bench.client("INVITE")
    transaction.receive(response(transaction, 100), 0.1)
    bench.run_until(300)
    assert bench.times == [0]
    assert transaction.state is TransactionState.PROCEEDING
    assert bench.failures == []


@pytest.mark.parametrize("method", ["INVITE", "OPTIONS"])
def test_nothing_is_repeated_over_a_reliable_transport(method: str) -> None:
    bench = Bench()
    bench.client(method, TCP)
    bench.run_until(100)
    assert bench.times == [0]
    assert bench.failures == [False]


def test_a_refused_invite_is_acknowledged_each_time_the_refusal_comes() -> None:
    bench = Bench()
    transaction = bench.client("INVITE")
    for now in (1.0, 2.0, 3.0):
        bench.now = now
        transaction.receive(response(transaction, 486), now)
    assert bench.statuses == [486]
    acks = [parse(data) for at, data in bench.sent if at >= 1]
    assert len(acks) == 3
    ack = acks[0]
    assert isinstance(ack, Request)
    assert (ack.method, str(ack.uri)) == ("ACK", "sip:bob@192.0.2.2")
    assert ack.via.branch == transaction.request.via.branch
    assert ack.cseq.number == 7
    assert ack.to.tag == "b"
    assert [str(each.uri) for each in ack.routes] == ["sip:proxy.example;lr"]
    bench.run_until(40)
    assert transaction.terminated


def test_every_2xx_to_an_invite_is_passed_up_for_32_seconds() -> None:
    bench = Bench()
    transaction = bench.client("INVITE")
    for now in (1.0, 1.5, 30.0):
        transaction.receive(response(transaction, 200), now)
    assert bench.statuses == [200, 200, 200]
    assert len(bench.sent) == 1  # the ACK of a 2xx is not the transaction's
    bench.run_until(33.5)
    assert transaction.terminated


def test_a_transport_error_is_told_once_and_ends_it() -> None:
    bench = Bench()
    transaction = bench.client("OPTIONS", TCP)
    transaction.transport_failed(0.2)
    transaction.transport_failed(0.3)
    assert bench.failures == [True]
    assert bench.forgotten == [transaction]


def test_a_refusal_is_repeated_until_its_ack() -> None:
    bench = Bench()
    transaction = bench.server("INVITE")
    transaction.respond(response_to(transaction.request, 100), 0)
    transaction.respond(response_to(transaction.request, 404, to_tag="b"), 0)
    bench.run_until(8)
    assert bench.times == [0, 0, 0.5, 1.5, 3.5, 7.5]
    ack = request("INVITE")
    ack.method = "ACK"
    transaction.receive(ack, 8)
    assert transaction.state is TransactionState.CONFIRMED
    bench.run_until(12.9)
    assert not transaction.terminated
    bench.run_until(13)
    assert transaction.terminated
    assert len(bench.sent) == 6


def test_a_refusal_without_an_ack_is_given_up() -> None:
    bench = Bench()
    transaction = bench.server("INVITE")
    transaction.respond(response_to(transaction.request, 404, to_tag="b"), 0)
    bench.run_until(32)
    assert transaction.terminated
    assert max(later - earlier for earlier, later in zip(bench.times, bench.times[1:], strict=False)) == 4


def test_a_repeated_request_gets_the_last_response_again() -> None:
    bench = Bench()
    for method in ("INVITE", "OPTIONS"):
        transaction = bench.server(method)
        bench.sent.clear()
        transaction.receive(request(method), 0)
        assert bench.sent == []  # nothing to repeat yet
        transaction.respond(response_to(transaction.request, 180, to_tag="b"), 0)
        transaction.receive(request(method), 1)
        assert len(bench.sent) == 2
        assert bench.sent[0][1] == bench.sent[1][1]


def test_an_invite_repeated_after_our_2xx_is_absorbed_and_the_2xx_repeated_by_its_user_only() -> None:
    bench = Bench()
    transaction = bench.server("INVITE")
    accepted = response_to(transaction.request, 200, to_tag="b")
    transaction.respond(accepted, 0)
    transaction.receive(request("INVITE"), 0.4)
    bench.run_until(0.5)
    assert len(bench.sent) == 1
    transaction.respond(accepted, 0.5)
    assert len(bench.sent) == 2
    transaction.respond(response_to(transaction.request, 486), 0.6)  # too late
    assert len(bench.sent) == 2
    bench.run_until(32)
    assert transaction.terminated


def test_over_tcp_nothing_is_waited_for_after_the_end() -> None:
    bench = Bench()
    client, server = bench.client("OPTIONS", TCP), bench.server("OPTIONS", TCP)
    client.receive(response(client, 200), 1)
    server.respond(response_to(server.request, 200), 1)
    bench.run_until(1)
    assert client.terminated
    assert server.terminated
    assert len(bench.clock) == 0


def test_cancel_shares_branch_and_way_with_its_invite() -> None:
    invite = request("INVITE")
    cancel = cancel_of(invite, "SIP;cause=487")
    assert cancel.via.branch == invite.via.branch
    assert (cancel.cseq.number, cancel.cseq.method) == (7, "CANCEL")
    assert cancel.headers.get_all("Route") == invite.headers.get_all("Route")
    assert cancel.to.tag is None


@pytest.mark.parametrize("table", [INVITE_CLIENT, CLIENT, INVITE_SERVER, SERVER])
def test_every_timer_that_runs_in_a_state_is_heard_there(table: Table) -> None:
    for state, timers in ARMED[id(table)].items():
        for timer in timers:
            assert isinstance(table.get((state, timer)), Cell), (state, timer)
    for state, what in table:
        if isinstance(what, Timer):
            assert what in ARMED[id(table)][state]


def test_cancelled_alarms_do_not_pile_up() -> None:
    clock = Clock()
    for at in range(10_000):
        clock.at(at + 1.0, lambda now: None).cancel()
    kept = clock.at(5.0, lambda now: None)
    assert len(clock._heap) < 2_000
    assert clock.next_at() == kept.at
