"""What is kept of a call's messages, and that nobody can make it grow."""

from __future__ import annotations

from sip.message.message import Request, parse
from sip.transaction.hop import Hop
from sip.transaction.traces import (
    FIRST_MESSAGES,
    LAST_MESSAGES,
    REMEMBERED,
    CallTrace,
    TracedMessage,
    Traces,
)

PEER = Hop("udp", "192.0.2.2", 5060)


def ends(hop: Hop) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("192.0.2.1", 5060), (hop.host, hop.port)


US, THEM = ";tag=us", ";tag=them"


def message(
    start: str, call_id: str, size: int = 0, *, tags: tuple[str, str] = (THEM, ""), branch: str = "1"
) -> bytes:
    """A message of a call, padded. `tags`: of From and To."""
    via = f"Via: SIP/2.0/UDP h;branch=z9hG4bK{branch}"
    ends = f"From: <sip:a@h>{tags[0]}\r\nTo: <sip:1@h>{tags[1]}"
    method = "INVITE" if start.startswith("SIP/") else start.split(maxsplit=1)[0]
    rest = f"Call-ID: {call_id}\r\nCSeq: 1 {method}\r\nMax-Forwards: 70\r\nPad: {'x' * size}"
    return f"{start}\r\n{via}\r\n{ends}\r\n{rest}\r\n\r\n".encode()


def invite(call_id: str, *, branch: str = "1", tag: str = THEM) -> bytes:
    return message("INVITE sip:1@h SIP/2.0", call_id, tags=(tag, ""), branch=branch)


def came(data: bytes, source: Hop = PEER) -> tuple[Request, Hop]:
    """An INVITE that is admitted, and where it came from."""
    request = parse(data)
    assert isinstance(request, Request)
    return request, source


def lines(trace: CallTrace | None) -> list[str]:
    """The first lines, sent ones with an arrow."""
    assert trace is not None
    return [("> " if each.sent else "< ") + each.data.split(b"\r\n")[0].decode() for each in trace]


def test_a_call_has_what_came_before_it_was_admitted_and_after_its_end() -> None:
    traces = Traces(ends)
    traces.received(invite("a", branch="1"), PEER, 0.0)
    traces.sent(message("SIP/2.0 401 Unauthorized", "a", tags=(THEM, ";tag=no"), branch="1"), PEER, 0.0)
    traces.received(message("ACK sip:1@h SIP/2.0", "a", tags=(THEM, ";tag=no"), branch="1"), PEER, 0.1)
    traces.received(invite("a", branch="2"), PEER, 0.1)
    traces.sent(message("SIP/2.0 100 Trying", "a", branch="2"), PEER, 0.1)
    trace = traces.adopt("a", ["us"], came(invite("a", branch="2")))
    traces.received(invite("a", branch="2"), PEER, 0.6)
    traces.sent(message("SIP/2.0 200 OK", "a", tags=(THEM, US), branch="2"), PEER, 0.7)
    traces.sent(message("BYE sip:2@h SIP/2.0", "a", tags=(US, THEM), branch="3"), PEER, 5.0)
    traces.release("a", "us", 5.0)
    traces.received(message("SIP/2.0 200 OK", "a", tags=(US, THEM), branch="3"), PEER, 5.1)
    assert lines(trace) == [
        "< INVITE sip:1@h SIP/2.0",
        "> SIP/2.0 401 Unauthorized",
        "< ACK sip:1@h SIP/2.0",
        "< INVITE sip:1@h SIP/2.0",
        "> SIP/2.0 100 Trying",
        "< INVITE sip:1@h SIP/2.0",
        "> SIP/2.0 200 OK",
        "> BYE sip:2@h SIP/2.0",
        "< SIP/2.0 200 OK",
    ]


