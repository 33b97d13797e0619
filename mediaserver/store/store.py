"""Everything that the server remembers, as asynchronous verbs.

Each verb is one transaction. It runs on the database's own thread, so nothing on the media path may await
one: a live call hands its news to a task that does. All raise `StoreError`; `StoreUnavailable` where the same
verb may succeed later. The work itself is in plain functions on a transaction: `ledger`, `outbox`,
`store_calls`, `store_config`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mediaserver.db.database import Db, open_database
from mediaserver.queue import (
    calls as store_calls,
)
from mediaserver.queue import (
    deliveries,
    ledger,
    outbox,
    web_calls,
)
from mediaserver.queue import (
    finish as endings,
)
from mediaserver.queue.deliveries import DeliveryFilter, DeliveryPage, DeliveryReport
from mediaserver.queue.records import (
    CallPage,
    CallRecord,
    CallStatus,
    Claim,
    Delivery,
    KeyRow,
    NewInboundCall,
    NewWebCall,
    NewWebRoom,
    Outcome,
    Reaped,
    Renewal,
    StoreCounts,
)
from mediaserver.settings import Settings
from mediaserver.store import config, managed, transcriptions
from mediaserver.store.history import History
from mediaserver.store.managed import KeyInfo, KeyPage, Kind, NewKey, Snapshot
from mediaserver.store.queue_store import Queue
from mediaserver.store.transcriptions import FinishedJob


class Managed:
    """Part of `Store`."""

    _db: Db

    async def revision(self) -> int:
        """Goes up with every change of what is managed over the API, by whichever node."""
        return await self._db.read(managed.revision)

    async def managed(self) -> Snapshot:
        """Everything that is managed over the API."""
        return await self._db.read(managed.snapshot)

    async def put(self, kind: Kind, row: Mapping[str, Any], document: str, *, new: bool) -> None:
        """Writes one thing: `row` are its table's columns, `document` all of it, sealed. Raises `Conflict`
        where the file manages it, or `new` and there is one of that id."""
        await self._db.write(partial(managed.put, kind=kind, row=row, document=document, new=new))

    async def remove(self, kind: Kind, thing_id: str) -> bool:
        """Takes one thing away; False: there was none. Raises `Conflict` where the file manages it."""
        return await self._db.write(partial(managed.remove, kind=kind, thing_id=thing_id))

    async def keys(self, company_id: str, *, cursor: str = "", limit: int = 50) -> KeyPage:
        """The company's API keys, by id."""
        return await self._db.read(partial(managed.keys, company_id=company_id, cursor=cursor, limit=limit))

    async def key(self, company_id: str, key_id: str) -> KeyInfo | None:
        """A key of this company, None if there is none."""
        return await self._db.read(partial(managed.key, company_id=company_id, key_id=key_id))

    async def make_key(self, company_id: str, new: NewKey) -> tuple[KeyInfo, str]:
        """A new API key and what it says, which cannot be shown again. Raises `Conflict` where there are too
        many."""
        return await self._db.write(partial(managed.make_key, company_id=company_id, new=new))

    async def rotate_key(
        self, company_id: str, key_id: str, *, overlap_ms: int
    ) -> tuple[KeyInfo, str] | None:
        """A new key like `key_id`, which itself expires after `overlap_ms`. None: no such key. Raises
        `Conflict` where the file manages it."""
        return await self._db.write(
            partial(managed.rotate_key, company_id=company_id, key_id=key_id, overlap_ms=overlap_ms)
        )

    async def revoke_key(self, company_id: str, key_id: str) -> bool:
        """Ends a key now; False: there was none. Raises `Conflict` where the file manages it."""
        return await self._db.write(partial(managed.revoke_key, company_id=company_id, key_id=key_id))

    async def keys_used(self, key_ids: Iterable[str]) -> None:
        """Notes that these keys were used just now."""
        await self._db.write(partial(managed.keys_used, key_ids=tuple(key_ids)))

    async def open_room(self, room: NewWebRoom) -> None:
        """Writes down a browser session that somebody may join, and forgets those long over."""
        await self._db.write(partial(managed.open_room, room=room))


