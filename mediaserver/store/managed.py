"""Rows of what is managed over the API: companies, trunks, agents, webhooks, keys; and rooms.

Functions on a transaction; `mediaserver.store.store` makes methods of them. Every change raises the revision,
by which other nodes see that there is a change."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import uuid4

from mediaserver.db.database import PAGE_LIMIT, Page, Row, Tx, page_of, read_row, values_of
from mediaserver.errors import Conflict, LocalError
from mediaserver.queue.personal_data import audit
from mediaserver.queue.records import NewWebRoom
from mediaserver.store.config import ABANDON, digest, upsert

KEYS_LIMIT = 200
"""The most keys of one company."""

BY_FILE = "It is managed by the configuration file"


class Kind(StrEnum):
    """A kind of object that can be managed; the value is its table."""

    COMPANY = "companies"
    TRUNK = "trunks"
    AGENT = "agents"
    WEBHOOK = "subscriptions"


@dataclass(frozen=True, slots=True)
class ManagedRow:
    """One object that is managed over the API; `document` is sealed."""

    kind: Kind
    id: str
    company_id: str
    document: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All objects that are managed over the API, at one revision."""

    revision: int
    rows: tuple[ManagedRow, ...]


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to be created: its scopes, its agents (empty: all), and its name for people."""

    scopes: frozenset[str]
    agents: frozenset[str] = frozenset()
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInfo:
    """What is known of an API key, without the key itself. `hint`: its first characters; `expires_at_ms` 0:
    never."""

    id: str
    company_id: str
    name: str
    hint: str
    scopes: frozenset[str]
    agents: frozenset[str]
    from_file: bool
    created_at_ms: int
    last_used_at_ms: int
    expires_at_ms: int


_INSERT_KEY = """
INSERT INTO api_keys (id, company_id, key_sha256, scopes, agents, name, hint, from_file, created_at_ms)
VALUES (:id, :company_id, :key_sha256, :scopes, :agents, :name, :hint, 0, {now})
"""

_ROOM = """
INSERT INTO web_rooms (name, company_id, agent_id, identity, user_ref, variables, metadata, created_at_ms,
    expires_at_ms)
VALUES (:name, :company_id, :agent_id, :identity, :user_ref, :variables, :metadata, {now}, {now} + :life_ms)
"""

_FORGET_ROOMS = """
DELETE FROM web_rooms WHERE name IN (
    SELECT name FROM web_rooms WHERE expires_at_ms <= {now} - :kept_ms
    ORDER BY expires_at_ms LIMIT :limit {skip_locked}
)
"""

_FORGET_KEYS = """
DELETE FROM api_keys
WHERE company_id = :company_id AND expires_at_ms > 0 AND expires_at_ms <= {now} - :kept_ms
"""

KEPT_MS = 24 * 3600 * 1000
"""How long expired rooms and keys stay in the database."""

FORGOTTEN_AT_ONCE = 100

COMMAND_LINE = "command line"
"""In place of a key in the audit log."""


def revision(tx: Tx) -> int:
    """Returns the revision, which every change over the API raises, on whichever node."""
    row = tx.row("SELECT number FROM revisions WHERE id = 1")
    return row["number"] if row is not None else 0


def _raise_revision(tx: Tx) -> None:
    tx.run("UPDATE revisions SET number = number + 1 WHERE id = 1")


def snapshot(tx: Tx) -> Snapshot:
    """Returns all objects that are managed over the API."""
    rows: list[ManagedRow] = []
    for kind in Kind:
        owner = "id" if kind is Kind.COMPANY else "company_id"
        rows += [
            ManagedRow(kind, row["id"], row["company_id"], row["document"])
            for row in tx.rows(
                f"SELECT id, {owner} AS company_id, document FROM {kind.value}"
                " WHERE from_file = 0 AND enabled = 1 AND document <> '' ORDER BY id"
            )
        ]
    return Snapshot(revision(tx), tuple(rows))


def put(tx: Tx, kind: Kind, row: Mapping[str, Any], document: str, *, new: bool) -> None:
    """Writes one object: `row` its table's columns, `document` all of it, sealed. Raises `Conflict` where the
    configuration file manages the id, or where `new` and there is one of that id."""
    before = tx.row(f"SELECT from_file, enabled FROM {kind.value} WHERE id = :id", id=row["id"])
    if before is not None and before["from_file"] and before["enabled"]:
        raise Conflict(BY_FILE)
    if before is not None and before["enabled"] and new:
        raise Conflict("There is one of that id")
    upsert(tx, kind.value, {**row, "document": document, "from_file": 0, "enabled": 1})
    _raise_revision(tx)


def remove(tx: Tx, kind: Kind, thing_id: str) -> bool:
    """Removes one object; False: there was none. Raises `Conflict` where the configuration file manages
    it."""
    row = tx.row(f"SELECT from_file FROM {kind.value} WHERE id = :id AND enabled = 1", id=thing_id)
    if row is None:
        return False
    if row["from_file"]:
        raise Conflict(BY_FILE)
    # The row stays for rows that refer to it, without its content.
    tx.run(f"UPDATE {kind.value} SET enabled = 0, document = '' WHERE id = :id", id=thing_id)
    if kind is Kind.WEBHOOK:
        tx.run(ABANDON)
    _raise_revision(tx)
    return True


def keys(tx: Tx, company_id: str, *, cursor: str = "", limit: int = 50) -> Page[KeyInfo]:
    """Returns the company's API keys, in the order of their ids."""
    rows = tx.rows(
        "SELECT * FROM api_keys WHERE company_id = :company_id AND id > :after ORDER BY id LIMIT :limit",
        company_id=company_id,
        after=cursor,
        limit=min(limit, PAGE_LIMIT) + 1,
    )
    return page_of(rows, limit, _key, place="id")


