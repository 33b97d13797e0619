"""Rows of the configuration file: companies, keys, trunks, agents and webhooks; and API keys made at run
time."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Collection, Iterator, Mapping
from typing import Any, get_args

from mediaserver.db.database import Row, Tx
from mediaserver.errors import LocalError
from mediaserver.queue.records import KeyRow
from mediaserver.settings import (
    AgentSettings,
    CompanySettings,
    Settings,
    TrunkSettings,
    WebhookSettings,
    reveal,
)
from mediaserver.settings.company import Scope

SCOPES: frozenset[str] = frozenset(get_args(Scope))
"""Every scope of an API key."""

_FIND = """
SELECT k.id, k.scopes, k.agents, c.id AS company_id, c.name FROM api_keys k
JOIN companies c ON c.id = k.company_id AND c.enabled = 1
WHERE (k.expires_at_ms = 0 OR k.expires_at_ms > {now}) AND
"""

_KEY = """
INSERT INTO api_keys (id, company_id, key_sha256, scopes, from_file, created_at_ms)
VALUES (:id, :company_id, :key_sha256, :scopes, :from_file, {now})
ON CONFLICT (key_sha256) DO UPDATE SET company_id = excluded.company_id, scopes = excluded.scopes,
    from_file = excluded.from_file
"""

ABANDON = """
UPDATE deliveries SET state = 'DEAD', settled_at_ms = {now}, last_error = 'subscription removed'
WHERE state = 'PENDING' AND subscription_id IN (SELECT id FROM subscriptions WHERE enabled = 0)
"""


def digest(key: str) -> str:
    """Returns what is stored of a key. A key is long and random, so a plain hash is enough: it cannot be
    guessed."""
    return hashlib.sha256(key.encode()).hexdigest()


def find_key(tx: Tx, key: str) -> KeyRow | None:
    """Returns the API key `key`, None for an unknown or expired one."""
    return _key_row(tx.row(f"{_FIND} k.key_sha256 = :key_sha256", key_sha256=digest(key)))


def find_key_by_id(tx: Tx, key_id: str) -> KeyRow | None:
    """Returns the API key of that id, None for an unknown or expired one."""
    return _key_row(tx.row(f"{_FIND} k.id = :key_id", key_id=key_id))


def _key_row(row: Row | None) -> KeyRow | None:
    if row is None:
        return None
    scopes, agents = frozenset(json.loads(row["scopes"])), frozenset(json.loads(row["agents"]))
    return KeyRow(row["id"], row["company_id"], row["name"], scopes, agents)


def create_key(tx: Tx, company_id: str, scopes: Collection[str]) -> str:
    """Creates an API key and returns its text, which cannot be shown again. Raises `LocalError` for an
    unknown company or scope."""
    if not scopes or not SCOPES.issuperset(scopes):
        raise LocalError(f"scopes must be of {', '.join(sorted(SCOPES))}")
    if tx.row("SELECT id FROM companies WHERE id = :id AND enabled = 1", id=company_id) is None:
        raise LocalError(f"there is no company {company_id!r}")
    key = f"ml_{secrets.token_urlsafe(32)}"
    _put_key(tx, company_id=company_id, key=key, scopes=scopes, from_file=False)
    return key


def _put_key(tx: Tx, *, company_id: str, key: str, scopes: Collection[str], from_file: bool) -> None:
    key_sha256 = digest(key)
    tx.run(
        _KEY,
        id=f"key_{key_sha256[:16]}",
        company_id=company_id,
        key_sha256=key_sha256,
        scopes=json.dumps(sorted(set(scopes))),
        from_file=int(from_file),
    )


def subscription_id(company_id: str, url: str) -> str:
    """Returns the id of a webhook of the file: the same at every start."""
    return f"sub_{hashlib.sha256(f'{company_id} {url}'.encode()).hexdigest()[:16]}"


def sync_file(tx: Tx, settings: Settings) -> None:
    """Writes the file's companies, keys, trunks, agents and webhooks, marked as managed by the file, and
    disables (keys: deletes) those that came from an earlier file and are not in this one. No secret of the
    file is written, keys only as SHA-256."""
    for table in ("companies", "trunks", "agents", "subscriptions"):
        tx.run(f"UPDATE {table} SET enabled = 0 WHERE from_file = 1")
    for table, row in _rows(settings):
        upsert(tx, table, {**row, "from_file": 1, "enabled": 1})
    _sync_keys(tx, settings)
    tx.run(ABANDON)


def _sync_keys(tx: Tx, settings: Settings) -> None:
    """Writes the file's keys and deletes those of an earlier file. A key that was there keeps its row, with
    the time of its last use."""
    gone = {row["key_sha256"] for row in tx.rows("SELECT key_sha256 FROM api_keys WHERE from_file = 1")}
    for company in settings.companies:
        for key in company.keys:
            text = reveal(key.key)
            gone.discard(digest(text))
            _put_key(tx, company_id=company.id, key=text, scopes=frozenset(key.scopes), from_file=True)
    for key_sha256 in sorted(gone):
        tx.run("DELETE FROM api_keys WHERE key_sha256 = :key_sha256", key_sha256=key_sha256)


def upsert(tx: Tx, table: str, row: Mapping[str, Any]) -> None:
    """Inserts a row of companies, trunks, agents or subscriptions, or replaces the one of its id."""
    names = list(row)
    stamp = (", created_at_ms", ", {now}") if table == "companies" else ("", "")
    changes = ", ".join(f"{name} = excluded.{name}" for name in names if name != "id")
    values = ", ".join(f":{name}" for name in names)
    tx.run(
        f"INSERT INTO {table} ({', '.join(names)}{stamp[0]}) VALUES ({values}{stamp[1]})"
        f" ON CONFLICT (id) DO UPDATE SET {changes}",
        **row,
    )


def _rows(settings: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    for company in settings.companies:
        yield "companies", company_row(company)
    for trunk in (*settings.trunks, *settings.lines):
        yield "trunks", trunk_row(trunk)
    for agent in settings.agents:
        yield "agents", agent_row(agent)
    for company in settings.companies:
        for hook in company.webhooks:
            yield "subscriptions", webhook_row(subscription_id(company.id, hook.url), company.id, hook)


def webhook_row(webhook_id: str, company_id: str, hook: WebhookSettings) -> dict[str, Any]:
    """Returns a subscription's columns, without secrets."""
    return {
        "id": webhook_id,
        "company_id": company_id,
        "url": hook.url,
        "events": json.dumps(list(hook.events)),
    }


