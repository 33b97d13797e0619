"""Legal holds: calls, or all calls with a number, of which nothing is taken away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from mediaserver.db.database import Tx, read_row
from mediaserver.errors import LocalError

HELD = """
EXISTS (
    SELECT 1 FROM holds h WHERE h.company_id = c.company_id
    AND (h.call_id = c.id OR (c.phone_number <> ''
        AND replace(h.spellings, '|' || c.phone_number || '|', '') <> h.spellings))
)
"""
"""Whether the call `c` is under a hold."""

_PUT = """
INSERT INTO holds (id, company_id, call_id, phone_number, spellings, reason, created_at_ms)
VALUES (:id, :company_id, :call_id, :phone_number, :spellings, :reason, {now}) RETURNING *
"""


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold on one call (`call_id`) or on all calls with a number (`phone_number`); the other is ""."""

    id: str
    call_id: str
    phone_number: str
    reason: str
    created_at_ms: int


def put(tx: Tx, company_id: str, *, call_id: str = "", numbers: Sequence[str] = (), reason: str) -> Hold:
    """Puts a hold on a call, or on a number: `numbers` are its spellings, E.164 first."""
    row = tx.row(
        _PUT,
        id=f"hold_{uuid4().hex[:16]}",
        company_id=company_id,
        call_id=call_id,
        phone_number=numbers[0] if numbers else "",
        spellings=f"|{'|'.join(numbers)}|",
        reason=reason,
    )
    if row is None:
        raise LocalError("the hold was not written")
    return read_row(Hold, row)


def lift(tx: Tx, company_id: str, hold_id: str) -> bool:
    """Lifts a hold. False: there was none."""
    return (
        tx.run("DELETE FROM holds WHERE id = :id AND company_id = :company", id=hold_id, company=company_id)
        > 0
    )


def find(tx: Tx, company_id: str) -> Sequence[Hold]:
    """Returns the company's holds, the oldest first."""
    rows = tx.rows(
        "SELECT * FROM holds WHERE company_id = :company_id ORDER BY position", company_id=company_id
    )
    return [read_row(Hold, row) for row in rows]
