from __future__ import annotations

import pytest
from hypothesis import given, settings

from sip.errors import MalformedMessage
from sip.message.framing import KeepAlive, StreamParser, is_keepalive
from sip.message.message import MAX_MESSAGE, MalformedRequest, Request, Response, parse
from tests.support.hostile.fuzz import streams


def message(call_id: str, body: str = "", length: str | None = None) -> bytes:
    head = (
        "MESSAGE sip:a@b SIP/2.0\r\nVia: SIP/2.0/TCP h;branch=z9hG4bKa\r\nFrom: <sip:a@b>;tag=1\r\n"
        f"To: <sip:a@b>\r\nCall-ID: {call_id}\r\nCSeq: 1 MESSAGE\r\n"
    )
    counted = f"Content-Length: {len(body) if length is None else length}\r\n" if length != "" else ""
    return f"{head}{counted}\r\n{body}".encode()


def call_ids(events: list[Request | Response | MalformedMessage | KeepAlive]) -> list[str]:
    return [event.call_id for event in events if isinstance(event, Request | Response)]


def only_fault(stream: StreamParser, data: bytes) -> MalformedMessage:
    (event,) = stream.receive(data)
    assert isinstance(event, MalformedMessage)
    return event


def test_two_messages_in_one_piece_and_one_in_many() -> None:
    stream = StreamParser()
    assert call_ids(stream.receive(message("one", "body") + message("two"))) == ["one", "two"]
    data = message("three", "x" * 3000)
    found = [call_ids(stream.receive(data[place : place + 7])) for place in range(0, len(data), 7)]
    assert found[-1] == ["three"]
    assert not any(found[:-1])


def test_body_may_hold_what_looks_like_an_end() -> None:
    (event,) = StreamParser().receive(message("one", "a\r\n\r\nb"))
    assert isinstance(event, Request)
    assert event.body == b"a\r\n\r\nb"


def test_ping_is_told_from_slack() -> None:
    stream = StreamParser()
    assert stream.receive(b"\r\n\r\n") == [KeepAlive()]
    assert stream.receive(b"\r\n") == []
    assert call_ids(stream.receive(message("one"))) == ["one"]
    assert stream.receive(b"\r") == stream.receive(b"\n\r") == []
    assert stream.receive(b"\n") == [KeepAlive()]
    assert stream.receive(b"\r\n\r\n" * 10_000) == [KeepAlive()]
    assert call_ids(stream.receive(b"\r\n\r\n" + message("two"))) == ["two"]


def test_broken_message_in_a_sound_frame_costs_only_itself() -> None:
    stream = StreamParser()
    broken = message("one", "body").replace(b"CSeq: 1 MESSAGE", b"CSeq: 1 BYE")
    first, second = stream.receive(broken + message("two"))
    assert isinstance(first, MalformedMessage)
    assert first.code == 400
    assert isinstance(first, MalformedRequest)
    assert isinstance(second, Request)
    assert not stream.broken


@pytest.mark.parametrize("length", ["", "-1", "many", "1000000000000"])
def test_message_without_an_end_breaks_the_stream(length: str) -> None:
    stream = StreamParser()
    found = only_fault(stream, message("one", length=length))
    assert found.code == 400
    assert isinstance(found, MalformedRequest)
    assert stream.broken
    assert stream.receive(message("two")) == []


def test_two_different_lengths_break_the_stream() -> None:
    stream = StreamParser()
    data = message("one", "body").replace(b"Content-Length: 4", b"Content-Length: 4\r\nl: 2")
    assert only_fault(stream, data).code == 400
    assert stream.broken


def test_folded_length_is_understood() -> None:
    data = message("one", "body").replace(b"Content-Length: 4", b"l :\r\n 4")
    assert call_ids(StreamParser().receive(data + message("two"))) == ["one", "two"]


def test_too_large_a_body_is_refused_before_it_comes() -> None:
    stream = StreamParser()
    found = only_fault(stream, message("one", length=str(MAX_MESSAGE + 1)))
    assert found.code == 513
    assert isinstance(found, MalformedRequest)
    assert stream.broken


def test_endless_head_is_refused_and_not_kept() -> None:
    stream = StreamParser()
    events = [event for _ in range(200) for event in stream.receive(b"X: " + b"x" * 1000)]
    assert [type(event) for event in events] == [MalformedMessage]
    assert isinstance(events[0], MalformedMessage)
    assert events[0].code == 513
    assert stream.broken


def test_datagram_keepalives() -> None:
    assert is_keepalive(b"")
    assert is_keepalive(b"\r\n\r\n")
    assert is_keepalive(b"\0\0\0\0")
    assert not is_keepalive(b"OPTIONS")


@settings(max_examples=300, deadline=None)
@given(streams())
def test_nothing_escapes_and_pieces_do_not_matter(pieces: list[bytes]) -> None:
    stream, whole = StreamParser(), StreamParser()
    found = [event for piece in pieces for event in stream.receive(piece)]
    expected = whole.receive(b"".join(pieces))
    messages = [event for event in found if isinstance(event, Request | Response)]
    assert messages == [event for event in expected if isinstance(event, Request | Response)]
    assert stream.broken == whole.broken
    for event in messages:
        assert parse(event.to_bytes()).call_id == event.call_id