def company_row(company: CompanySettings) -> dict[str, Any]:
    """Returns a company's columns, its policies as JSON."""
    limit = company.contact_limit
    return {
        "id": company.id,
        "name": company.name or company.id,
        "duplicate_policy": company.duplicate_policy,
        "contact_calls": limit.calls if limit is not None else 0,
        "contact_minutes": limit.per_minutes if limit is not None else 0,
        "dial_prefixes": json.dumps(list(company.prefixes)),
        "max_concurrent_calls": company.max_concurrent_calls,
        "web_calls": int(company.web_calls),
        "country": company.country or "",
        "caller_ids": json.dumps(list(company.caller_ids)) if company.caller_ids is not None else "",
        "calling_windows": json.dumps(list(company.calling_windows)),
    }


def trunk_row(trunk: TrunkSettings) -> dict[str, Any]:
    """Returns a trunk's columns, without secrets."""
    names = ("id", "uri", "caller_id", "number_format", "accepts", "max_concurrent_calls", "calls_per_second")
    return {"company_id": trunk.company, **{name: getattr(trunk, name) for name in names}}


def agent_row(agent: AgentSettings) -> dict[str, Any]:
    """Returns an agent's columns, without secrets."""
    return {
        "id": agent.id,
        "company_id": agent.company,
        "name": agent.name,
        "direction": agent.direction,
        "trunk_id": agent.trunk,
        "phone_number": agent.phone_number or "",
        "language": agent.language,
        "retry": json.dumps({cause: pauses for cause, pauses in agent.retry.model_dump().items() if pauses}),
        "calling_windows": json.dumps(list(agent.calling_windows))
        if agent.calling_windows is not None
        else "",
    }
