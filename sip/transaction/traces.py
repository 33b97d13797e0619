"""Keeps the SIP messages of each call as they were on the wire, bounded, for those who ask why a call failed.

Only references to the messages are kept: a message costs a look for its Call-ID,
tags and branch. Secrets are taken out when a
trace is read (`sip.message.redaction`), not before."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sip.message.message import Request, Response
from sip.transaction.hop import Hop
from sip.transaction.timers import GIVE_UP_S

FIRST_MESSAGES, FIRST_BYTES = 96, 64 << 10
LAST_MESSAGES, LAST_BYTES = 64, 32 << 10
"""What is kept of one call: its first messages, and its last ones. Between them messages are counted only."""

REMEMBERED = 512
"""Calls that are over, or that were not admitted, whose further messages are still kept for `GIVE_UP_S`."""

_FIELD = re.compile(
    rb"\r\n(Call-ID|From|To|Via|[iftv])[ \t]*:[ \t]*([^\r\n]*(?:\r\n[ \t]+[^\r\n]*)*)", re.IGNORECASE
)
_COMPACT = {b"call-id": b"i", b"from": b"f", b"to": b"t", b"via": b"v"}
_TAG = re.compile(rb";\s*tag\s*=\s*([^\s;,]+)", re.IGNORECASE)
_BRANCH = re.compile(rb";\s*branch\s*=\s*([^\s;,]+)", re.IGNORECASE)
_HEAD = 4096

Key = tuple[str, ...]
EndsOf = Callable[[Hop], tuple[tuple[str, int], tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """One message: the loop's time in seconds, whether it was sent or received, the other end, the bytes."""

    at: float
    sent: bool
    hop: Hop
    data: bytes


class CallTrace:
    """The messages of one call in order. `ends_of` returns address and port of this side and of the
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


class _Ids(NamedTuple):
    """What says whose a message is: Call-ID, both tags and the branch of the topmost Via; "" for none."""

    call_id: str
    from_tag: str
    to_tag: str
    branch: str

    @classmethod
    def of(cls, data: bytes) -> _Ids | None:
        """Returns the ids of a message; None without a Call-ID."""
        fields: dict[bytes, bytes] = {}
        for found in _FIELD.finditer(data, 0, _HEAD):
            name = found[1].lower()
            fields.setdefault(_COMPACT.get(name, name), found[2])
        if not (call_id := _text(fields.get(b"i", b"").rstrip())):
            return None
        branch = _BRANCH.search(fields.get(b"v", b""))
        return cls(call_id, _tag(fields), _tag(fields, b"t"), _text(branch[1]) if branch else "")


def _tag(fields: Mapping[bytes, bytes], name: bytes = b"f") -> str:
    found = _TAG.search(fields.get(name, b"").rpartition(b">")[2])
    return _text(found[1]) if found else ""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


class Traces:
    """The traces of an endpoint's calls. A message is its call's by Call-ID and the tag of this side; one
    without that tag by the branch and the address of the INVITE that began the call, as others may use the
    same Call-ID. An INVITE from elsewhere begins a trace by Call-ID, From tag and address, which `adopt`
    claims for its call; `release` says that a call is over. Other messages without a call are not kept.
    `keeps` False: none are."""

    def __init__(self, ends_of: EndsOf, *, keeps: bool = True) -> None:
        self._ends_of = ends_of
        self._keeps = keeps
        self._calls: dict[Key, tuple[CallTrace, Key]] = {}  # by Call-ID and tag; with the key of the INVITE
        self._invites: dict[Key, CallTrace] = {}  # those that began a call, by Call-ID, branch and address
        self._loose: OrderedDict[Key, tuple[float, CallTrace]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._calls) + len(self._loose)

    def adopt(
        self,
        call_id: str,
        tags: Iterable[str],
        came: tuple[Request, Hop] | None = None,
        *,
        goes_on: CallTrace | None = None,
    ) -> CallTrace | None:
        """Returns the trace of a call with the `tags` of this side, one for each of its INVITEs; None where
        none are kept. `came`: the INVITE that began it and its source; what these had to do with each other
        before is in the trace. `goes_on`: the trace of the same call over another trunk."""
        if not self._keeps:
            return None
        trace, begun = goes_on if goes_on is not None else CallTrace(self._ends_of), Key()
        if came is not None:
            (invite, source), branch = came, came[0].via.branch or ""
            begun = call_id, branch, source.host
            self._invites[begun] = trace
            self._claim((call_id, invite.from_.tag or "", source.host), branch, trace)
        for tag in tags:
            self._calls[call_id, tag] = trace, begun
        return trace

    def release(self, call_id: str, tag: str, now: float) -> None:
        """Notes that a call is over: its last messages may still come."""
        trace, begun = self._calls.pop((call_id, tag), (None, Key()))
        self._invites.pop(begun, None)
        if trace is not None:
            self._keep((call_id, tag), trace, now)

    def received(self, data: bytes, hop: Hop, now: float) -> None:
        """Takes a datagram that has arrived from `hop`, whoever sent it."""
        ids = _Ids.of(data) if self._keeps else None
        if ids is None:
            return
        trace = self._find(ids, ids.from_tag if data.startswith(b"SIP/") else ids.to_tag, hop)
        if trace is None:
            if not data.startswith(b"INVITE ") or ids.to_tag:
                return
            trace = CallTrace(self._ends_of)
            self._keep((ids.call_id, ids.from_tag, hop.host), trace, now)
        trace.add(TracedMessage(now, False, hop, data))

    def message_received(self, message: Request | Response, hop: Hop, now: float) -> None:
        """Takes a message that has arrived on a stream."""
        if self._keeps:
            self.received(message.to_bytes(), hop, now)

    def sent(self, data: bytes, hop: Hop, now: float) -> None:
        """Takes a message that is about to be sent."""
        ids = _Ids.of(data) if self._calls or self._loose else None
        if ids is None:
            return
        trace = self._find(ids, ids.to_tag if data.startswith(b"SIP/") else ids.from_tag, hop)
        if trace is not None:
            trace.add(TracedMessage(now, True, hop, data))

    def _find(self, ids: _Ids, tag: str, hop: Hop) -> CallTrace | None:
        """Returns the trace of a message with the `tag` of this side, "" where that has none yet."""
        call_id = ids.call_id
        if (call := self._calls.get((call_id, tag))) is not None:
            return call[0]
        if not tag and (began := self._invites.get((call_id, ids.branch, hop.host))) is not None:
            return began
        for key in ((call_id, tag), (call_id, ids.from_tag, hop.host)):
            if key in self._loose:
                return self._loose[key][1]
        return None

    def _claim(self, key: Key, branch: str, trace: CallTrace) -> None:
        """Moves what came before an admitted INVITE to its `trace`, but not what came after it: that may be
        the next call of the same sender."""
        since, before = self._loose.pop(key, (0.0, None))
        rest, met = CallTrace(self._ends_of), False
        for each in before or ():
            ids = _Ids.of(each.data)
            own = ids is not None and ids.branch == branch
            met = met or own
            (trace if own or not met else rest).add(each)
        if before is not None:
            trace.left_out += before.left_out
        if len(rest):
            self._keep(key, rest, since)

    def _keep(self, key: Key, trace: CallTrace, now: float) -> None:
        while self._loose:
            oldest, (since, _) = next(iter(self._loose.items()))
            if len(self._loose) < REMEMBERED and now - since <= GIVE_UP_S:
                break
            del self._loose[oldest]
        self._loose[key] = now, trace
