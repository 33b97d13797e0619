"""Deadlines of an HTTP connection: how long a client may take over a request and its response. No clock, no
I/O.

A request head is due within a time. A body must arrive at a rate, after a grace period; time in which the
server does not read is not counted. A response must be read at a rate too. Connections that wait for their
next request, long polls and WebSockets have no deadline: they cost a descriptor, and
`mediaserver.admission.descriptors` counts those."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

CLOSING_S: Final = 10.0
"""How long the rest of an answer may take once the connection is being closed."""


class Stage(enum.Enum):
    """What a connection waits for, and from which side."""

    HEAD = "head"  # waits for the client: a head has begun, or is the first
    IDLE = "idle"  # waits for the client's next request, without a deadline
    REQUEST = "request"  # waits for the server; the body may still be arriving


class Overdue(enum.Enum):
    """What the client did not do in time."""

    HEAD = "head"
    BODY = "body"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class HttpPatience:
    """The limits: `head_s` for a head; `body_s` for a body, plus a second for every `body_bytes_per_s`
    received; `answer_s` in which the client takes nothing of a response."""

    head_s: float
    body_s: float
    body_bytes_per_s: int
    answer_s: float


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a connection at a check. `body`: octets of the body received, None where all of it has
    arrived or there is none; `reading`: whether the server reads more; `unread`: octets of the response that
    the client has not acknowledged."""

    body: int | None
    reading: bool
    unread: int
    closing: bool


class HttpDeadlines:
    """Checks one connection's deadlines, from loop time `now` on."""

    __slots__ = ("_looked_at", "_patience", "_since", "_stage", "_unread", "_unread_since", "_waited_s")

    def __init__(self, patience: HttpPatience, now: float) -> None:
        self._patience = patience
        self._stage = Stage.HEAD
        self._since = now
        self._looked_at = now
        self._waited_s = 0.0  # of waiting for the body
        self._unread = 0
        self._unread_since = now

    def octets(self, now: float) -> None:
        """Notes that octets arrived: on an idle connection a head begins with them."""
        if self._stage is Stage.IDLE:
            self._stage, self._since = Stage.HEAD, now

    def request(self, now: float) -> None:
        """Notes that a request head is complete: its body is due from `now` on."""
        self._stage, self._looked_at, self._waited_s = Stage.REQUEST, now, 0.0

    def answered(self) -> None:
        """Notes that the request is handled; its response may still be in transit."""
        self._stage = Stage.IDLE

    def overdue(self, now: float, progress: Progress) -> Overdue | None:
        """Returns the deadline that the client has missed, None where it has missed none."""
        elapsed_s, self._looked_at = now - self._looked_at, now
        if self._unread_for(now, progress.unread) > (
            CLOSING_S if progress.closing else self._patience.answer_s
        ):
            return Overdue.ANSWER
        if self._stage is Stage.HEAD and now - self._since > self._patience.head_s:
            return Overdue.HEAD
        if self._stage is Stage.REQUEST and progress.body is not None and progress.reading:
            self._waited_s += elapsed_s
            allowed_s = self._patience.body_s + progress.body / self._patience.body_bytes_per_s
            return Overdue.BODY if self._waited_s > allowed_s else None
        return None

    def _unread_for(self, now: float, unread: int) -> float:
        if unread != self._unread or not unread:
            self._unread, self._unread_since = unread, now
        return now - self._unread_since
