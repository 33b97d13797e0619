"""Claims calls from the ledger: as many as this node has room for, one task each.

`queued → claimed → armed → finished` is the ledger's (`mediaserver.queue.ledger`). This loop asks for claims
when there is room, renews the leases of its calls, and runs the reaper. It is woken when this process queues
a call, and otherwise looks once a second, which is how it finds what other nodes queued."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from mediaserver.errors import StoreError
from mediaserver.queue.cancel import COMPANY_REMOVED
from mediaserver.queue.history import HistoryChanged
from mediaserver.queue.ledger import NODE_LOST
from mediaserver.queue.records import Claim, Reaped, Renewal

log = logging.getLogger(__name__)

POLL_S = 1.0
"""The longest that a call queued by another node waits before this node looks."""

LEASE_MS = 30_000
"""The life of a claim that is not renewed: after it, other nodes take the calls that a dead node had not
dialled."""

BATCH = 16
"""Claims per query: few, so that several nodes share a burst."""


class Ledger(Protocol):
    """The methods of `mediaserver.store.store.Store` that dispatch uses."""

    async def claim(self, node: str, limit: int, ttl_ms: int) -> list[Claim]:
        """Claims up to `limit` queued calls for `node`."""

    async def held(self, node: str) -> list[str]:
        """Returns the calls that `node` holds according to the database."""

    async def renew(self, node: str, ttl_ms: int, *, unheld: frozenset[str]) -> list[Renewal]:
        """Extends the leases of every call that `node` holds, except those in `unheld`."""

    async def pending_hangups(self, node: str) -> list[str]:
        """Returns the live calls of `node` that a client has asked to end."""

    async def reap_expired(self) -> Reaped:
        """Ends or requeues calls whose lease has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """This node's own calls, as the loop uses them.

    `room`: how many more the node takes; `start`: begins one and returns at once; `hang_up`: ends calls whose
    end was requested elsewhere; `holds`: whether a call is on this node. An answer of the database may be
    lost, and a claim that no process received must not live for ever."""

    room: Callable[[], int]
    start: Callable[[Claim], None]
    holds: Callable[[str], bool]
    hang_up: Callable[[Iterable[str]], Awaitable[None]]


async def _nothing() -> None:
    """Does nothing, for a node without notes of its own."""


class Dispatch:
    """Claims calls while there is room and starts each.

    `observe` runs after each renewal. `wake` is set when a call is queued or a place becomes free. `compare`
    writes to the database what it lacks, at the start and whenever it may lack something. `waits_for` says
    why no calls are claimed, "" while they are."""

    def __init__(
        self,
        ledger: Ledger,
        node: str,
        *,
        calls: Calls,
        observe: Callable[[], Awaitable[None]],
        wake: asyncio.Event,
        lease_ms: int,
        compare: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self._ledger = ledger
        self._node = node
        self._calls = calls
        self._observe = observe
        self._wake = wake
        self._lease_ms = lease_ms
        self.database_missing = ""
        self.waits_for = ""
        self._compare = compare
        self._compared = False
        self._trusts_leases_at = 0.0

    def missing(self) -> list[str]:
        """Returns what keeps this node from dialling, one line each."""
        said = {"database": self.database_missing, "dispatch": self.waits_for}
        return [f"{what}: {reason}" for what, reason in said.items() if reason]

    async def run_claims(self) -> None:
        """Claims queued calls while there is room, until cancelled; looks every `POLL_S` without a wake."""
        while True:
            self._wake.clear()
            took = await self._claim_once()
            await self._grant_wishes()
            if took < BATCH or self._calls.room() <= 0:
                await self._wait(POLL_S)

    async def run_leases(self) -> None:
        """Renews leases and reaps expired ones until cancelled, three times in the time of a lease."""
        while True:
            await self.renew_once()
            await asyncio.sleep(self._lease_ms / 3000)

    async def renew_once(self) -> None:
        """Renews the leases before it reaps, so that a slow node loses none of its calls to its own
        reaper."""
        asking = asyncio.create_task(self._renew(), name="renewal")
        try:
            await asyncio.wait({asking}, timeout=self._lease_ms / 2000)
            if not asking.done():  # the query may still succeed, and is not repeated
                self._database_failed("it does not answer")
            renewals = await asking
        except asyncio.CancelledError:
            asking.cancel()
            raise
        except StoreError as error:
            self._database_failed(str(error))
            return
        await self._calls.hang_up([renewal.call_id for renewal in renewals if renewal.hang_up])

    async def _renew(self) -> list[Renewal]:
        listed = await self._ledger.held(self._node)
        unheld = frozenset(call_id for call_id in listed if not self._calls.holds(call_id))
        renewals = await self._ledger.renew(self._node, self._lease_ms, unheld=unheld)
        self._database_answered()
        await self._reap()
        await self._observe()
        return renewals

    async def _reap(self) -> None:
        """Reaps expired leases, but not for the time of a lease after the database was away: its nodes could
        not renew meanwhile."""
        if asyncio.get_running_loop().time() < self._trusts_leases_at:
            return
        reaped = await self._ledger.reap_expired()
        if reaped.requeued or reaped.unknown:
            counts = {"requeued": len(reaped.requeued), "unknown": len(reaped.unknown)}
            log.warning("calls of a lost node reaped", extra=counts)
        ended = [(call_id, "UNKNOWN", NODE_LOST) for call_id in reaped.unknown]
        ended += [(call_id, "CANCELLED", COMPANY_REMOVED) for call_id in reaped.orphaned]
        for call_id, status, cause in ended:
            log.warning("call ended", extra={"call_id": call_id, "status": status, "cause": cause})

    async def _grant_wishes(self) -> None:
        try:
            wanted = await self._ledger.pending_hangups(self._node)
        except StoreError as error:
            self._database_failed(str(error))
            return
        if wanted:
            await self._calls.hang_up(wanted)

    async def _claim_once(self) -> int:
        limit = min(BATCH, self._calls.room())
        if limit <= 0:
            return 0
        try:
            if not self._compared:
                await self._compare()
                self._compared = True
            claims = await self._ledger.claim(self._node, limit, self._lease_ms)
        except HistoryChanged as changed:
            self._held_back(str(changed))
            return 0
        except StoreError as error:
            self._database_failed(str(error))
            return 0
        self.waits_for = ""
        self._database_answered()
        for claim in claims:
            self._calls.start(claim)
        return len(claims)

    def _held_back(self, reason: str) -> None:
        if not self.waits_for:
            log.error("no calls are dialled", extra={"reason": reason})
        self.waits_for = reason
        self._compared = False

    async def _wait(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return

    def _database_failed(self, reason: str) -> None:
        if not self.database_missing:
            log.error("database away", extra={"reason": reason})
        self.database_missing = reason
        self._trusts_leases_at = asyncio.get_running_loop().time() + self._lease_ms / 1000

    def _database_answered(self) -> None:
        if self.database_missing:
            log.info("database back")
        self.database_missing = ""
