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
from enum import Enum, auto
from pathlib import Path
from typing import TypeVar

from mediaserver.administration import Administration
from mediaserver.conversing import Floor, LiveConversation
from mediaserver.directory import Directory
from mediaserver.dispatch import LEASE_MS, Calls, Dispatch
from mediaserver.engines import Engines
from mediaserver.errors import LocalError
from mediaserver.inbound import Inbound, NumberPlan
from mediaserver.journal import Journal
from mediaserver.key_ring import KeyRing
from mediaserver.lines import Lines
from mediaserver.load import OVERLOADED, Load
from mediaserver.loops import forever
from mediaserver.metrics import GcPauses, LoopLag, Metrics
from mediaserver.orders import Live, Orders
from mediaserver.records import KeyRow
from mediaserver.refusals import NotConfigured, Unavailable
from mediaserver.rooms.lobby import Lobby, open_lobby
from mediaserver.safe_http import SafeHttp
from mediaserver.settings import Settings, reveal
from mediaserver.speech.service import SpeechService
from mediaserver.store import Store
from mediaserver.switchboard import Switchboard
from mediaserver.trunking import set_trunks
from mediaserver.vault import Vault
from mediaserver.web_calls import WebCalls
from mediaserver.webhooks import Webhooks
from mediaserver.wiring import agent_choice, endpoint_settings, speech_choices
from pipeline import kernels
from pipeline.reach import Reach
from pipeline.recording import RecordingWriter
from sip.endpoint import Endpoint

log = logging.getLogger(__name__)

APPLY_S = 3.0
"""How long a change waits for the engines that it needs."""

GOODBYE_S = 2.0
"""How long `close` waits for the far ends to agree that the calls are over."""

WRITE_S = 5.0
"""How long `close` waits for the outcomes to be written: more than a database needs that is there."""