class Store(Queue, Managed, History):
    """The server's memory. Open it with `Store.open`; safe for any number of concurrent tasks of one loop.

    `outbox_filled` is set when an event was written and `queue_filled` when a call was put in the queue by
    this process: hints that save their readers the wait for the next poll.
    """

    def __init__(self, db: Db) -> None:
        self._db = db
        self.outbox_filled = asyncio.Event()
        self.queue_filled = asyncio.Event()

    @classmethod
    async def open(cls, url: str, data_dir: Path) -> Self:
        """Opens (and creates, and migrates) the database at `url`, "" for one in `data_dir`."""
        return cls(await open_database(url, data_dir))

    async def close(self) -> None:
        """Finishes what is under way and closes the database; later verbs raise `StoreUnavailable`."""
        await self._db.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Configuration ------------------------------------------------------------------------------------------

    async def sync_file(self, settings: Settings) -> None:
        """Writes the file's companies, keys, trunks, agents and webhooks, marked as managed by the file, and
        disables (keys: deletes) those that came from an earlier file and are not in this one. No secret of
        the file is written, keys only as SHA-256."""
        await self._db.write(partial(config.sync_file, settings=settings))

    async def find_key(self, key: str) -> KeyRow | None:
        """The API key `key`, None if there is none."""
        return await self._db.read(partial(config.find_key, key=key))

    async def create_key(self, company_id: str, scopes: Iterable[str]) -> str:
        """A new API key, which cannot be shown again. Raises `LocalError` for an unknown company or scope."""
        return await self._db.write(
            partial(config.create_key, company_id=company_id, scopes=frozenset(scopes))
        )

    # Calls --------------------------------------------------------------------------------------------------

    async def call(self, company_id: str, call_id: str) -> CallRecord | None:
        """A call of this company with all that is known about it, None if there is none."""
        return await self._db.read(partial(store_calls.call, company_id=company_id, call_id=call_id))

    async def calls(
        self,
        company_id: str,
        *,
        status: CallStatus | None = None,
        cursor: str = "",
        limit: int = 50,
        agents: frozenset[str] = frozenset(),
    ) -> CallPage:
        """The company's calls, newest first, of some `agents` or (none named) of all. Raises `LocalError` for
        a cursor that is not ours."""
        work = partial(store_calls.calls, company_id=company_id, status=status, cursor=cursor, limit=limit)
        return await self._db.read(partial(work, agents=agents))

    async def fill_variables(self, claim: Claim) -> bool:
        """Writes the variables that the claim has now. False: the call is not this claim's any more."""
        return await self._db.write(partial(store_calls.fill_variables, claim=claim))

    async def event(self, call_id: str, kind: str, data: Mapping[str, Any], *, event_id: str = "") -> None:
        """Writes an event of a call (`turn.completed`, ...); one with an `event_id` that is there already is
        not written again. Raises `LocalError` for an unknown call."""
        await self._db.write(
            partial(
                outbox.write_once,
                event_id=event_id or outbox.new_event_id(),
                call_id=call_id,
                kind=kind,
                data=data,
            )
        )
        self._filled()

    async def counts(self) -> StoreCounts:
        """How much of everything there is, for metrics."""
        return await self._db.read(store_calls.counts)

    # Speech -------------------------------------------------------------------------------------------------

    async def transcription(self, company_id: str, job_id: str) -> FinishedJob | None:
        """What a job of the last day came to, None for an unknown one."""
        return await self._db.read(partial(transcriptions.find_job, company_id=company_id, job_id=job_id))

    async def keep_transcription(self, company_id: str, job_id: str, job: FinishedJob) -> None:
        """Keeps what a job came to, for a day; one that is known stays as it was."""
        await self._db.write(partial(transcriptions.keep_job, company_id=company_id, job_id=job_id, job=job))

    # Ledger -------------------------------------------------------------------------------------------------

    async def claim(self, node: str, limit: int, ttl_ms: int) -> list[Claim]:
        """Takes up to `limit` calls that are due, fairly between companies and within their concurrency.
        Raises `HistoryChanged` while the database may have forgotten what nodes did.

        `node` names one run of one process (a restarted process is another node). The lease ends after
        `ttl_ms` unless renewed.
        """
        return await self._db.write(partial(ledger.claim, node=node, limit=limit, ttl_ms=ttl_ms))

    async def arm(self, claim: Claim, ttl_ms: int, *, sip_call_id: str = "") -> bool:
        """Commits the attempt: only after True may the INVITE leave. The call is then DIALING (`call.dialing`
        is written). False: leave it alone; it was cancelled, lost to another node, or a rule stands against
        it (then it has ended, or is back in the queue for later, and the call tells why). Where this raises,
        nobody knows whether it was committed: `release` the claim, and do not dial."""
        armed = await self._db.write(partial(ledger.arm, claim=claim, ttl_ms=ttl_ms, sip_call_id=sip_call_id))
        self._filled()
        return armed

    async def progress(self, claim: Claim, status: CallStatus, at_ms: int) -> bool:
        """DIALING, RINGING or ANSWERED at `at_ms`, with its event. A state that the call has already reached
        or passed changes nothing. False: the call is not this claim's any more."""
        held = await self._db.write(partial(ledger.progress, claim=claim, status=status, at_ms=at_ms))
        self._filled()
        return held

    async def finish(self, claim: Claim, outcome: Outcome) -> bool:
        """Ends an armed call, or one that failed before it was armed, with its events. False: the call is not
        this claim's any more, and nothing was written."""
        finished = await self._db.write(partial(endings.finish, claim=claim, outcome=outcome))
        self._filled()
        return finished

    async def held(self, node: str) -> list[str]:
        """The calls that are claimed by `node`, or live on it, as far as the database knows."""
        return await self._db.read(partial(ledger.held, node=node))

    async def renew(self, node: str, ttl_ms: int, *, unheld: frozenset[str] = frozenset()) -> list[Renewal]:
        """Extends the leases of `node`, but for those `unheld`: claims of which it never heard, because the
        database's answer was lost. They run out."""
        return await self._db.write(partial(ledger.renew, node=node, ttl_ms=ttl_ms, unheld=unheld))

    async def pending_hangups(self, node: str) -> list[str]:
        """The live calls of `node` whose end somebody asked for."""
        return await self._db.read(partial(ledger.pending_hangups, node=node))

    async def reap_expired(self) -> Reaped:
        """Deals with expired leases: never armed, back to the queue; armed, UNKNOWN for ever. Renew first."""
        reaped = await self._db.write(ledger.reap_expired)
        self._filled(queue=bool(reaped.requeued))
        return reaped

    async def release(self, claim: Claim, *, pause_ms: int = 0) -> bool:
        """Gives a claim back to the queue that was *not dialled*: not armed (a node that drains, or lacks
        what it takes), or armed without an INVITE having left. Nobody takes an unarmed one within
        `pause_ms`. False: it is not this claim's any more."""
        released = await self._db.write(partial(ledger.release, claim=claim, pause_ms=pause_ms))
        self._filled(queue=True)
        return released

    async def record_inbound(
        self, call: NewInboundCall, *, node: str, ttl_ms: int, is_up: bool = False
    ) -> Claim:
        """Writes a call that rings here, RINGING and held by `node`; go on with `progress` and `finish`.
        Again: nothing. `is_up`: the call was taken while the database was away, and is written whatever the
        limits say. Raises `RuleBroken` where its company or its trunk is at the limit of concurrent calls."""
        work = partial(ledger.record_inbound, call=call, node=node, ttl_ms=ttl_ms, is_up=is_up)
        claim = await self._db.write(work)
        self._filled()
        return claim

    async def record_web_call(self, call: NewWebCall, *, node: str, ttl_ms: int) -> Claim:
        """Writes a browser session that began here, ANSWERED and held by `node`; go on with `finish`. It
        takes the place that was held for it, if one was. Raises `RuleBroken` where its company is full."""
        claim = await self._db.write(partial(web_calls.record, call=call, node=node, ttl_ms=ttl_ms))
        self._filled()
        return claim

    # Outbox -------------------------------------------------------------------------------------------------

    async def take_deliveries(self, room: Mapping[str, int], *, lease_ms: int) -> Sequence[Delivery]:
        """Deliveries that are due, at most `room[subscription]` for each; of one call only the oldest that is
        not done. Those not settled within `lease_ms` are due again."""
        return await self._db.write(partial(outbox.take, room=dict(room), lease_ms=lease_ms))

    async def settle_delivery(self, delivery: Delivery, result: outbox.Result) -> None:
        """Writes down how a delivery went: done, to be tried again, or given up."""
        await self._db.write(partial(outbox.settle, delivery=delivery, result=result))

    async def deliveries(
        self, company_id: str, *, wanted: DeliveryFilter, cursor: str = "", limit: int = 50
    ) -> DeliveryPage:
        """The company's deliveries, newest first. Raises `LocalError` for a cursor that is not ours."""
        return await self._db.read(
            partial(deliveries.find, company_id=company_id, wanted=wanted, cursor=cursor, limit=limit)
        )

    async def delivery(self, company_id: str, delivery_id: int) -> DeliveryReport | None:
        """A delivery of this company with its log, None if there is none."""
        return await self._db.read(partial(deliveries.get, company_id=company_id, delivery_id=delivery_id))

    async def replay_deliveries(self, company_id: str, wanted: DeliveryFilter) -> int:
        """Sends settled deliveries again, with a whole day of attempts each, and returns how many (at most
        `deliveries.REPLAY_LIMIT`, oldest first)."""
        count = await self._db.write(partial(deliveries.replay, company_id=company_id, wanted=wanted))
        self._filled()
        return count

    async def subscriptions(self) -> Sequence[str]:
        """The ids of all enabled webhook subscriptions."""
        return await self._db.read(outbox.subscriptions)
