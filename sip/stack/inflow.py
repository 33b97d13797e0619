"""Orders incoming messages: those of calls that are up, then new calls, one at a time.

A message of a transaction or a dialog is never refused; many at once are handled over a few iterations of the
event loop. A new call costs a hundred times a packet of audio: new calls that arrive together get one
iteration each. Where the wait for that would be too long, or the node is overloaded, further new calls are
refused on arrival (503 with Retry-After), before parsing. A call that was queued is served, though the node
is overloaded by then, unless it has waited longer than `PATIENCE_S`. The key of a refused INVITE is kept, so
that its retransmission is refused too, even when there is room by then: the caller who got the first refusal
has hung up.

Without I/O: the owner calls `turn` once per iteration of the event loop while `waiting`."""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from sip.errors import MalformedMessage
from sip.message.message import Request, Response, response_to
from sip.stack.admission import Answers, RefusedRequest
from sip.stack.glance import Glance, answered_nonce, glance, refusal, replaces_in
from sip.stack.stack import Stack, server_key
from sip.transaction.hop import Hop, response_hop
from sip.transaction.timers import GIVE_UP_S

MAX_WAITING = 100
WAIT_S = 0.5
"""Most new calls that wait, for their turn and then for the application, and the longest that the last of
these would wait in seconds, at the current pace."""

PATIENCE_S = 1.0
"""Seconds; a caller who waits longer has sent the INVITE three times."""

PLACE_S = 0.01
PLACES = 4
"""A turn serves one new call, and where it came late one for each `PLACE_S` seconds, up to `PLACES`: calls
that are up take the rest of the time."""

FIRST_PACE_S = 0.005
PACE_MEMORY = 0.8
FORGET_PACE_S = 1.0
"""Seconds from one new call to the next where several wait: the first estimate, the weight of the estimate
against a new measurement, and the pause after which the first estimate is used again."""

AT_ONCE = 2
EACH_TURN = 8
SHARE = 4
"""Messages of calls that are up: `AT_ONCE` per iteration on arrival, since later messages may have to be
refused; then `EACH_TURN` per iteration, or one in `SHARE` of the queue where that is more."""

RETRY_AFTER_S = 2
"""Retry-After in seconds of a refusal because new calls wait too long."""

ASKED_PER_S = 100.0
"""OPTIONS, REGISTER and other requests outside calls per second: as many of the trunks' addresses as of all
others together, so that strangers use up nothing of a carrier's. More are refused, at a tenth of the cost."""

REMEMBERED = 50_000
"""Most refusals kept, in each of two generations."""

Message = Request | Response | MalformedMessage
Act = Callable[[float], None]
Refuse = Callable[[int, float], None]


