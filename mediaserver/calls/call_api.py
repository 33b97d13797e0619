"""The API's operations on calls: place, try, repeat, cancel, find, end.

Each raises the exceptions of `mediaserver.errors`; `mediaserver.calls.validation` checks requests before
these are queued."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from mediaserver.admin.access import Access
from mediaserver.admin.directory import Directory
from mediaserver.calls.detail_record import CallDetailRecord
from mediaserver.calls.live_events import LiveEvents
from mediaserver.calls.validation import (
    UNKNOWN_AGENT,
    CallRequest,
    checked_call,
    checked_item,
    outbound_agent,
    read_number,
    uuid_in,
)
from mediaserver.db.database import Page
from mediaserver.engine_pool.pool import Engines
from mediaserver.errors import Conflict, InvalidRequest, NotFound
from mediaserver.numbers.e164 import spellings
from mediaserver.queue.records import CallRecord, CallRow, Stopping
from mediaserver.queue.requests import BatchReceipt, Cancelled, ItemResult, NewBatch, Repeatable
from mediaserver.queue.search import CallFilter, ListedCall, plain
from mediaserver.store.store import Store

UNKNOWN_CALL = "Call not found"

_ENDING = re.compile(r"[0-9]{2,6}")
"""Fewer digits than a number has: how it ends."""

Answer = TypeVar("Answer", CallRow, BatchReceipt)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The result of a cancellation; `cancelled` None: no call to that number was queued."""

    phone_number: str
    cancelled: Cancelled | None


@dataclass(frozen=True, slots=True)
class Trial:
    """The result that placing a call would have; none was placed."""

    phone_number: str
    result: ItemResult


@dataclass(frozen=True, slots=True)
class StoredRecording:
    """A recording on the node that made it, and the URL at which other nodes reach that node ("": none)."""

    path: Path
    node_url: str


class Live(Protocol):
    """The calls in progress on this node."""

    @property
    def events(self) -> LiveEvents:
        """Where these calls tell what happens in them."""

    def find(self, call_id: str, /) -> CallDetailRecord | None:
        """Returns the record of the call of that id, None where this node does not have it."""

    def trace(self, call_id: str, /) -> list[dict[str, Any]]:
        """Returns the traces of the call's telephones that are not in the store yet."""

    async def hang_up(self, call_ids: Iterable[str], /) -> None:
        """Ends those calls of `call_ids` that this node has."""


