"""Puts calls into the queue: one or a batch; dry runs put none.

First the outcome of every item is planned, by the rules and the company's duplicate policy. Then the accepted
calls are written, and the response to a repeatable request with them. All in one transaction that locks the
company's row: limits are counted across requests and nodes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from mediaserver.db.database import Tx
from mediaserver.errors import CalledTooRecently, RepeatedDifferently, RuleBroken
from mediaserver.queue import batches, calls, rules
from mediaserver.queue.decisions import Rule
from mediaserver.queue.outbox import iso
from mediaserver.queue.records import CallRow, NewCall
from mediaserver.queue.requests import (
    SPACING_MINUTES,
    Action,
    BatchReceipt,
    BatchStatus,
    ItemRefused,
    ItemResult,
    NewBatch,
    Remembered,
    Repeatable,
)
from mediaserver.queue.rules import Facts

KEPT_MS = 24 * 3600 * 1000
"""How long the response to a repeatable request is remembered."""

DUPLICATE = "Duplicate phone number in this request"

_REMEMBER = """
INSERT INTO repeatable (company_id, request_key, body_sha256, call_id, answer, created_at_ms)
VALUES (:company_id, :request_key, :body_sha256, :call_id, :answer, {now})
"""


@dataclass(frozen=True, slots=True)
class _Planned:
    """A call and its planned outcome."""

    call: NewCall | None
    result: ItemResult


def enqueue(tx: Tx, call: NewCall, *, repeatable: Repeatable | None = None) -> CallRow:
    """Queues a call (PENDING) and writes `call.queued`. A number outside its calling window waits for the
    window.

    With `repeatable`, a request that was answered before gets the same call and queues nothing. Raises
    `RepeatedDifferently`, and `RuleBroken` for a call that a rule refuses."""
    rules.lock_company(tx, call.company_id)
    if repeatable is not None:
        known = remembered(tx, company_id=call.company_id, repeatable=repeatable)
        if known is not None and known.call is not None:
            return known.call
    result = dry_run_call(tx, call=call)
    if result.action is Action.FAILED:
        raise _broken(tx, result)
    row = calls.insert(tx, call=replace(call, not_before_ms=result.scheduled_for_ms))
    if repeatable is not None:
        _remember(tx, call.company_id, repeatable, call_id=row.id)
    return row


def _broken(tx: Tx, result: ItemResult) -> RuleBroken:
    rule = str(result.rule or "")
    if not result.scheduled_for_ms:
        return RuleBroken(result.reason, rule=rule)
    row = tx.row("SELECT {now} AS now_ms")
    now_ms = row["now_ms"] if row is not None else result.scheduled_for_ms
    wait_s = max(1, -(-(result.scheduled_for_ms - now_ms) // 1000))
    return CalledTooRecently(result.reason, rule=rule, retry_after_s=wait_s)


def dry_run_call(tx: Tx, call: NewCall) -> ItemResult:
    """Returns the outcome that a single call would have now; queues nothing."""
    return next(_plans(tx, [call], call.company_id, spaced=True)).result


def enqueue_batch(tx: Tx, batch: NewBatch, *, repeatable: Repeatable | None = None) -> BatchReceipt:
    """Queues the items that the rules accept, by the company's duplicate policy, all in one transaction.
    `repeatable` as for `enqueue`."""
    rules.lock_company(tx, batch.company_id)
    if repeatable is not None:
        known = remembered(tx, company_id=batch.company_id, repeatable=repeatable)
        if known is not None and known.batch is not None:
            return known.batch
    policy, plans = _planned(tx, batch)
    batch_id = _write(tx, batch, plans)
    items = tuple(_queued(tx, plan, batch_id) for plan in plans)
    receipt = BatchReceipt(batch_id=batch_id, webhook_id=batch.webhook_id, policy=policy, items=items)
    if repeatable is not None:
        _remember(tx, batch.company_id, repeatable, answer=_encoded(receipt))
    return receipt


def dry_run(tx: Tx, batch: NewBatch) -> BatchReceipt:
    """Returns the receipt that `enqueue_batch` would return now; queues nothing."""
    policy, plans = _planned(tx, batch)
    items = tuple(plan.result for plan in plans)
    return BatchReceipt(batch_id="", webhook_id=batch.webhook_id, policy=policy, items=items)


# Planning ---------------------------------------------------------------------------------------------------


def _planned(tx: Tx, batch: NewBatch) -> tuple[str, list[_Planned]]:
    row = tx.row("SELECT duplicate_policy FROM companies WHERE id = :id", id=batch.company_id)
    policy = row["duplicate_policy"] if row is not None else "DEDUPE"
    return policy, list(_plans(tx, batch.items, batch.company_id, spaced=policy == "SPACED"))


def _plans(
    tx: Tx, items: Sequence[NewCall | ItemRefused], company_id: str, *, spaced: bool
) -> Iterator[_Planned]:
    """Yields the outcome of each item, in order. `spaced`: a repeated number is queued for later, else it is
    dropped."""
    found: dict[tuple[str, str], Facts] = {}
    times: defaultdict[str, list[int]] = defaultdict(list)
    for item in items:
        if isinstance(item, ItemRefused):
            yield _Planned(None, ItemResult(Action.FAILED, item.reason))
            continue
        key = (item.trunk_id, item.agent_id)
        if key not in found:
            found[key] = rules.facts(
                tx, company_id=company_id, trunk_id=item.trunk_id, agent_id=item.agent_id
            )
        before = times[item.phone_number]
        if before and not spaced:
            yield _Planned(None, ItemResult(Action.DEDUPED, DUPLICATE))
            continue
        result = _plan(tx, found[key], item, before)
        if result.action is not Action.FAILED:
            before.append(result.scheduled_for_ms or found[key].now_ms)
        yield _Planned(item, result)


def _plan(tx: Tx, known: Facts, call: NewCall, before_ms: Sequence[int]) -> ItemResult:
    ruling = rules.forbidden(tx, known, call.phone_number)
    at_ms = max(known.now_ms, call.not_before_ms)
    if before_ms:
        at_ms = max(at_ms, before_ms[-1] + SPACING_MINUTES * 60_000)
    if ruling.rule is None:
        ruling = rules.open_at(known, call.phone_number, at_ms)
        at_ms = max(at_ms, ruling.until_ms)
    if ruling.refused:
        return ItemResult(Action.FAILED, ruling.reason, rule=ruling.rule)
    contact = rules.planned(tx, known, call.phone_number, at_ms=at_ms, also_ms=before_ms)
    if contact.rule is not None:
        return ItemResult(Action.FAILED, contact.reason, contact.until_ms, rule=contact.rule)
    if at_ms > known.now_ms:
        return ItemResult(Action.QUEUED_LATER, scheduled_for_ms=at_ms, rule=ruling.rule)
    return ItemResult(Action.QUEUED_NOW)


# Writing ----------------------------------------------------------------------------------------------------


def _write(tx: Tx, batch: NewBatch, plans: Sequence[_Planned]) -> str:
    """Inserts the batch's row; returns its id, "" where nothing is queued."""
    queued = [plan.result for plan in plans if plan.result.action in (Action.QUEUED_NOW, Action.QUEUED_LATER)]
    if not queued:
        return ""
    batch_id = str(uuid4())
    due_at_ms = min(result.scheduled_for_ms for result in queued)
    batches.insert(
        tx,
        id=batch_id,
        company_id=batch.company_id,
        agent_id=batch.agent_id,
        webhook_id=batch.webhook_id,
        status=BatchStatus.SCHEDULED if due_at_ms else BatchStatus.QUEUED,
        total=len(queued),
        due_at_ms=due_at_ms,
    )
    return batch_id


