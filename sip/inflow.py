"""What comes in, in the order in which it is dealt with: calls that are up, then new ones, one at a time.

What belongs to a transaction or a dialog goes to the stack at once and is never refused. A new call costs a
hundred times a packet of audio: of those that arrive together each has a turn of the event loop of its own.
Where too many wait for theirs, or the node is overloaded, further ones are refused as they arrive (503 with
Retry-After), before they are parsed. A refusal keeps nothing but the key of its transaction, for the caller
who did not get it and asks again: also when there is room by then, since who has been told no has hung up.

Without I/O: whoever owns it calls `turn` once in each turn of the loop while `waiting`.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from sip.errors import MalformedMessage
from sip.glance import Glance, glance, refusal
from sip.hop import Hop, response_hop
from sip.message import Request, Response, response_to
from sip.stack import Stack, server_key
from sip.timers import GIVE_UP_S

MAX_WAITING = 100
"""New calls that wait for their turn: half a second where each turn has a call to set up."""

PATIENCE_S = 1.0
"""A caller whose turn comes later than that has sent the INVITE three times."""

RETRY_AFTER_S = 2
"""To who is refused for want of a turn."""

ASKED_PER_S = 100.0
"""OPTIONS, REGISTER and whatever else is of no call: further ones are refused, which costs a tenth."""

REMEMBERED = 50_000
"""Refusals remembered at the most, twice over."""

Message = Request | Response | MalformedMessage
Act = Callable[[float], None]
Refuse = Callable[[int], None]


@dataclass(slots=True)
class _Newcomer:
    """A new call that waits for its turn, and what came for it meanwhile."""

    since: float
    refuse: Refuse
    messages: list[Act] = field(default_factory=list)


class Refusals:
    """The keys of what was refused in the last 32 to 64 s: longer than anybody repeats a request."""

    def __init__(self) -> None:
        self._young: set[int] = set()
        self._old: set[int] = set()
        self._turned = 0.0

    def add(self, key: str, now: float) -> None:
        """Remembers one; the oldest are forgotten where there are too many."""
        if now - self._turned > GIVE_UP_S or len(self._young) >= REMEMBERED:
            stale = now - self._turned > 2 * GIVE_UP_S
            self._old, self._young, self._turned = set() if stale else self._young, set(), now
        self._young.add(hash(key))

    def known(self, key: str, now: float) -> bool:
        """Whether it was refused a moment ago."""
        if now - self._turned > 2 * GIVE_UP_S:
            return False
        return hash(key) in self._young or hash(key) in self._old


class Inflow:
    """Stands before a stack. `busy` says for how many seconds nobody new is to come, 0: they may; `full` the
    same of new calls alone."""

    def __init__(self, stack: Stack, *, busy: Callable[[], int], full: Callable[[], int]) -> None:
        self.shed = 0
        """Refused here since the start, repetitions included."""
        self._stack = stack
        self._busy = busy
        self._full = full
        self._waiting: dict[str, _Newcomer] = {}
        self._served = False
        self._longest_s = 0.0
        self._refusals = Refusals()
        self._secret = secrets.token_bytes(16)
        self._tokens, self._filled = ASKED_PER_S, 0.0

    @property
    def waiting(self) -> bool:
        """Whether `turn` is wanted in the next turn of the loop."""
        return self._served or bool(self._waiting)

    def longest_wait_s(self, now: float) -> float:
        """How long a new call has waited at the most since this was asked last."""
        oldest = next(iter(self._waiting.values()), None)
        longest, self._longest_s = self._longest_s, 0.0
        return max(longest, now - oldest.since if oldest is not None else 0.0)

    def datagram(self, data: bytes, source: Hop, now: float) -> None:
        """Takes one datagram."""
        seen, act = glance(data), partial(self._stack.receive, data, source)
        if seen is None:
            act(now)
        elif seen.method == "ACK" and self._refusals.known(seen.key, now):
            return  # it is of a refusal of ours, and there is nothing to it any more
        else:
            asks = seen.method if seen.outside else ""
            self._sort(asks, seen.key, act, partial(self._refuse_unread, seen, source), now)

    def message(self, message: Message, source: Hop, now: float) -> None:
        """Takes one message that was cut out of a stream."""
        act = partial(self._stack.receive_message, message, source)
        asks, key = _asks(message)
        refuse = partial(self._refuse, message, source, key) if isinstance(message, Request) else _nobody
        self._sort(asks, key, act, refuse, now)

    def turn(self, now: float) -> None:
        """The next turn of the loop has come: one new call is let in."""
        self._served = False
        while self._waiting and not self._served:
            key = next(iter(self._waiting))
            newcomer = self._waiting.pop(key)
            waited_s = now - newcomer.since
            self._longest_s = max(self._longest_s, waited_s)
            if waited_s > PATIENCE_S:
                self._turn_away(key, newcomer.refuse, now)
                continue
            self._served = True
            for act in newcomer.messages:
                act(now)

    def _sort(self, asks: str, key: str, act: Act, refuse: Refuse, now: float) -> None:
        """What a request outside any dialog `asks` for, "" for everything else."""
        if asks == "INVITE":
            self._invited(key, act, refuse, now)
        elif asks == "CANCEL" and key in self._waiting:
            self._waiting[key].messages.append(act)
        elif asks in ("", "CANCEL", "ACK") or (not self._busy() and self._token(now)):
            act(now)
        else:
            self.shed += 1
            refuse(self._busy() or RETRY_AFTER_S)

    def _invited(self, key: str, act: Act, refuse: Refuse, now: float) -> None:
        if self._stack.serves(key):
            act(now)
        elif key in self._waiting:
            return  # the same again: it is answered when it has its turn
        elif self._closed() or self._refusals.known(key, now):
            self._turn_away(key, refuse, now)
        elif self._served or self._waiting:
            self._waiting[key] = _Newcomer(now, refuse, [act])
        else:
            self._served = True
            act(now)

    def _turn_away(self, key: str, refuse: Refuse, now: float) -> None:
        self.shed += 1
        self._refusals.add(key, now)
        refuse(self._closed() or RETRY_AFTER_S)

    def _closed(self) -> int:
        """For how many seconds no new call is let in; 0: they are."""
        crowded = RETRY_AFTER_S if len(self._waiting) >= MAX_WAITING else 0
        return self._busy() or self._full() or crowded

    def _token(self, now: float) -> bool:
        self._tokens = min(ASKED_PER_S, self._tokens + (now - self._filled) * ASKED_PER_S)
        self._filled = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _refuse_unread(self, seen: Glance, source: Hop, retry_after_s: int) -> None:
        data, place = refusal(seen, source, retry_after_s=retry_after_s, tag=self._tag(seen.key))
        self._stack.transmit(data, place, "")

    def _refuse(self, request: Request, source: Hop, key: str, retry_after_s: int) -> None:
        headers = (("Retry-After", str(retry_after_s)),)
        response = response_to(request, 503, to_tag=self._tag(key), headers=headers)
        self._stack.transmit(response.to_bytes(), response_hop(request.via, source), "")

    def _tag(self, key: str) -> str:
        return hashlib.blake2b(key.encode(), key=self._secret, digest_size=8).hexdigest()


def _asks(message: Message) -> tuple[str, str]:
    """The method of a request outside any dialog and the key of its transaction; "" for anything else, and
    for what cannot be read, which is the stack's to answer."""
    if not isinstance(message, Request):
        return "", ""
    try:
        outside = message.to.tag is None
        method = "INVITE" if message.method == "CANCEL" else message.method
        return (message.method if outside else ""), server_key(message, message.via, method=method)
    except MalformedMessage:
        return "", ""


def _nobody(retry_after_s: int) -> None:
    """Responses are not refused."""
