"""How long a client may take over its part of HTTP, without sockets and clocks.

A head is due within a time. A body must come at a rate, once it has had a moment to begin: who is slow and
honest is waited for, who sends an octet now and then is not, and time in which we do not read is nobody's
fault. An answer must be read at some rate too. A connection that waits for its next request, a long poll and
a WebSocket are not looked at: they cost a descriptor, which is counted elsewhere.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

CLOSING_S: Final = 10.0
"""How long the rest of an answer may take once the connection is being closed."""


class Stage(enum.Enum):
    """Whose turn it is."""

    HEAD = "head"  # the client's: a head was begun, or is the first
    IDLE = "idle"  # the client's, who need not
    REQUEST = "request"  # ours; the body may still be coming


class Overdue(enum.Enum):
    """What the client has not done in time."""

    HEAD = "head"
    BODY = "body"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class HttpPatience:
    """Seconds for a head, for the beginning of a body, octets a second from then on, and seconds in which
    nothing of an answer is taken."""

    head_s: float
    body_s: float
    body_bytes_per_s: int
    answer_s: float


@dataclass(frozen=True, slots=True)
class Progress:
    """A connection as it is looked at. `body`: octets of it that have come, None where all of it has, or
    there is none. `reading`: whether we take more. `unread`: octets of the answer that the client has not
    acknowledged."""

    body: int | None
    reading: bool
    unread: int
    closing: bool


class HttpDeadlines:
    """The deadlines of one connection, taken at `now`."""

    __slots__ = ("_looked_at", "_patience", "_since", "_stage", "_unread", "_unread_since", "_waited_s")

    def __init__(self, patience: HttpPatience, now: float) -> None:
        self._patience = patience
        self._stage = Stage.HEAD
        self._since = now
        self._looked_at = now
        self._waited_s = 0.0  # for the body
        self._unread = 0
        self._unread_since = now

    def octets(self, now: float) -> None:
        """Something came: where nothing was under way, a head begins."""
        if self._stage is Stage.IDLE:
            self._stage, self._since = Stage.HEAD, now

    def request(self, now: float) -> None:
        """A head is whole."""
        self._stage, self._looked_at, self._waited_s = Stage.REQUEST, now, 0.0

    def answered(self) -> None:
        """The request has been dealt with; its answer may still be on its way."""
        self._stage = Stage.IDLE

    def overdue(self, now: float, progress: Progress) -> Overdue | None:
        """What is late, with the connection as `progress` tells."""
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
