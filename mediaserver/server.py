"""The server of one process: phone, engines, store and the calls between them.

`start` brings everything up, each part after those it depends on; `ready` says what is still missing; `drain`
lets the calls in progress end while new ones are refused; `close` ends what is left. The verbs below them are
what the API is made of; they raise `mediaserver.refusals`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from enum import Enum, auto
from pathlib import Path

from mediaserver.conversing import Floor, LiveConversation
from mediaserver.dispatch import LEASE_MS, Dispatch
from mediaserver.engines import Engines
from mediaserver.errors import LocalError, StoreError
from mediaserver.inbound import Inbound, NumberPlan
from mediaserver.journal import Journal
from mediaserver.metrics import GcPauses, LoopLag, Metrics
from mediaserver.placing import CallRequest, checked_call
from mediaserver.records import CallPage, CallRecord, CallRow, CallStatus, KeyRow, Stopping
from mediaserver.refusals import InvalidRequest, NotFound, Unavailable
from mediaserver.rooms.lobby import Lobby, open_lobby
from mediaserver.safe_http import SafeHttp
from mediaserver.settings import Settings
from mediaserver.store import Store
from mediaserver.store_config import webhook_secrets
from mediaserver.switchboard import Switchboard
from mediaserver.webhooks import Webhooks
from mediaserver.wiring import agent_choice, endpoint_settings, trunk_settings
from pipeline import kernels
from pipeline.recording import RecordingWriter
from sip.endpoint import Endpoint

log = logging.getLogger(__name__)

RESTART_S = 1.0
"""Pause before a background loop that failed is run again."""

GOODBYE_S = 2.0
"""How long `close` waits for the far ends to agree that the calls are over."""

WRITE_S = 5.0
"""How long `close` waits for the outcomes to be written: more than a database needs that is there."""

UNKNOWN_CALL = "Call not found"


class Phase(Enum):
    """Where the server is in its life."""

    NEW = auto()
    STARTING = auto()
    RUNNING = auto()
    DRAINING = auto()
    CLOSED = auto()


class Server:
    """One node. `store` is opened from the settings unless given (then the giver closes it)."""

    def __init__(self, settings: Settings, *, store: Store | None = None) -> None:
        self.settings = settings
        self.node = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.metrics = Metrics()
        self.phase = Phase.NEW
        self.endpoint = Endpoint(endpoint_settings(settings.sip))
        self.engines = Engines([agent_choice(agent) for agent in settings.agents])
        self._data_dir = Path(settings.server.data_dir)
        self._given_store = store
        self._store: Store | None = None
        self._pending = ["kernels", "sip", "database"]
        self._tasks: list[asyncio.Task[None]] = []
        self._open_things = AsyncExitStack()
        self._journal: Journal | None = None
        self._dispatch: Dispatch | None = None
        self._switchboard: Switchboard | None = None
        self._lobby: Lobby | None = None
        self._gc_pauses: GcPauses | None = None

    # Life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Brings everything up.

        Raises `StoreError`, OSError (an address that cannot be bound) or `LocalError`; the server must then
        be closed. A missing engine does not raise: `ready` tells it.
        """
        if self.settings.sip.engine != "native":
            raise LocalError(f"sip.engine: {self.settings.sip.engine} is not part of this version")
        self.phase = Phase.STARTING
        recordings = self._data_dir / "recordings"
        await asyncio.to_thread(recordings.mkdir, parents=True, exist_ok=True)
        self._open_things.push_async_callback(self.engines.close)
        await asyncio.gather(self._open_store(), self._warm(), self.engines.start())
        await self._open_phone()
        self._run_calls(recordings)
        await self._run_webhooks()
        self._watch()
        gc.collect()
        gc.freeze()  # what is alive now lives as long as the process: a full collection no longer visits it
        self.phase = Phase.RUNNING
        self._open().queue_filled.set()
        log.info("server ready", extra={"node": self.node, "missing": self.ready()})

    def ready(self) -> list[str]:
        """What is missing for taking calls, one line each; [] when nothing is."""
        missing = list(self._pending)
        missing += self.engines.missing()
        if self._dispatch is not None and self._dispatch.database_missing:
            missing.append(f"database: {self._dispatch.database_missing}")
        if self.phase in (Phase.DRAINING, Phase.CLOSED):
            missing.append("draining")
        return missing

    async def drain(self) -> bool:
        """Refuses new calls, waits up to server.drain_s for those in progress; True when all have ended."""
        self.phase = Phase.DRAINING
        self.endpoint.drain()
        if self._switchboard is None:
            return True
        log.info("draining", extra={"calls": len(self._switchboard)})
        timeout_s = self.settings.server.drain_s
        waits = [self._switchboard.empty(timeout_s)]
        if self._lobby is not None:
            waits.append(self._lobby.drain(timeout_s))
        return all(await asyncio.gather(*waits))

    async def close(self) -> None:
        """Ends every call, writes their outcomes, frees everything. May be called in any phase, and again."""
        if self.phase is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        if self._lobby is not None:
            await self._lobby.close()
        if self._switchboard is not None:
            await self._switchboard.hang_up_all()
            await self._switchboard.empty(GOODBYE_S)
        await self.endpoint.close()  # ends the rest: calls whose far end says nothing, not even to a CANCEL
        if self._switchboard is not None:
            await self._switchboard.empty(WRITE_S)
            await self._switchboard.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._open_things.aclose()

    # Verbs --------------------------------------------------------------------------------------------------

    async def find_key(self, key: str) -> KeyRow | None:
        """The API key `key`, None for an unknown one."""
        return await self._open().find_key(key)

    async def place_call(self, company_id: str, request: CallRequest) -> CallRow:
        """Queues a call. Raises `InvalidRequest`, `NotFound`, `Unavailable`."""
        store = self._open()
        self._check_taking_calls()
        new = checked_call(self.settings, self.engines, company_id, request)
        return await store.enqueue(new)

    async def call(self, company_id: str, call_id: str) -> CallRecord:
        """Everything known about a call; of a live one, what was said so far. Raises `NotFound`."""
        record = await self._open().call(company_id, call_id)
        if record is None:
            raise NotFound(UNKNOWN_CALL)
        live = self._find_live(call_id)
        if live is None or record.status.final:
            return record
        return replace(record, transcript=tuple(live.transcript), turns=tuple(live.turns))

    async def calls(self, company_id: str, *, status: str, cursor: str, limit: int) -> CallPage:
        """A page of the company's calls, newest first. Raises `InvalidRequest`."""
        if status and status not in CallStatus.__members__:
            raise InvalidRequest(f"status must be one of {', '.join(CallStatus)}")
        wanted = CallStatus(status) if status else None
        try:
            return await self._open().calls(company_id, status=wanted, cursor=cursor, limit=limit)
        except LocalError as error:
            raise InvalidRequest(str(error)) from None

    async def hang_up(self, company_id: str, call_id: str) -> Stopping:
        """Ends a call in whatever state it is. Raises `NotFound`."""
        stopping = await self._open().request_hangup(company_id, call_id)
        if stopping is None:
            raise NotFound(UNKNOWN_CALL)
        if stopping is not Stopping.ENDED:
            await self._hang_up_live([call_id])
        return stopping

    async def recording(self, company_id: str, call_id: str) -> Path:
        """The file of a call's recording. Raises `NotFound`."""
        record = await self.call(company_id, call_id)
        if not record.recording_path:
            raise NotFound("This call has no recording")
        return Path(record.recording_path)

    @property
    def lobby(self) -> Lobby:
        """The rooms of web calls. Raises `Unavailable` where there are none."""
        self._open()
        if self._lobby is None:
            raise Unavailable("Web calls are not configured on this server", retry_after_s=60)
        return self._lobby

    def exposition(self) -> bytes:
        """The metrics, as `GET /metrics` gives them."""
        if self._gc_pauses is not None:
            self._gc_pauses.flush()
        if self._journal is not None:
            self.metrics.journal_backlog.set(len(self._journal))
        if "sip" not in self._pending:
            self.metrics.show_sip(self.endpoint.stats)
        return self.metrics.exposition()

    # Parts --------------------------------------------------------------------------------------------------

    def _open(self) -> Store:
        if self._store is None:
            raise Unavailable("The server is starting", retry_after_s=1)
        return self._store

    def _check_taking_calls(self) -> None:
        if self.phase is Phase.RUNNING:
            return
        starting = self.phase in (Phase.NEW, Phase.STARTING)
        raise Unavailable("The server is starting" if starting else "The server is draining")

    async def _open_store(self) -> None:
        store = self._given_store
        if store is None:
            store = await Store.open(self.settings.server.database, self._data_dir)
            self._open_things.push_async_callback(store.close)
        await store.sync_file(self.settings)
        self._store = store
        self._pending.remove("database")

    async def _warm(self) -> None:
        await asyncio.to_thread(kernels.warm)
        self._pending.remove("kernels")

    async def _open_phone(self) -> None:
        await self.endpoint.start()
        for trunk in self.settings.trunks:
            self.endpoint.add_trunk(trunk_settings(trunk))
        self._pending.remove("sip")

    def _run_calls(self, recordings: Path) -> None:
        store = self._open()
        self._journal = Journal(dropped=self.metrics.journal_dropped.inc)
        recorder = RecordingWriter()
        recorder.start()
        self._open_things.push_async_callback(recorder.close)
        floor = Floor(
            store=store,
            journal=self._journal,
            metrics=self.metrics,
            recorder=recorder,
            recordings=recordings,
            lease_ms=LEASE_MS,
        )
        self._switchboard = board = Switchboard(
            self.settings,
            endpoint=self.endpoint,
            engines=self.engines,
            floor=floor,
            room_made=store.queue_filled.set,
        )
        inbound = Inbound(
            NumberPlan(self.settings),
            endpoint=self.endpoint,
            store=store,
            switchboard=board,
            node=self.node,
            lease_ms=LEASE_MS,
        )
        self._lobby = open_lobby(
            self.settings, engines=self.engines, floor=floor, pacer=self.endpoint.pacer, node=self.node
        )
        self._keep(journal=self._journal.run, inbound=inbound.run)
        self._run_dispatch(store, board)

    def _run_dispatch(self, store: Store, board: Switchboard) -> None:
        self._dispatch = Dispatch(
            store,
            self.node,
            room=self._room,
            start=board.dial,
            hang_up=self._hang_up_live,
            lease_ms=LEASE_MS,
            wake=store.queue_filled,
            observe=self._observe,
        )
        self._keep(claims=self._dispatch.run_claims, leases=self._dispatch.run_leases)

    async def _run_webhooks(self) -> None:
        networks = [str(network) for network in self.settings.server.allow_networks]
        http = await self._open_things.enter_async_context(SafeHttp(networks))
        secrets = webhook_secrets(self.settings)
        webhooks = Webhooks(self._open(), http, secrets, observe=self.metrics.webhook_attempted)
        self._keep(webhooks=webhooks.run)

    def _watch(self) -> None:
        self._gc_pauses = GcPauses(self.metrics.gc_pause.observe)
        self._open_things.callback(self._gc_pauses.close)
        self._open_things.callback(LoopLag(self.metrics.loop_lag.observe).close)

    def _find_live(self, call_id: str) -> LiveConversation | None:
        for holder in (self._switchboard, self._lobby):
            live = holder.find(call_id) if holder is not None else None
            if live is not None:
                return live
        return None

    async def _hang_up_live(self, call_ids: Iterable[str]) -> None:
        """Ends the calls named, by phone or in a room, those that this node has."""
        call_ids = tuple(call_ids)
        for holder in (self._switchboard, self._lobby):
            if holder is not None:
                await holder.hang_up(call_ids)

    def _room(self) -> int:
        if self._switchboard is None or self.phase is not Phase.RUNNING:
            return 0
        return self._switchboard.room()

    async def _observe(self) -> None:
        """What the metrics show of the database, each time the leases are renewed."""
        counts = await self._open().counts()
        self.metrics.show_ledger(counts.stages)
        self.metrics.show_deliveries(counts.deliveries)

    def _keep(self, **loops: Callable[[], Awaitable[None]]) -> None:
        for name, run in loops.items():
            self._tasks.append(asyncio.create_task(_forever(name, run), name=name))


async def _forever(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Runs a background loop of the server; one that fails is logged and run again."""
    while True:
        try:
            await run()
        except StoreError as error:
            log.error("background loop waits for the database", extra={"loop": name, "reason": str(error)})
        except Exception:
            log.exception("background loop failed", extra={"loop": name})
        await asyncio.sleep(RESTART_S)