def key(tx: Tx, company_id: str, key_id: str) -> KeyInfo | None:
    """Returns a key of the company, None for an unknown one."""
    row = tx.row(
        "SELECT * FROM api_keys WHERE id = :id AND company_id = :company_id", id=key_id, company_id=company_id
    )
    return _key(row) if row is not None else None


def make_key(tx: Tx, company_id: str, new: NewKey) -> tuple[KeyInfo, str]:
    """Creates an API key; returns what is known of it, and its text, which cannot be shown again. Raises
    `Conflict` beyond `KEYS_LIMIT`."""
    tx.run(_FORGET_KEYS, company_id=company_id, kept_ms=KEPT_MS)
    count = tx.row(
        "SELECT COUNT(*) AS many FROM api_keys WHERE company_id = :company_id", company_id=company_id
    )
    if count is not None and count["many"] >= KEYS_LIMIT:
        raise Conflict(f"A company has at most {KEYS_LIMIT} keys")
    secret = f"ml_{secrets.token_urlsafe(32)}"
    key_id = f"key_{uuid4().hex[:16]}"
    tx.run(
        _INSERT_KEY,
        **values_of(new, id=key_id, company_id=company_id, key_sha256=digest(secret), hint=secret[:7]),
    )
    made = key(tx, company_id=company_id, key_id=key_id)
    if made is None:
        raise LocalError("the key was not written")
    return made, secret


def rotate_key(tx: Tx, company_id: str, key_id: str, *, overlap_ms: int) -> tuple[KeyInfo, str] | None:
    """Creates a key like `key_id`, which itself expires after `overlap_ms`. None: no such key. Raises
    `Conflict` where the configuration file manages it."""
    before = _own_key(tx, company_id, key_id)
    if before is None:
        return None
    tx.run(
        "UPDATE api_keys SET expires_at_ms = {now} + :overlap_ms"
        " WHERE id = :id AND (expires_at_ms = 0 OR expires_at_ms > {now} + :overlap_ms)",
        id=key_id,
        overlap_ms=overlap_ms,
    )
    return make_key(tx, company_id=company_id, new=NewKey(before.scopes, before.agents, before.name))


def revoke_key(tx: Tx, company_id: str, key_id: str) -> bool:
    """Deletes a key at once; False: there was none. Raises `Conflict` where the configuration file manages
    it."""
    if _own_key(tx, company_id, key_id) is None:
        return False
    return tx.run("DELETE FROM api_keys WHERE id = :id", id=key_id) > 0


def every_key(tx: Tx, company_id: str = "") -> tuple[KeyInfo, ...]:
    """Returns the keys of all companies, or of one, those of the file as well."""
    rows = tx.rows(
        "SELECT * FROM api_keys WHERE :company_id = '' OR company_id = :company_id ORDER BY company_id, id",
        company_id=company_id,
    )
    return tuple(_key(row) for row in rows)


def revoke_any_key(tx: Tx, key_id: str) -> str:
    """Deletes a key of whichever company, on the command line, which the audit log of the company notes.
    Returns the company, "" where there is no such key. Raises `Conflict` where the configuration file manages
    it."""
    row = tx.row("SELECT company_id FROM api_keys WHERE id = :id", id=key_id)
    if row is None or not revoke_key(tx, company_id=row["company_id"], key_id=key_id):
        return ""
    audit.add(
        tx,
        audit.Audited(
            company_id=row["company_id"],
            key_id=COMMAND_LINE,
            request_id="",
            operation="revokeKey",
            subject=key_id,
        ),
    )
    return str(row["company_id"])


def _own_key(tx: Tx, company_id: str, key_id: str) -> KeyInfo | None:
    found = key(tx, company_id=company_id, key_id=key_id)
    if found is not None and found.from_file:
        raise Conflict(BY_FILE)
    return found


def keys_used(tx: Tx, key_ids: Iterable[str]) -> None:
    """Notes that these keys were used just now."""
    for key_id in key_ids:
        tx.run("UPDATE api_keys SET last_used_at_ms = {now} WHERE id = :id", id=key_id)


def _key(row: Row) -> KeyInfo:
    scopes, agents = (frozenset(json.loads(row[name])) for name in ("scopes", "agents"))
    return read_row(KeyInfo, row, scopes=scopes, agents=agents, from_file=bool(row["from_file"]))


def open_room(tx: Tx, room: NewWebRoom) -> None:
    """Inserts a room that may be joined, and deletes those that expired more than a day ago."""
    tx.run(_FORGET_ROOMS, kept_ms=KEPT_MS, limit=FORGOTTEN_AT_ONCE)
    tx.run(_ROOM, **values_of(room))