def _queued(tx: Tx, plan: _Planned, batch_id: str) -> ItemResult:
    result = plan.result
    if plan.call is None or result.action is Action.FAILED:
        return result
    data: dict[str, Any] = {"batchId": batch_id}
    if result.scheduled_for_ms:
        data["scheduledFor"] = iso(result.scheduled_for_ms)
    call = replace(plan.call, not_before_ms=result.scheduled_for_ms)
    row = calls.insert(tx, call=call, batch_id=batch_id, data=data)
    return replace(result, call_id=row.id)


# Requests that come again -----------------------------------------------------------------------------------


def remembered(tx: Tx, company_id: str, repeatable: Repeatable) -> Remembered | None:
    """Returns the response to an earlier request with this key, None for a new one. To be asked before the
    request is validated. Raises `RepeatedDifferently` where the body was another."""
    row = tx.row(
        "SELECT body_sha256, call_id, answer FROM repeatable"
        " WHERE company_id = :company_id AND request_key = :request_key AND created_at_ms > {now} - :kept_ms",
        company_id=company_id,
        request_key=repeatable.key,
        kept_ms=KEPT_MS,
    )
    if row is None:
        return None
    if row["body_sha256"] != repeatable.body_sha256:
        raise RepeatedDifferently("This Idempotency-Key was used for another request")
    if row["call_id"]:
        return Remembered(call=calls.call(tx, company_id=company_id, call_id=row["call_id"]))
    return Remembered(batch=_decoded(row["answer"]))


def _remember(
    tx: Tx, company_id: str, repeatable: Repeatable, *, call_id: str = "", answer: str = ""
) -> None:
    tx.run("DELETE FROM repeatable WHERE created_at_ms <= {now} - :kept_ms", kept_ms=KEPT_MS)
    tx.run(
        _REMEMBER,
        company_id=company_id,
        request_key=repeatable.key,
        body_sha256=repeatable.body_sha256,
        call_id=call_id,
        answer=answer,
    )


def _encoded(receipt: BatchReceipt) -> str:
    items = [
        [item.action, item.reason, item.scheduled_for_ms, item.call_id, item.rule] for item in receipt.items
    ]
    return json.dumps([receipt.batch_id, receipt.webhook_id, receipt.policy, items], ensure_ascii=False)


def _decoded(text: str) -> BatchReceipt:
    batch_id, webhook_id, policy, items = json.loads(text)
    results = tuple(
        ItemResult(Action(action), reason, scheduled_for_ms, call_id, Rule(rule) if rule else None)
        for action, reason, scheduled_for_ms, call_id, rule in items
    )
    return BatchReceipt(batch_id=batch_id, webhook_id=webhook_id, policy=policy, items=results)
