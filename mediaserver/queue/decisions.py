"""Decisions not to dial a call, and the record of them that answers "why was this person not called"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from mediaserver.db.database import Tx, read_row, values_of


class Rule(StrEnum):
    """Why a call is not dialled, now or ever. The values are those of the API."""

    NOT_CONFIGURED = "not_configured"
    DIAL_PREFIX = "dial_prefix"
    DO_NOT_CALL = "do_not_call"
    CALLER_ID = "caller_id"
    CONTACT_LIMIT = "contact_limit"
    CALLING_WINDOW = "calling_window"
    COMPANY_LIMIT = "company_limit"
    TRUNK_LIMIT = "trunk_limit"
    TRUNK_RATE = "trunk_rate"
    BATCH_PAUSED = "batch_paused"
    RETRY = "retry"  # an attempt failed, and the agent's retry table says when to try again
    NOT_DIALLED = "not_dialled"  # a node claimed the call, could not dial it, and released it


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the rules say about a call. `rule` None: dial it; otherwise not before `until_ms`, or never where
    that is 0. `reason`: the message for the client."""

    rule: Rule | None = None
    reason: str = ""
    until_ms: int = 0

    @property
    def refused(self) -> bool:
        """Whether the call will never be dialled."""
        return self.rule is not None and not self.until_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Why a call was not dialled at `at_ms`, and when it may be dialled next (`until_ms`, 0: never). The same
    reason again only counts up `times` and moves `last_at_ms` and `until_ms`."""

    at_ms: int
    last_at_ms: int
    times: int
    rule: Rule
    reason: str
    until_ms: int


_AGAIN = """
UPDATE decisions SET times = times + 1, last_at_ms = {now}, until_ms = :until_ms, reason = :reason
WHERE call_id = :call_id AND rule = :rule
    AND number = (SELECT MAX(d.number) FROM decisions d WHERE d.call_id = :call_id)
"""

_FIRST = """
INSERT INTO decisions (call_id, number, at_ms, last_at_ms, times, rule, reason, until_ms)
SELECT :call_id, COALESCE(MAX(number), 0) + 1, {now}, {now}, 1, :rule, :reason, :until_ms
FROM decisions WHERE call_id = :call_id
"""


def note(tx: Tx, call_id: str, ruling: Ruling) -> None:
    """Records why the call was not dialled."""
    values = values_of(ruling, call_id=call_id)
    if not tx.run(_AGAIN, **values):
        tx.run(_FIRST, **values)


def of_call(tx: Tx, call_id: str) -> Sequence[Decision]:
    """Returns all decisions about a call, oldest first."""
    rows = tx.rows("SELECT * FROM decisions WHERE call_id = :call_id ORDER BY number", call_id=call_id)
    return [read_row(Decision, row, rule=Rule(row["rule"])) for row in rows]
