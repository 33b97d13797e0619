"""Everything that the server remembers: the functions of `mediaserver.queue` and of this room as asynchronous
verbs.

Each verb runs its function in one transaction, takes the arguments of that function without the transaction,
and is described there. It runs on the database's own thread: nothing on the media path may await a verb (a
live call hands its news to a task that does), and an argument must not change until the verb has returned.
Every verb raises `StoreError`; `StoreUnavailable` where the same verb may succeed later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from mediaserver.db.database import Db, Tx, open_database
from mediaserver.queue import batches as batch_rows
from mediaserver.queue import calls as call_rows
from mediaserver.queue import cancel, extra_legs, history, ledger, outbox, search, web_calls
from mediaserver.queue import deliveries as delivery_rows
from mediaserver.queue import do_not_call as do_not_call_rows
from mediaserver.queue import enqueue as queueing
from mediaserver.queue import finish as endings
from mediaserver.queue import traces as trace_rows
from mediaserver.queue.personal_data import audit as audit_rows
from mediaserver.queue.personal_data import erasure, retention
from mediaserver.queue.personal_data import holds as hold_rows
from mediaserver.store import config, transcriptions
from mediaserver.store import managed as managed_rows

P = ParamSpec("P")
T = TypeVar("T")

Verb = Callable[Concatenate["Store", P], Coroutine[Any, Any, T]]

DOUBTED_AT_ONCE = 500
"""Calls that one transaction of `Store.doubt` ends."""


def _read(work: Callable[Concatenate[Tx, P], T]) -> Verb[P, T]:
    """A verb that runs `work`, which only reads."""

    @wraps(work)
    async def verb(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store.db.read(lambda tx: work(tx, *args, **kwargs))

    return verb


def _write(work: Callable[Concatenate[Tx, P], T]) -> Verb[P, T]:
    """A verb that runs `work`, which writes no event."""

    @wraps(work)
    async def verb(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await store.db.write(lambda tx: work(tx, *args, **kwargs))

    return verb


def _tell(
    work: Callable[Concatenate[Tx, P], T], *, queues: Callable[[T], bool] = lambda result: False
) -> Verb[P, T]:
    """A verb that runs `work`, which may write events; `queues` tells by its result whether calls have come
    into the queue, or what kept them waiting there is gone."""
    write = _write(work)

    @wraps(work)
    async def verb(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result = await write(store, *args, **kwargs)
        store.outbox_filled.set()
        if queues(result):
            store.queue_filled.set()
        return result

    return verb


def _queue(work: Callable[Concatenate[Tx, P], T]) -> Verb[P, T]:
    """A verb that runs `work`, which may write events, and put calls in the queue or let them out of it."""
    return _tell(work, queues=lambda result: True)


class Store:
    """The server's memory. Open it with `Store.open`; safe for any number of concurrent tasks of one loop.

    `outbox_filled` is set when an event was written and `queue_filled` when a call was put in the queue by
    this process: hints that save their readers the wait for the next poll.
    """

    def __init__(self, db: Db) -> None:
        self.db = db
        self.outbox_filled = asyncio.Event()
        self.queue_filled = asyncio.Event()

    @classmethod
    async def open(cls, url: str, data_dir: Path) -> Self:
        """Opens (and creates, and migrates) the database at `url`, "" for one in `data_dir`."""
        return cls(await open_database(url, data_dir))

    async def close(self) -> None:
        """Finishes what is under way and closes the database; later verbs raise `StoreUnavailable`."""
        await self.db.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Configuration
    sync_file = _write(config.sync_file)
    find_key = _read(config.find_key)
    find_key_by_id = _read(config.find_key_by_id)
    create_key = _write(config.create_key)

    # What is managed over the API
    revision = _read(managed_rows.revision)
    managed = _read(managed_rows.snapshot)
    put = _write(managed_rows.put)
    remove = _write(managed_rows.remove)
    keys = _read(managed_rows.keys)
    key = _read(managed_rows.key)
    make_key = _write(managed_rows.make_key)
    rotate_key = _write(managed_rows.rotate_key)
    revoke_key = _write(managed_rows.revoke_key)
    every_key = _read(managed_rows.every_key)
    revoke_any_key = _write(managed_rows.revoke_any_key)
    keys_used = _write(managed_rows.keys_used)
    open_room = _write(managed_rows.open_room)

    # Calls
    call = _read(call_rows.call)
    calls = _read(search.calls)
    fill_variables = _write(call_rows.fill_variables)
    event = _tell(outbox.write_once)
    counts = _read(call_rows.counts)
    keep_trace = _write(trace_rows.keep)
    traces = _read(trace_rows.find)

    # The queue
    enqueue = _queue(queueing.enqueue)
    enqueue_batch = _queue(queueing.enqueue_batch)
    dry_run = _read(queueing.dry_run)
    dry_run_call = _read(queueing.dry_run_call)
    remembered = _read(queueing.remembered)
    request_hangup = _tell(cancel.request_hangup)
    cancel_pending = _tell(cancel.cancel_pending)
    batch = _read(batch_rows.get)
    batches = _read(batch_rows.find)
    pause_batch = _write(cancel.pause_batch)
    resume_batch = _queue(cancel.resume_batch)
    cancel_batch = _tell(cancel.cancel_batch)

    # Who is never called
    do_not_call = _read(do_not_call_rows.find)
    add_do_not_call = _write(do_not_call_rows.add)
    opt_out = _write(do_not_call_rows.opt_out)
    remove_do_not_call = _write(do_not_call_rows.remove)
    may_not_call = _read(do_not_call_rows.listed)

    # The ledger: who holds which call
    claim = _write(ledger.claim)
    arm = _tell(ledger.arm)
    progress = _tell(ledger.progress)
    reroute = _write(ledger.reroute)
    finish = _tell(endings.finish)
    held = _read(ledger.held)
    renew = _write(ledger.renew)
    pending_hangups = _read(ledger.pending_hangups)
    release = _queue(ledger.release)
    record_inbound = _tell(ledger.record_inbound)
    record_web_call = _tell(web_calls.record)
    reap_expired = _tell(ledger.reap_expired, queues=lambda reaped: bool(reaped.requeued))

    # Telephones beside the one that a call began with
    take_leg = _write(extra_legs.take)
    reroute_leg = _write(extra_legs.reroute)
    hold_place = _write(extra_legs.hold)
    vacancy = _read(extra_legs.vacancy)
    leave_leg = _tell(extra_legs.leave, queues=bool)

    # Webhooks
    take_deliveries = _write(outbox.take)
    settle_delivery = _write(outbox.settle)
    deliveries = _read(delivery_rows.find)
    delivery = _read(delivery_rows.get)
    replay_deliveries = _tell(delivery_rows.replay)
    subscriptions = _read(outbox.subscriptions)

    # Speech
    transcription = _read(transcriptions.find_job)
    keep_transcription = _write(transcriptions.keep_job)

    # What is kept, erased, held, and who did what
    erase = _tell(erasure.erase)
    erase_ended = _write(erasure.erase_ended)
    erasures = _read(erasure.find)
    about = _write(erasure.about)
    events_of = _read(outbox.events_of)
    put_hold = _write(hold_rows.put)
    lift_hold = _write(hold_rows.lift)
    held_data = _read(hold_rows.find)
    sweep = _write(retention.sweep)
    removals = _read(retention.removals)
    removed = _write(retention.removed)
    waiting = _read(retention.waiting)
    note_audit = _write(audit_rows.add)
    audit = _read(audit_rows.find)

    # What a database has forgotten
    standing = _read(history.standing)
    holds = _read(history.holds)
    forgotten = _read(history.forgotten)
    recall = _write(history.recall)
    join = _write(history.join)
    look = _write(history.look)
    leave = _write(history.leave)

    async def doubt(self) -> int:
        """Ends every call UNKNOWN that may have been dialled since a copy of the database was made, takes all
        nodes off the list, and returns how many calls there were."""
        total = 0
        while ended := await self.db.write(lambda tx: history.doubt(tx, limit=DOUBTED_AT_ONCE)):
            total += ended
        return total