@dataclass(slots=True)
class _Newcomer:
    """A new call that waits for its turn, with the messages that arrived for it."""

    since: float
    refuse: Refuse
    messages: list[Act] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A message and the actions on it. `asks`: the method of a request outside any dialog, "" for any other
    message; `key`: that of its transaction; `host`: its source; `replaces`: whether an INVITE is to take the
    place of a call."""

    asks: str
    key: str
    host: str
    act: Act
    refuse: Refuse
    replaces: Callable[[], bool]


class _Bucket:
    """A token bucket, full at first: `ASKED_PER_S` a second, and as many at once."""

    def __init__(self) -> None:
        self._tokens, self._filled = ASKED_PER_S, 0.0

    def take(self, now: float) -> bool:
        """Takes a token; False where there is none."""
        self._tokens = min(ASKED_PER_S, self._tokens + (now - self._filled) * ASKED_PER_S)
        self._filled = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class Refusals:
    """The keys of requests refused in the last 32 to 64 s, longer than any request is retransmitted."""

    def __init__(self) -> None:
        self._young: set[int] = set()
        self._old: set[int] = set()
        self._turned = 0.0

    def add(self, key: str, now: float) -> None:
        """Adds a key; the oldest are dropped above `REMEMBERED`."""
        if now - self._turned > GIVE_UP_S or len(self._young) >= REMEMBERED:
            stale = now - self._turned > 2 * GIVE_UP_S
            self._old, self._young, self._turned = set() if stale else self._young, set(), now
        self._young.add(hash(key))

    def known(self, key: str, now: float) -> bool:
        """Whether the request of this key was refused recently."""
        if now - self._turned > 2 * GIVE_UP_S:
            return False
        return hash(key) in self._young or hash(key) in self._old


class Inflow:
    """Queues messages before a stack. `busy` returns the seconds during which no new request is admitted, 0:
    admitted; `full` the same for new calls alone; `undecided` counts calls that the application has not
    taken; `of_a_trunk` tells whether an address is a trunk's, `silent` whether its new requests are dropped,
    `answers` whether a refused one is answered."""

    def __init__(
        self,
        stack: Stack,
        *,
        busy: Callable[[], int],
        full: Callable[[], int],
        undecided: Callable[[], int] = lambda: 0,
        of_a_trunk: Callable[[str], bool] = lambda host: False,
        silent: Callable[[Hop, float, str], bool] = lambda source, now, nonce: False,
        answers: Answers = lambda refused, now: True,
    ) -> None:
        self.shed = 0
        """Requests refused here since the start, repetitions included."""
        self._stack = stack
        self._busy = busy
        self._full = full
        self._undecided = undecided
        self._of_a_trunk = of_a_trunk
        self._silent, self._answers = silent, answers
        self._waiting: dict[str, _Newcomer] = {}
        self._known: deque[Act] = deque()
        self._done = 0
        self._served = False
        self._turned_at = 0.0
        self._pace_s = FIRST_PACE_S
        self._longest_s = 0.0
        self._refusals = Refusals()
        self._secret = secrets.token_bytes(16)
        self._buckets = {True: _Bucket(), False: _Bucket()}  # of trunks' addresses, of all others

    @property
    def waiting(self) -> bool:
        """Whether `turn` must be called in the next iteration of the event loop."""
        return self._served or bool(self._done) or bool(self._waiting) or bool(self._known)

    def longest_wait_s(self, now: float) -> float:
        """Returns the longest wait of a new call in seconds since the last call of this method."""
        oldest = next(iter(self._waiting.values()), None)
        longest, self._longest_s = self._longest_s, 0.0
        return max(longest, now - oldest.since if oldest is not None else 0.0)

    def datagram(self, data: bytes, source: Hop, now: float) -> None:
        """Takes a UDP datagram: passes it to the stack, queues it for a turn, or refuses it unparsed."""
        seen, act = glance(data), partial(self._stack.receive, data, source)
        if seen is None:
            self._pass(act, now)
        elif seen.method == "ACK" and self._refusals.known(seen.key, now):
            return  # acknowledges a refusal sent here, of which nothing is kept
        elif seen.outside and self._silent(source, now, answered_nonce(data)):
            return
        else:
            asks = seen.method if seen.outside else ""
            refuse = partial(self._refuse_unread, seen, source, len(data))
            replaces = partial(self._replaces, data)
            self._sort(_Arrival(asks, seen.key, source.host, act, refuse, replaces), now)

    def message(self, message: Message, source: Hop, now: float) -> None:
        """Takes one message of a stream connection."""
        act = partial(self._stack.receive_message, message, source)
        asks, key = _asks(message)
        if asks and isinstance(message, Request) and self._silent(source, now, _nonce(message)):
            return
        refuse = partial(self._refuse, message, source, key) if isinstance(message, Request) else _nobody
        self._sort(_Arrival(asks, key, source.host, act, refuse, partial(self._replaces, message)), now)

    def turn(self, now: float) -> None:
        """Handles some messages of calls that are up, then one new call; called once per iteration of the
        event loop."""
        self._done = 0
        for _ in range(min(len(self._known), max(EACH_TURN, len(self._known) // SHARE))):
            self._done += 1
            self._known.popleft()(now)
        began_at, self._turned_at = self._turned_at, now
        again, self._served = self._served, False
        places = max(1, min(PLACES, int((now - began_at) / PLACE_S))) if again else 1
        let_in = self._let_in(places, now)
        if again and let_in:
            pace_s = (now - began_at) / let_in
            self._pace_s += (1 - PACE_MEMORY) * (pace_s - self._pace_s)

    def _let_in(self, places: int, now: float) -> int:
        """Serves waiting calls in up to `places`; returns how many."""
        taken = 0
        while self._waiting and taken < places:
            key = next(iter(self._waiting))
            newcomer = self._waiting.pop(key)
            waited_s = now - newcomer.since
            self._longest_s = max(self._longest_s, waited_s)
            if waited_s > PATIENCE_S:
                self._turn_away(key, newcomer.refuse, now)
                continue
            taken += 1
            self._served = True
            for act in newcomer.messages:
                act(now)
        return taken

    def _pass(self, act: Act, now: float) -> None:
        """Handles a message of a call that is up: at once, unless `AT_ONCE` were handled in this
        iteration."""
        if self._known or self._done >= AT_ONCE:
            self._known.append(act)
        else:
            self._done += 1
            act(now)

    def _sort(self, arrival: _Arrival, now: float) -> None:
        asks, key = arrival.asks, arrival.key
        if asks == "INVITE":
            self._invited(arrival, now)
        elif asks == "CANCEL" and key in self._waiting:
            self._waiting[key].messages.append(arrival.act)
        elif asks in ("", "CANCEL", "ACK") or (not self._busy() and self._token(arrival.host, now)):
            self._pass(arrival.act, now)
        else:
            self.shed += 1
            arrival.refuse(self._busy() or RETRY_AFTER_S, now)

    def _invited(self, arrival: _Arrival, now: float) -> None:
        key = arrival.key
        if self._stack.serves(key):
            self._pass(arrival.act, now)
        elif key in self._waiting:
            return  # retransmitted: answered when its turn comes
        elif (self._closed() and not arrival.replaces()) or self._refusals.known(key, now):
            self._turn_away(key, arrival.refuse, now)
        elif self._served or self._waiting:
            self._waiting[key] = _Newcomer(now, arrival.refuse, [arrival.act])
        else:
            if now - self._turned_at > FORGET_PACE_S:
                self._pace_s = FIRST_PACE_S
            self._served, self._turned_at = True, now
            arrival.act(now)

    def _turn_away(self, key: str, refuse: Refuse, now: float) -> None:
        self.shed += 1
        self._refusals.add(key, now)
        refuse(self._closed() or RETRY_AFTER_S, now)

    def _closed(self) -> int:
        """Returns the seconds during which no new call is admitted; 0: admitted."""
        many = len(self._waiting) + self._undecided()
        crowded = many >= MAX_WAITING or many * self._pace_s > WAIT_S
        return self._busy() or self._full() or (RETRY_AFTER_S if crowded else 0)

    def _replaces(self, message: Message | bytes) -> bool:
        """Whether an INVITE names a call that is up, whose place it is to take: no new call, so that it is
        taken while there is no room for one."""
        if isinstance(message, bytes):
            value = replaces_in(message)
        else:
            value = message.headers.get("Replaces") or "" if isinstance(message, Request) else ""
        return bool(value) and self._stack.within.has(value)

    def _token(self, host: str, now: float) -> bool:
        return self._buckets[self._of_a_trunk(host)].take(now)

    def _refuse_unread(self, seen: Glance, source: Hop, size: int, retry_after_s: int, now: float) -> None:
        data, place = refusal(seen, source, retry_after_s=retry_after_s, tag=self._tag(seen.key))
        if self._answers(RefusedRequest(503, source, size, len(data)), now):
            self._stack.transmit(data, place, "")

    def _refuse(self, request: Request, source: Hop, key: str, retry_after_s: int, now: float) -> None:
        headers = (("Retry-After", str(retry_after_s)),)
        response = response_to(request, 503, to_tag=self._tag(key), headers=headers)
        self._stack.transmit(response.to_bytes(), response_hop(request.via, source), "")

    def _tag(self, key: str) -> str:
        return hashlib.blake2b(key.encode(), key=self._secret, digest_size=8).hexdigest()


def _asks(message: Message) -> tuple[str, str]:
    """Returns the method of a request outside any dialog and the key of its transaction; "" for any other
    message, and for a malformed one, which the stack answers."""
    if not isinstance(message, Request):
        return "", ""
    try:
        outside = message.to.tag is None
        method = "INVITE" if message.method == "CANCEL" else message.method
        return (message.method if outside else ""), server_key(message, message.via, method=method)
    except MalformedMessage:
        return "", ""


def _nonce(request: Request) -> str:
    answers = request.headers.get_all("Authorization")
    return answered_nonce("\n".join(f"Authorization: {each}" for each in answers).encode("utf-8", "replace"))


def _nobody(retry_after_s: int, now: float) -> None:
    """Does nothing, since responses are not refused."""
