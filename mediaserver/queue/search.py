"""Finds calls by what is known of them, newest first, at a cost that does not grow with the table.

A filter with an index of its own (number, batch, agent; the company otherwise; times on all of them) leads
through the calls. The others are asked of at most `EXAMINED` calls that it leads to; where a page is not full
by then, its cursor goes on from there. What is not a column of `calls` stands in `call_search`, which is
written with the call and cleared with what it was made of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from mediaserver.db.database import Page, Row, Tx, among, check_limit, read_row
from mediaserver.errors import InvalidRequest
from mediaserver.queue.records import CallRow, CallStatus, Outcome, call_states
from pipeline.text.fold import folded, plain_words

EXAMINED = 2_000
EXAMINED_FOR_WORDS = 1_000
"""The most calls that one page looks at; a transcript is longer than the rest of a row."""

WORDS_LIMIT = 100_000
"""Characters kept of what was said in a call, some two hours."""

_CURSOR = re.compile(r"([0-9]{1,15})-([0-9]{1,18})")

_COLUMNS = tuple(field.name for field in fields(CallRow))

_NAME = """
INSERT INTO call_search (call_id, name, name_words) VALUES (:call_id, :name, :name_words)
ON CONFLICT (call_id) DO UPDATE SET name = excluded.name, name_words = excluded.name_words
"""

_CONTENT = """
INSERT INTO call_search (call_id, disposition, latency_ms, slowest_ms, words)
VALUES (:call_id, :disposition, :latency_ms, :slowest_ms, :words)
ON CONFLICT (call_id) DO UPDATE SET disposition = excluded.disposition,
    latency_ms = excluded.latency_ms, slowest_ms = excluded.slowest_ms, words = excluded.words
