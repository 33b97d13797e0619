"""The do-not-call list of each company: numbers that it never dials."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mediaserver.db.database import Page, Tx, check_limit, page_of, read_row
from mediaserver.errors import InvalidNumber
from mediaserver.numbers.e164 import normalise
from mediaserver.queue.requests import DoNotCall

_ADD = """
INSERT INTO do_not_call (company_id, phone_number, reason, created_at_ms)
VALUES (:company_id, :phone_number, :reason, {now}) ON CONFLICT (company_id, phone_number) DO NOTHING
"""


def add(tx: Tx, company_id: str, numbers: Sequence[str], *, reason: str = "") -> int:
    """Adds E.164 numbers to the company's list; returns how many were new. Calls to them in the queue end
    FAILED when they come up."""
    return sum(
        tx.run(_ADD, company_id=company_id, phone_number=number, reason=reason) for number in sorted(numbers)
    )


def opt_out(tx: Tx, company_id: str, phone_number: str, *, reason: str = "") -> bool:
    """Adds a number as a trunk gave it to the company's list. False: it is not a number, or was listed
    before."""
    company = tx.row("SELECT country FROM companies WHERE id = :company_id", company_id=company_id)
    try:
        number = normalise(phone_number, company["country"] or None if company is not None else None)
    except InvalidNumber:
        return False
    return add(tx, company_id=company_id, numbers=(number,), reason=reason) > 0


def remove(tx: Tx, company_id: str, phone_number: str) -> bool:
    """Removes a number from the company's list. False: it was not listed."""
    return (
        tx.run(
            "DELETE FROM do_not_call WHERE company_id = :company_id AND phone_number = :phone_number",
            company_id=company_id,
            phone_number=phone_number,
        )
        > 0
    )


def listed(tx: Tx, company_id: str, phone_number: str) -> bool:
    """Whether a number is on the company's list."""
    return bool(
        tx.rows(
            "SELECT 1 FROM do_not_call WHERE company_id = :company_id AND phone_number = :phone_number",
            company_id=company_id,
            phone_number=phone_number,
        )
    )


def find(tx: Tx, company_id: str, *, cursor: str = "", limit: int = 50) -> Page[DoNotCall]:
    """Returns the company's list in the order of the numbers."""
    check_limit(limit)
    rows = tx.rows(
        "SELECT * FROM do_not_call WHERE company_id = :company_id AND phone_number > :after"
        " ORDER BY phone_number LIMIT :limit",
        company_id=company_id,
        after=cursor,
        limit=limit + 1,
    )
    return page_of(rows, limit, partial(read_row, DoNotCall), place="phone_number")