Part = TypeVar("Part")


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
        self.load = Load(settings.overload, endpoint=self.endpoint, metrics=self.metrics)
        voices, ears = speech_choices(settings.speech)
        self.engines = Engines(
            [agent_choice(agent) for agent in settings.agents],
            others={"speech.tts": voices, "speech.stt": ears},
            reach=Reach(str(network) for network in settings.server.allow_networks),
        )
        self.metrics.watch_engines(self.engines.health)
        self.speech = SpeechService(
            settings.speech, engines=self.engines, voices=voices, ears=ears, store=self._open
        )
        self._data_dir = Path(settings.server.data_dir)
        self.directory = Directory(settings)
        self._orders: Orders | None = None
        self._administration: Administration | None = None
        self._webhooks: Webhooks | None = None
        self._keys: KeyRing | None = None
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
        self._open_things.push_async_callback(self.speech.close)
        await asyncio.gather(self._open_store(), self._warm(), self.engines.start(), self.speech.start())
        await self._open_phone()
        networks = [str(network) for network in self.settings.server.allow_networks]
        http = await self._open_things.enter_async_context(SafeHttp(networks))
        self._run_calls(recordings, http)
        self._run_webhooks(http)
        if len(self.directory.agents) > len(self.settings.agents):
            await self._set_engines()
        self._watch()
        gc.collect()
        gc.freeze()  # what is alive now lives as long as the process: a full collection no longer visits it
        self.phase = Phase.RUNNING
        self._open().queue_filled.set()
        log.info("server ready", extra={"node": self.node, "missing": self.ready()})

    def ready(self) -> list[str]:
        """What is missing for taking calls, one line each; [] when nothing is."""
        missing = list(self._pending)
        missing += self.engines.missing({agent.id for agent in self.settings.agents})
        if self._dispatch is not None and self._dispatch.database_missing:
            missing.append(f"database: {self._dispatch.database_missing}")
        if self.load.pause_s():
            missing.append(OVERLOADED)
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
        """The API key `key`, the server's own admin key among them; None for an unknown one."""
        return await _up(self._keys).find(key)

    @property
    def orders(self) -> Orders:
        """Calls as clients order them. Raises `Unavailable` until the server is up."""
        return _up(self._orders)

    @property
    def administration(self) -> Administration:
        """What is changed while the server runs. Raises `Unavailable` until it is up."""
        return _up(self._administration)

    @property
    def web_calls(self) -> WebCalls:
        """Browser sessions as clients order them. Raises `Unavailable` until the store is open."""
        return WebCalls(self.directory, self._open(), lobby=lambda: self.lobby)

    @property
    def store(self) -> Store:
        """The server's memory. Raises `Unavailable` until it is open."""
        return self._open()

    @property
    def lobby(self) -> Lobby:
        """The rooms of web calls. Raises `NotConfigured` where there are none."""
        self._open()
        if self._lobby is None:
            raise NotConfigured("Service not configured")
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
        return _up(self._store)

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
        vault = await asyncio.to_thread(Vault.at, self._data_dir, reveal(self.settings.server.secret_key))
        self.directory = Directory(self.settings, vault)
        snapshot = await store.managed()
        self.directory.show(snapshot.rows, snapshot.revision)
        self._administration = Administration(self.directory, store, vault, applied=self._apply)
        self._keys = KeyRing(store, admin_key=reveal(self.settings.server.admin_key))
        self._store = store
        self._pending.remove("database")

    async def _warm(self) -> None:
        await asyncio.to_thread(kernels.warm)
        self._pending.remove("kernels")

    async def _open_phone(self) -> None:
        await self.endpoint.start()
        set_trunks(self.endpoint, self.directory)
        self._pending.remove("sip")

    def _run_calls(self, recordings: Path, http: SafeHttp) -> None:
        store = self._open()
        self._journal = journal = Journal(dropped=self.metrics.journal_dropped.inc)
        (recorder := RecordingWriter()).start()
        self._open_things.push_async_callback(recorder.close)
        floor = Floor(
            store=store,
            journal=journal,
            metrics=self.metrics,
            recorder=recorder,
            recordings=recordings,
            lease_ms=LEASE_MS,
            http=http,
            check=self.load.check,
            public_url=self.settings.server.public_url.rstrip("/"),
            node_url=self.settings.server.node_url or "",
            lines=Lines(self.directory, store, endpoint=self.endpoint, journal=journal, room=self._room),
        )
        self._switchboard = board = Switchboard(
            self.directory,
            endpoint=self.endpoint,
            engines=self.engines,
            floor=floor,
            room_made=store.queue_filled.set,
        )
        inbound = Inbound(
            NumberPlan(self.directory),
            endpoint=self.endpoint,
            store=store,
            switchboard=board,
            node=self.node,
            lease_ms=LEASE_MS,
        )
        self._lobby = open_lobby(
            self.directory, engines=self.engines, floor=floor, pacer=self.endpoint.pacer, node=self.node
        )
        live = Live(find=self._find_live, hang_up=self._hang_up_live)
        self._orders = Orders(self.directory, self.engines, store, live=live, check=self._check_taking_calls)
        self._keep(journal=self._journal.run, inbound=inbound.run, changes=self.administration.run)
        self._run_dispatch(store, board)

    def _run_dispatch(self, store: Store, board: Switchboard) -> None:
        self._dispatch = Dispatch(
            store,
            self.node,
            calls=Calls(
                room=lambda: 0 if self.load.pause_s() else self._room(),
                start=board.dial,
                holds=lambda call_id: self._find_live(call_id) is not None,
                hang_up=self._hang_up_live,
            ),
            lease_ms=LEASE_MS,
            wake=store.queue_filled,
            observe=self._observe,
        )
        self._keep(claims=self._dispatch.run_claims, leases=self._dispatch.run_leases)

    def _run_webhooks(self, http: SafeHttp) -> None:
        secrets = self.directory.secrets()
        self._webhooks = Webhooks(self._open(), http, secrets, observe=self.metrics.webhook_attempted)
        self._keep(webhooks=self._webhooks.run)

    async def _apply(self) -> None:
        """Makes the phone, the engines and the webhooks what the directory now says."""
        set_trunks(self.endpoint, self.directory)
        if self._webhooks is not None:
            self._webhooks.sign_with(self.directory.secrets())
        await self._set_engines()

    async def _set_engines(self) -> None:
        """An engine that takes long to load is not waited for: its agent says that it is starting."""
        agents = [agent_choice(agent) for agent in self.directory.agents.values()]
        task = asyncio.create_task(self.engines.change(agents), name="engines")
        self._tasks = [each for each in self._tasks if not each.done()] + [task]
        await asyncio.wait([task], timeout=APPLY_S)

    def _watch(self) -> None:
        self._gc_pauses = GcPauses(self.metrics.gc_pause.observe)
        self._open_things.callback(self._gc_pauses.close)
        self._open_things.callback(LoopLag(self.load.observe).close)

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
        if self._keys is not None:
            await self._keys.note_use()
        counts = await self._open().counts()
        self.metrics.show_ledger(counts.stages)
        self.metrics.show_deliveries(counts.deliveries)

    def _keep(self, **loops: Callable[[], Awaitable[None]]) -> None:
        for name, run in loops.items():
            self._tasks.append(asyncio.create_task(forever(name, run), name=name))


def _up(part: Part | None) -> Part:
    if part is None:
        raise Unavailable("The server is starting", retry_after_s=1)
    return part