def test_two_calls_of_one_call_id_have_a_trace_each() -> None:
    """One that we place comes back to us; then its From tag is ours as well."""
    traces = Traces(ends)
    placed = traces.adopt("a", ["us"])
    out = invite("a", tag=US)
    traces.sent(out, PEER, 0.0)
    traces.received(out, PEER, 0.1)
    second = traces.adopt("a", ["second"], came(out))
    traces.sent(message("SIP/2.0 486 Busy", "a", tags=(US, ";tag=second")), PEER, 0.2)
    traces.received(message("SIP/2.0 486 Busy", "a", tags=(US, ";tag=second")), PEER, 0.3)
    traces.release("a", "us", 0.4)
    traces.received(message("ACK sip:1@h SIP/2.0", "a", tags=(US, ";tag=second")), PEER, 0.4)
    assert lines(placed) == ["> INVITE sip:1@h SIP/2.0", "< SIP/2.0 486 Busy"]
    assert lines(second) == ["< INVITE sip:1@h SIP/2.0", "> SIP/2.0 486 Busy", "< ACK sip:1@h SIP/2.0"]


def test_a_sender_s_next_call_under_the_same_ids_is_not_in_the_first_one_s_trace() -> None:
    traces = Traces(ends)
    for branch in ("1", "2"):  # both wait to be read
        traces.received(invite("a", branch=branch), PEER, 0.0)
    first = traces.adopt("a", ["us"], came(invite("a", branch="1")))
    second = traces.adopt("a", ["us too"], came(invite("a", branch="2")))
    traces.received(message("CANCEL sip:1@h SIP/2.0", "a", branch="2"), PEER, 0.0)
    assert lines(first) == ["< INVITE sip:1@h SIP/2.0"]
    assert lines(second) == ["< INVITE sip:1@h SIP/2.0", "< CANCEL sip:1@h SIP/2.0"]


def test_strangers_who_know_a_call_id_write_nothing_into_its_trace() -> None:
    traces, stranger = Traces(ends), Hop("udp", "192.0.2.66", 5060)
    traces.received(invite("a"), stranger, 0.0)
    traces.received(invite("a"), PEER, 0.0)
    trace = traces.adopt("a", ["us"], came(invite("a")))
    traces.received(invite("a"), stranger, 0.1)
    traces.received(message("CANCEL sip:1@h SIP/2.0", "a"), stranger, 0.1)
    traces.received(message("BYE sip:1@h SIP/2.0", "a", tags=(THEM, ";tag=guessed")), stranger, 0.1)
    assert lines(trace) == ["< INVITE sip:1@h SIP/2.0"]


def test_messages_of_no_call_are_not_kept() -> None:
    traces = Traces(ends)
    for start in ("OPTIONS sip:h SIP/2.0", "REGISTER sip:h SIP/2.0", "SIP/2.0 200 OK", "BYE sip:h SIP/2.0"):
        traces.received(message(start, start), PEER, 0.0)
        traces.sent(message(start, start), PEER, 0.0)
    traces.received(b"\r\n\r\n", PEER, 0.0)
    traces.received(b"\xff" * 9000, PEER, 0.0)
    assert len(traces) == 0


def test_a_flood_of_strangers_leaves_a_bounded_number() -> None:
    traces = Traces(ends)
    kept = traces.adopt("mine", ["us"])
    for number in range(10 * REMEMBERED):
        traces.received(invite(str(number)), PEER, 0.0)
    assert len(traces) == REMEMBERED + 1
    traces.sent(invite("mine", tag=US), PEER, 0.0)
    assert len(lines(kept)) == 1
    traces.received(invite("later"), PEER, 100.0)
    assert len(traces) == 2  # what is old is forgotten


def test_of_a_long_call_the_first_and_the_last_messages_are_kept() -> None:
    trace = CallTrace(ends)
    for number in range(1000):
        trace.add(TracedMessage(float(number), True, PEER, b"x"))
    times = [each.at for each in trace]
    assert times[:FIRST_MESSAGES] == [float(number) for number in range(FIRST_MESSAGES)]
    assert times[-1] == 999.0
    assert (len(trace), trace.left_out) == (
        FIRST_MESSAGES + LAST_MESSAGES,
        1000 - FIRST_MESSAGES - LAST_MESSAGES,
    )


def test_large_messages_count_by_their_size() -> None:
    trace = CallTrace(ends)
    for number in range(100):
        trace.add(TracedMessage(float(number), True, PEER, b"x" * 60_000))
    assert [each.at for each in trace] == [0.0, 99.0]
    assert trace.left_out == 98
