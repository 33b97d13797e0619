"""What is kept of a call's messages, and that nobody can make it grow."""

from __future__ import annotations

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


def message(start: str, call_id: str, size: int = 0) -> bytes:
    """A message of a call, padded."""
    return f"{start}\r\nVia: x\r\nCall-ID: {call_id}\r\nX: {'x' * size}\r\n\r\n".encode()


def invite(call_id: str) -> bytes:
    return message("INVITE sip:1@h SIP/2.0", call_id)


def lines(trace: CallTrace | None) -> list[str]:
    """The first lines, sent ones with an arrow."""
    assert trace is not None
    return [("> " if each.sent else "< ") + each.data.split(b"\r\n")[0].decode() for each in trace]


def test_a_call_has_what_came_before_it_was_admitted_and_after_its_end() -> None:
    traces = Traces(ends)
    traces.received(invite("a"), PEER, 0.0)
    traces.sent(message("SIP/2.0 401 Unauthorized", "a"), PEER, 0.0)
    traces.received(message("INVITE sip:1@h SIP/2.0", "a", 1), PEER, 0.1)
    trace = traces.adopt("a")
    traces.sent(message("BYE sip:2@h SIP/2.0", "a"), PEER, 5.0)
    traces.release("a", 5.0)
    traces.received(message("SIP/2.0 200 OK", "a"), PEER, 5.1)
    assert lines(trace) == [
        "< INVITE sip:1@h SIP/2.0",
        "> SIP/2.0 401 Unauthorized",
        "< INVITE sip:1@h SIP/2.0",
        "> BYE sip:2@h SIP/2.0",
        "< SIP/2.0 200 OK",
    ]


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
    kept = traces.adopt("mine")
    for number in range(10 * REMEMBERED):
        traces.received(invite(str(number)), PEER, 0.0)
    assert len(traces) == REMEMBERED + 1
    traces.sent(invite("mine"), PEER, 0.0)
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
