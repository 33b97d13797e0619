"""Keeps the SIP messages of each call as they were on the wire, bounded, for those who ask why a call failed.

Only references to the messages are kept: a message costs a look for its Call-ID. Secrets are taken out when a
trace is read (`sip.message.redaction`), not before."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sip.message.message import Request, Response
from sip.transaction.hop import Hop
from sip.transaction.timers import GIVE_UP_S

FIRST_MESSAGES, FIRST_BYTES = 96, 64 << 10
LAST_MESSAGES, LAST_BYTES = 64, 32 << 10
"""What is kept of one call: its first messages, and its last ones. Between them messages are counted only."""

REMEMBERED = 512
"""Calls that are over, or that were not admitted, whose further messages are still kept for `GIVE_UP_S`."""

_CALL_ID = re.compile(rb"\r\n(?:Call-ID|i)[ \t]*:[ \t]*([^\r\n]{1,256})", re.IGNORECASE)
_HEAD = 4096

EndsOf = Callable[[Hop], tuple[tuple[str, int], tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """One message: the loop's time in seconds, whether it was sent or received, the other end, the bytes."""

    at: float
    sent: bool
    hop: Hop
    data: bytes


class CallTrace:
    """The messages of one SIP Call-ID in order. `ends_of` returns address and port of this side and of the
    other end of a hop, as far as these are known."""

    __slots__ = ("_first", "_first_bytes", "_last", "_last_bytes", "ends_of", "left_out")

    def __init__(self, ends_of: EndsOf) -> None:
        self.ends_of = ends_of
        self._first: list[TracedMessage] = []
        self._last: deque[TracedMessage] = deque()
        self._first_bytes = self._last_bytes = 0
        self.left_out = 0
        """Messages between the first and the last ones, of which nothing is kept."""

    def __len__(self) -> int:
        return len(self._first) + len(self._last)

    def __iter__(self) -> Iterator[TracedMessage]:
        yield from self._first
        yield from self._last

    def add(self, message: TracedMessage) -> None:
        """Adds a message; the oldest of the last ones makes room."""
        size = len(message.data)
        room = len(self._first) < FIRST_MESSAGES and self._first_bytes + size <= FIRST_BYTES
        if room and not self._last:
            self._first.append(message)
            self._first_bytes += size
            return
        self._last.append(message)
        self._last_bytes += size
        while len(self._last) > LAST_MESSAGES or (self._last_bytes > LAST_BYTES and len(self._last) > 1):
            self._last_bytes -= len(self._last.popleft().data)
            self.left_out += 1


class Traces:
    """The traces of an endpoint's calls by SIP Call-ID. An INVITE begins one; `adopt` claims it for a call,
    `release` says that the call is over. Other messages without a call are not kept. `keeps` False: none
    are."""

    def __init__(self, ends_of: EndsOf, *, keeps: bool = True) -> None:
        self._ends_of = ends_of
        self._keeps = keeps
        self._calls: dict[str, CallTrace] = {}
        self._loose: OrderedDict[str, tuple[float, CallTrace]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._calls) + len(self._loose)

    def adopt(self, call_id: str) -> CallTrace | None:
        """Returns the trace of a call, with what came before the call was admitted; None where none are
        kept."""
        if not self._keeps:
            return None
        _, trace = self._loose.pop(call_id, (0.0, CallTrace(self._ends_of)))
        return self._calls.setdefault(call_id, trace)

    def release(self, call_id: str, now: float) -> None:
        """Notes that a call is over: its last messages may still come."""
        trace = self._calls.pop(call_id, None)
        if trace is not None:
            self._keep(call_id, trace, now)

    def received(self, data: bytes, hop: Hop, now: float) -> None:
        """Takes a datagram that has arrived from `hop`, whoever sent it."""
        found = _CALL_ID.search(data, 0, _HEAD) if self._keeps else None
        if found is not None:
            self._note(found[1].decode("utf-8", "replace").rstrip(), data, hop, now)

    def message_received(self, message: Request | Response, hop: Hop, now: float) -> None:
        """Takes a message that has arrived on a stream."""
        if self._keeps:
            self._note(message.call_id, message.to_bytes(), hop, now)

    def sent(self, data: bytes, hop: Hop, now: float) -> None:
        """Takes a message that is about to be sent."""
        found = _CALL_ID.search(data, 0, _HEAD) if self._calls or self._loose else None
        trace = self._find(found[1].decode("utf-8", "replace").rstrip()) if found is not None else None
        if trace is not None:
            trace.add(TracedMessage(now, True, hop, data))

    def _note(self, call_id: str, data: bytes, hop: Hop, now: float) -> None:
        trace = self._find(call_id)
        if trace is None:
            if not data.startswith(b"INVITE "):
                return
            trace = CallTrace(self._ends_of)
            self._keep(call_id, trace, now)
        trace.add(TracedMessage(now, False, hop, data))

    def _find(self, call_id: str) -> CallTrace | None:
        trace = self._calls.get(call_id)
        if trace is None and call_id in self._loose:
            trace = self._loose[call_id][1]
        return trace

    def _keep(self, call_id: str, trace: CallTrace, now: float) -> None:
        while self._loose:
            oldest, (since, _) = next(iter(self._loose.items()))
            if len(self._loose) < REMEMBERED and now - since <= GIVE_UP_S:
                break
            del self._loose[oldest]
        self._loose[call_id] = now, trace