class CallApi:
    """The API's operations on calls. `check` raises `Unavailable` while no calls are taken."""

    def __init__(
        self, directory: Directory, engines: Engines, store: Store, *, live: Live, check: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._engines = engines
        self._store = store
        self._live = live
        self._check = check

    async def place_call(
        self, access: Access, request: CallRequest, *, repeatable: Repeatable | None = None
    ) -> CallRow:
        """Queues a call. With `repeatable`, a repeated request gets the same call. Raises `InvalidRequest`,
        `NotFound`, `ScopeMissing`, `Unavailable`, and `Conflict` where the same key came with another
        body."""
        access.check_agent(request.agent_id)
        repeatable, company_id = _kept_under(access, repeatable), access.company_id
        if repeatable is not None:
            remembered = await self._store.remembered(company_id, repeatable)
            if remembered is not None:
                return _expected(remembered.call)
        self._check()
        new = checked_call(self._directory, self._engines, company_id, request)
        return await self._store.enqueue(new, repeatable=repeatable)

    async def try_call(self, access: Access, request: CallRequest) -> Trial:
        """Returns what `place_call` would do now; raises as `place_call` does."""
        access.check_agent(request.agent_id)
        self._check()
        new = checked_call(self._directory, self._engines, access.company_id, request)
        return Trial(new.phone_number, await self._store.dry_run_call(new))

    async def place_batch(
        self,
        access: Access,
        agent_id: str,
        requests: Sequence[CallRequest],
        *,
        repeatable: Repeatable | None = None,
    ) -> BatchReceipt:
        """Queues the calls that can be placed and returns the outcome of each. Raises as `place_call` does,
        for faults of the whole batch."""
        access.check_agent(agent_id)
        repeatable = _kept_under(access, repeatable)
        if repeatable is not None:
            remembered = await self._store.remembered(access.company_id, repeatable)
            if remembered is not None:
                return _expected(remembered.batch)
        batch = self._batch(access.company_id, agent_id, requests)
        return await self._store.enqueue_batch(batch, repeatable=repeatable)

    async def try_batch(self, access: Access, agent_id: str, requests: Sequence[CallRequest]) -> BatchReceipt:
        """Returns what `place_batch` would do now; raises as `place_batch` does."""
        access.check_agent(agent_id)
        return await self._store.dry_run(self._batch(access.company_id, agent_id, requests))

    def _batch(self, company_id: str, agent_id: str, requests: Sequence[CallRequest]) -> NewBatch:
        self._check()
        agent = outbound_agent(self._directory, self._engines, company_id, agent_id)
        webhook_id = str(uuid.uuid4())
        items = [
            checked_item(self._directory, self._engines, company_id, request, webhook_id=webhook_id)
            for request in requests
        ]
        return NewBatch(company_id=company_id, agent_id=agent.id, webhook_id=webhook_id, items=items)

    async def cancel(self, access: Access, phone_number: str, agent_id: str | None) -> Cancellation:
        """Cancels the queued calls to a number, in any spelling, of all agents or of `agent_id`. Raises
        `InvalidRequest`, `ScopeMissing`, and `NotFound` for an unknown agent or another company's."""
        company_id, agents = access.company_id, access.agents
        if agent_id is not None:
            access.check_agent(agent_id)
        number = read_number(phone_number, self._directory.company(company_id))
        if agent_id is not None:
            agent = access.companys_thing(self._directory.agent(uuid_in(agent_id)), UNKNOWN_AGENT)
            agents = frozenset({agent.id})
        cancelled = await self._store.cancel_pending(company_id, number, agents=agents)
        if cancelled is not None:
            await self._live.hang_up([cancelled.call.id, *cancelled.others])
        return Cancellation(number, cancelled)

    async def call(self, access: Access, call_id: str) -> CallRecord:
        """Returns the record of a call; of a live one with transcript and turns so far. Raises `NotFound`."""
        record = access.agents_thing(await self._store.call(access.company_id, call_id), UNKNOWN_CALL)
        live = self._live.find(call_id)
        if live is None or record.status.final:
            return record
        return replace(record, transcript=tuple(live.transcript), turns=tuple(live.turns))

    async def trace(self, access: Access, call_id: str) -> list[dict[str, Any]]:
        """Returns the signalling and the media statistics of a call, one document for each telephone, as
        `mediaserver.calls.signalling.traces` writes them. Raises `NotFound`."""
        await self.call(access, call_id)
        legs = {each["sip_call_id"]: each for each in await self._store.traces(call_id)}
        legs |= {each["sip_call_id"]: each for each in self._live.trace(call_id)}
        return sorted(legs.values(), key=lambda leg: [each["at_us"] for each in leg["messages"][:1]])

    def numbers(self, access: Access, number: str) -> tuple[tuple[str, ...], str]:
        """Returns the spellings of a whole number, or the digits with which one ends; neither for "". Raises
        `InvalidRequest`."""
        if not number:
            return (), ""
        company = self._directory.company(access.company_id)
        if _ENDING.fullmatch(number):
            return (), number
        found = read_number(number, company)
        return spellings(found, company.country if company is not None else None), ""

    async def calls(self, access: Access, wanted: CallFilter, *, cursor: str, limit: int) -> Page[ListedCall]:
        """Returns a page of the calls that are `wanted`, newest first. Raises `InvalidRequest`."""
        for name, text in (("name", wanted.name), ("words", wanted.words)):
            if text and not plain(text):
                raise InvalidRequest(f"{name}: must have a letter or a digit")
        return await self._store.calls(
            access.company_id, wanted=wanted, cursor=cursor, limit=limit, agents=access.agents
        )

    @property
    def live_events(self) -> LiveEvents:
        """What happens in the calls in progress on this node."""
        return self._live.events

    async def hang_up(self, access: Access, call_id: str) -> Stopping:
        """Ends a call in any state. Raises `NotFound`."""
        await self.call(access, call_id)
        stopping = await self._store.request_hangup(access.company_id, call_id)
        if stopping is None:
            raise NotFound(UNKNOWN_CALL)
        if stopping is not Stopping.ENDED:
            await self._live.hang_up([call_id])
        return stopping

    async def recording(self, access: Access, call_id: str) -> StoredRecording:
        """Returns where a call's recording is stored. Raises `NotFound`."""
        record = await self.call(access, call_id)
        if not record.recording_path:
            raise NotFound("This call has no recording")
        return StoredRecording(Path(record.recording_path), record.recording_node)


def _expected(answer: Answer | None) -> Answer:
    if answer is None:
        raise Conflict("This Idempotency-Key was used for another request")
    return answer


def _kept_under(access: Access, repeatable: Repeatable | None) -> Repeatable | None:
    return replace(repeatable, key=access.namespaced(repeatable.key)) if repeatable is not None else None
