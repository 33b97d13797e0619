"""The audit log: which key changed, heard, exported or erased what. Rows are only ever added."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from mediaserver.db.database import PAGE_LIMIT, Page, Tx, page_of, read_row, values_of

_ADD = """
INSERT INTO audit (company_id, key_id, request_id, operation, subject, created_at_ms)
VALUES (:company_id, :key_id, :request_id, :operation, :subject, {now})
"""

_FIND = """
SELECT * FROM audit WHERE company_id = :company_id AND (:before = 0 OR position < :before)
    AND (:subject = '' OR subject = :subject) ORDER BY position DESC LIMIT :limit
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """One thing that somebody did: the operation by its `operationId`, and what it was done to."""

    company_id: str
    key_id: str
    request_id: str
    operation: str
    subject: str
    created_at_ms: int = 0


def add(tx: Tx, entry: Audited) -> None:
    """Adds an entry to the log, at the database's time."""
    tx.run(_ADD, **values_of(entry))


def find(tx: Tx, company_id: str, *, subject: str = "", before: int = 0, limit: int = 50) -> Page[Audited]:
    """Returns the company's log, newest first, of everything or of one subject."""
    limit = min(limit, PAGE_LIMIT)
    rows = tx.rows(_FIND, company_id=company_id, subject=subject, before=before, limit=limit + 1)
    return page_of(rows, limit, partial(read_row, Audited))
