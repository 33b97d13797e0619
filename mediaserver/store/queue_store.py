"""The queue's verbs of `mediaserver.store.store.Store`: calls in, batches, cancellations, who is never
called."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from mediaserver.db.database import Db
from mediaserver.queue import batches, cancel, do_not_call, extra_legs
from mediaserver.queue import enqueue as enqueueing
from mediaserver.queue.decisions import Verdict
from mediaserver.queue.extra_legs import NewLeg
from mediaserver.queue.records import CallRow, NewCall, Stopping
from mediaserver.queue.requests import (
    BatchPage,
    BatchReceipt,
    BatchRow,
    BatchStatus,
    Cancelled,
    DoNotCallPage,
    ItemResult,
    NewBatch,
    Remembered,
    Repeatable,
)


class Queue:
    """Part of `Store`."""

    _db: Db
    outbox_filled: asyncio.Event
    queue_filled: asyncio.Event

    async def enqueue(self, call: NewCall, *, repeatable: Repeatable | None = None) -> CallRow:
        """Writes a call to be made (PENDING) and its `call.queued` event. A number outside its calling window
        waits for it.

        With `repeatable`, a request that was answered before gets the same call and queues nothing. Raises
        `RepeatedDifferently`, and `RuleBroken` for a call that no rule will ever let out.
        """
        row = await self._db.write(partial(enqueueing.enqueue, call=call, repeatable=repeatable))
        self._filled(queue=True)
        return row

    async def enqueue_batch(self, batch: NewBatch, *, repeatable: Repeatable | None = None) -> BatchReceipt:
        """Queues the items that the rules let through, under the company's duplicate policy, all or (where
        the database fails) none. `repeatable` as for `enqueue`."""
        receipt = await self._db.write(partial(enqueueing.enqueue_batch, batch=batch, repeatable=repeatable))
        self._filled(queue=True)
        return receipt

    async def dry_run(self, batch: NewBatch) -> BatchReceipt:
        """What `enqueue_batch` would answer now; queues nothing."""
        return await self._db.read(partial(enqueueing.dry_run, batch=batch))

    async def dry_run_call(self, call: NewCall) -> ItemResult:
        """What would become of a single call now; queues nothing."""
        return await self._db.read(partial(enqueueing.dry_run_call, call=call))

    async def remembered(self, company_id: str, repeatable: Repeatable) -> Remembered | None:
        """The answer to an earlier request with this key, None if there was none. To be asked before the
        request is checked at all. Raises `RepeatedDifferently` where the body was another."""
        return await self._db.read(
            partial(enqueueing.remembered, company_id=company_id, repeatable=repeatable)
        )

    # Batches, and taking calls back -------------------------------------------------------------------------

    async def request_hangup(self, company_id: str, call_id: str) -> Stopping | None:
        """Ends a call: one not yet armed is CANCELLED and no INVITE will leave; for a live one the wish is
        noted (`wishes` tells its owner) and the caller must hang up if it owns the call. None: no such
        call."""
        stopping = await self._db.write(
            partial(cancel.request_hangup, company_id=company_id, call_id=call_id)
        )
        self._filled()
        return stopping

    async def cancel_pending(
        self, company_id: str, phone_number: str, *, agents: frozenset[str] = frozenset()
    ) -> Cancelled | None:
        """Cancels every PENDING call of the company (of `agents`, where some are named) to `phone_number`
        (E.164): once this has returned, no INVITE leaves for any of them. None: there was none."""
        cancelled = await self._db.write(
            partial(
                cancel.cancel_pending,
                company_id=company_id,
                phone_number=phone_number,
                agents=agents,
            )
        )
        self._filled()
        return cancelled

    async def batch(self, company_id: str, batch_id: str) -> BatchRow | None:
        """A batch of this company, None if there is none."""
        return await self._db.read(partial(batches.get, company_id=company_id, batch_id=batch_id))

    async def batches(
        self,
        company_id: str,
        *,
        status: BatchStatus | None = None,
        cursor: str = "",
        limit: int = 50,
        agents: frozenset[str] = frozenset(),
    ) -> BatchPage:
        """The company's batches, newest first, of some `agents` or (none named) of all. Raises `LocalError`
        for a cursor that is not ours."""
        work = partial(batches.find, company_id=company_id, status=status, cursor=cursor, limit=limit)
        return await self._db.read(partial(work, agents=agents))

    async def pause_batch(self, company_id: str, batch_id: str) -> BatchRow | None:
        """Holds back what is not dialled yet; calls in progress go on. A batch that is over, or paused, stays
        as it is. None: no such batch."""
        return await self._db.write(partial(cancel.pause_batch, company_id=company_id, batch_id=batch_id))

    async def resume_batch(self, company_id: str, batch_id: str) -> BatchRow | None:
        """Lets a paused batch go on; another stays as it is. None: no such batch."""
        row = await self._db.write(partial(cancel.resume_batch, company_id=company_id, batch_id=batch_id))
        self._filled(queue=True)
        return row

    async def cancel_batch(self, company_id: str, batch_id: str) -> BatchRow | None:
        """Cancels what is not dialled yet; calls in progress go on. A batch that is over stays as it is.
        None: no such batch."""
        row = await self._db.write(partial(cancel.cancel_batch, company_id=company_id, batch_id=batch_id))
        self._filled()
        return row

    # Do not call --------------------------------------------------------------------------------------------

    async def add_do_not_call(self, company_id: str, numbers: Sequence[str], *, reason: str = "") -> int:
        """Puts E.164 numbers on the company's list; those on it stay. Calls in the queue end FAILED when
        their turn comes. Returns how many were new."""
        return await self._db.write(
            partial(do_not_call.add, company_id=company_id, numbers=tuple(numbers), reason=reason)
        )

    async def bar(self, company_id: str, phone_number: str, *, reason: str = "") -> bool:
        """Puts a number on the company's list as a trunk gave it; False: it is none, or was there already."""
        return await self._db.write(
            partial(do_not_call.bar, company_id=company_id, phone_number=phone_number, reason=reason)
        )

    async def remove_do_not_call(self, company_id: str, phone_number: str) -> bool:
        """Takes a number off the list; False: it was not on it."""
        return await self._db.write(
            partial(do_not_call.remove, company_id=company_id, phone_number=phone_number)
        )

    async def may_not_call(self, company_id: str, phone_number: str) -> bool:
        """Whether a number is on the company's list."""
        return await self._db.read(
            partial(do_not_call.listed, company_id=company_id, phone_number=phone_number)
        )

    # Telephones beside the one that a call began with -------------------------------------------------------

    async def take_leg(self, leg: NewLeg) -> Verdict:
        """A place for a telephone among its company's and its trunk's calls, as long as the call lasts;
        `leave_leg` gives it back. A verdict with a rule: there is none, or the number may not be called."""
        return await self._db.write(partial(extra_legs.take, leg=leg))

    async def leave_leg(self, leg_id: str) -> bool:
        """The telephone is gone. Again: False."""
        left = await self._db.write(partial(extra_legs.leave, leg_id=leg_id))
        self._filled(queue=left)
        return left

    async def hold_place(self, company_id: str, room: str) -> Verdict:
        """Holds a place among its company's calls for a web call that is about to begin in `room`, until it
        is written, `leave_leg` gives the place back, or two minutes are over. Again for the same room: the
        same place. A verdict with a rule: there is none."""
        return await self._db.write(partial(extra_legs.hold, company_id=company_id, room=room))

    async def vacancy(self, company_id: str) -> Verdict:
        """Whether the company is below its limit of concurrent calls at this moment."""
        return await self._db.read(partial(extra_legs.vacancy, company_id=company_id))

    async def do_not_call(self, company_id: str, *, cursor: str = "", limit: int = 50) -> DoNotCallPage:
        """The company's list, by number."""
        return await self._db.read(
            partial(do_not_call.find, company_id=company_id, cursor=cursor, limit=limit)
        )

    def _filled(self, *, queue: bool = False) -> None:
        self.outbox_filled.set()
        if queue:
            self.queue_filled.set()