"""

_TALKED_MS = (
    "CASE WHEN c.answered_at_ms > 0 AND c.ended_at_ms > 0 THEN c.ended_at_ms - c.answered_at_ms ELSE 0 END"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    """What a list of calls is narrowed to; "", 0, () and None narrow nothing.

    `numbers`: spellings of the other party's number; `digits`: how it ends. `name` and `words` are found
    anywhere in the name and in what was said. Times are of the call's creation, `until_ms` itself excluded;
    durations count from the answer, latencies are of the slowest turn."""

    status: CallStatus | None = None
    batch_id: str = ""
    agent_id: str = ""
    numbers: tuple[str, ...] = ()
    digits: str = ""
    name: str = ""
    direction: str = ""
    disposition: str = ""
    cause: str = ""
    since_ms: int = 0
    until_ms: int = 0
    min_duration_ms: int = 0
    max_duration_ms: int = 0
    min_latency_ms: int = 0
    max_latency_ms: int = 0
    words: str = ""


EVERYTHING = CallFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCall(CallRow):
    """A call as lists show it: with the name of the other party, and what came of it. `latency_ms`: of the
    median turn; `slowest_ms`: of the slowest."""

    name: str
    disposition: str
    latency_ms: int
    slowest_ms: int

    @property
    def talked_ms(self) -> int:
        """Milliseconds from the answer to the end, 0 without both."""
        return max(0, self.ended_at_ms - self.answered_at_ms) if self.answered_at_ms else 0


def calls(
    tx: Tx,
    company_id: str,
    *,
    wanted: CallFilter = EVERYTHING,
    cursor: str = "",
    limit: int = 50,
    agents: frozenset[str] = frozenset(),
) -> Page[ListedCall]:
    """Returns the company's calls that are `wanted`, newest first, of `agents` or (empty) of all. Where a
    filter is rarely met, a page may have few calls or none, and a cursor all the same. Raises
    `InvalidRequest` for an invalid cursor."""
    check_limit(limit)
    leading, values = _leading(company_id, wanted, _after(cursor))
    rest, bound = _rest(wanted, agents)
    examined = (EXAMINED_FOR_WORDS if plain(wanted.words) else EXAMINED) if rest else limit + 1
    walk = f"SELECT c.position FROM calls c WHERE {leading} ORDER BY c.created_at_ms DESC, c.position DESC"
    columns = ", ".join(f"c.{name}" for name in ("position", *_COLUMNS))
    rows = tx.rows(
        f"SELECT {columns}, s.name, s.disposition, s.latency_ms, s.slowest_ms"
        f" FROM ({walk} LIMIT :examined) w JOIN calls c ON c.position = w.position"
        " LEFT JOIN call_search s ON s.call_id = c.id"
        f" WHERE 1 = 1{rest} ORDER BY c.created_at_ms DESC, c.position DESC LIMIT :limit",
        **values,
        **bound,
        examined=examined,
        limit=limit + 1,
    )
    page = tuple(_listed(row) for row in rows[:limit])
    if len(rows) > limit:
        return Page(page, _cursor(rows[limit - 1]))
    last = tx.row(_END_OF.format(leading=leading), **values, skipped=examined - 1) if rest else None
    return Page(page, _cursor(last) if last is not None else "")


_END_OF = """
SELECT c.created_at_ms, c.position FROM calls c WHERE {leading}
ORDER BY c.created_at_ms DESC, c.position DESC LIMIT 1 OFFSET :skipped
"""


def name_call(tx: Tx, call_id: str, variables: Mapping[str, str], sip: Mapping[str, Any]) -> None:
    """Writes the other party's name: the prompt variable `name`, or what the caller's telephone shows."""
    name = (variables.get("name") or str(sip.get("displayName") or "")).strip()[:256]
    if name:
        tx.run(_NAME, call_id=call_id, name=name, name_words=plain(name))


def note_content(tx: Tx, call_id: str, outcome: Outcome) -> None:
    """Writes what a call that is over is found by; nothing where nothing was said and found out."""
    latency = outcome.analysis.get("latency") or {}
    said = " ".join(str(line.get("text", "")) for line in outcome.transcript)
    if outcome.transcript or outcome.analysis:
        tx.run(
            _CONTENT,
            call_id=call_id,
            disposition=str(outcome.analysis.get("disposition") or "")[:256],
            latency_ms=round(latency.get("p50Ms") or 0),
            slowest_ms=round(latency.get("maxMs") or 0),
            words=plain(said[:WORDS_LIMIT]),
        )


def forget(tx: Tx, call_id: str) -> None:
    """Takes away what a call is found by, because the transcript and the variables go."""
    tx.run("DELETE FROM call_search WHERE call_id = :id", id=call_id)


def forget_shown_name(tx: Tx, call_id: str) -> None:
    """Takes away the name that the caller's telephone showed, because what SIP said of the call goes; a name
    among the prompt variables stays with these."""
    row = tx.row("SELECT variables FROM calls WHERE id = :id", id=call_id)
    if row is None or not json.loads(row["variables"]).get("name"):
        tx.run("UPDATE call_search SET name = '', name_words = '' WHERE call_id = :id", id=call_id)


def plain(text: str) -> str:
    """Returns `text` as it is searched: in lower case, without punctuation and the differences of Arabic
    spelling; "" where it has no letter and no digit."""
    return folded(plain_words(text))


def _leading(
    company_id: str, wanted: CallFilter, after: tuple[int, int] | None
) -> tuple[str, dict[str, Any]]:
    """Returns the conditions that walk an index, and their values."""
    values: dict[str, Any] = {"company_id": company_id}
    conditions = ["c.company_id = :company_id"]
    if wanted.numbers:
        named, bound = among("c.phone_number", wanted.numbers)
        conditions.append(named.removeprefix(" AND "))
        values |= bound
    elif wanted.batch_id:
        conditions += ["c.batch_id = :batch_id", "c.batch_id <> ''"]
        values["batch_id"] = wanted.batch_id
    elif wanted.agent_id:
        conditions.append("c.agent_id = :agent_id")
        values["agent_id"] = wanted.agent_id
    if wanted.since_ms:
        conditions.append("c.created_at_ms >= :since_ms")
        values["since_ms"] = wanted.since_ms
    if wanted.until_ms:
        conditions.append("c.created_at_ms < :until_ms")
        values["until_ms"] = wanted.until_ms
    if after is not None:
        conditions.append("(c.created_at_ms, c.position) < (:after_ms, :after)")
        values["after_ms"], values["after"] = after
    return " AND ".join(conditions), values


def _rest(wanted: CallFilter, agents: frozenset[str]) -> tuple[str, dict[str, Any]]:
    """Returns the conditions that the calls on the way are asked, and their values."""
    theirs, values = among("c.agent_id", agents)
    conditions = [theirs.removeprefix(" AND ")] if theirs else []
    for condition, name, value in _asked(wanted):
        if value:
            conditions.append(condition)
            values[name] = value
    return "".join(f" AND {condition}" for condition in conditions), values


def _asked(wanted: CallFilter) -> Iterator[tuple[str, str, Any]]:
    yield "c.status = :status", "status", wanted.status or ""
    yield "c.direction = :direction", "direction", wanted.direction
    yield "c.cause = :cause", "cause", wanted.cause
    if wanted.numbers:
        yield "c.batch_id = :batch_id", "batch_id", wanted.batch_id
    if wanted.numbers or wanted.batch_id:
        yield "c.agent_id = :agent_id", "agent_id", wanted.agent_id
    yield "c.phone_number LIKE :digits", "digits", f"%{wanted.digits}" if wanted.digits else ""
    yield f"{_TALKED_MS} >= :min_duration_ms", "min_duration_ms", wanted.min_duration_ms
    yield f"{_TALKED_MS} <= :max_duration_ms", "max_duration_ms", wanted.max_duration_ms
    yield "s.disposition = :disposition", "disposition", wanted.disposition
    yield "s.slowest_ms >= :min_latency_ms", "min_latency_ms", wanted.min_latency_ms
    yield (
        "s.slowest_ms > 0 AND s.slowest_ms <= :max_latency_ms",
        "max_latency_ms",
        wanted.max_latency_ms,
    )
    for column, text in (("name_words", wanted.name), ("words", wanted.words)):
        yield f"s.{column} LIKE :{column}", column, f"%{plain(text)}%" if plain(text) else ""


def _after(cursor: str) -> tuple[int, int] | None:
    if not cursor:
        return None
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise InvalidRequest("Invalid cursor")
    return int(found[1]), int(found[2])


def _cursor(row: Row) -> str:
    return f"{row['created_at_ms']}-{row['position']}"


def _listed(row: Row) -> ListedCall:
    return read_row(
        ListedCall,
        row,
        **call_states(row),
        name=row["name"] or "",
        disposition=row["disposition"] or "",
        latency_ms=row["latency_ms"] or 0,
        slowest_ms=row["slowest_ms"] or 0,
    )
