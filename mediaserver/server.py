"""The server of one process: SIP endpoint, engines, database and the calls between them.

`start` brings everything up, each part after those that it depends on. `ready` says what is still missing.
`drain` lets the calls in progress end while new ones are refused. `close` ends what is left. The API is made
of the methods below them, which raise `mediaserver.errors`."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from enum import Enum, auto
from pathlib import Path
from typing import TypeVar

from mediaserver.admin.admin import Administration
from mediaserver.admin.api_keys import KeyRing
from mediaserver.admin.directory import Directory
from mediaserver.admin.personal_data import PersonalData
from mediaserver.admin.sealing import Vault, kept_admin_key
from mediaserver.admission.disk import Disk
from mediaserver.admission.load import OVERLOADED, Load
from mediaserver.calls.call_api import CallApi
from mediaserver.calls.dispatch import LEASE_MS, Calls, Dispatch
from mediaserver.calls.journal import Journal
from mediaserver.calls.outbound_legs import OutboundLegs
from mediaserver.calls.services import CallServices
from mediaserver.calls.signalling.stir import StirSigner
from mediaserver.calls.signalling.traces import CallTraces
from mediaserver.db.database import is_postgres
from mediaserver.engine_pool.pool import Engines
from mediaserver.errors import NotConfigured, Unavailable
from mediaserver.files import private
from mediaserver.files.sealed import SealedFiles
from mediaserver.node.background import forever
from mediaserver.node.live_calls import LiveCalls
from mediaserver.node.reload import Reloading
from mediaserver.node.retention import Sweeper
from mediaserver.node.runtime_metrics import Watching
from mediaserver.node.sip_peers import SipPeers
from mediaserver.node.trunks import set_trunks, watch
from mediaserver.queue.records import KeyRow
from mediaserver.restore.dial_log import DialLog
from mediaserver.restore.recollection import Recollection
from mediaserver.rooms.connect import WebCalls
from mediaserver.rooms.registry import PEOPLE, RoomRegistry
from mediaserver.settings import Settings, reveal
from mediaserver.speech.service import SpeechService
from mediaserver.store.store import Store
from mediaserver.telemetry.metrics import Metrics
from mediaserver.webhooks import Webhooks
from mediaserver.wiring import (
    agent_choice,
    call_tracer,
    egress_allowed,
    endpoint_settings,
    engines_of,
    speech_choices,
)
from pipeline.audio import kernels
from pipeline.media.recording import RecordingWriter
from pipeline.net.http import GuardedHttpClient, HttpClient
from sip.endpoint import Endpoint

log = logging.getLogger(__name__)

APPLY_S = 3.0
"""How long a change waits for the engines that it needs."""

HTTP_ANSWER_LIMIT = 64 * 1024
"""Bytes of a webhook's or a pre-call tool's answer."""

HTTP_CONNECTIONS_PER_HOST = 16
"""Webhooks and pre-call tools under way to one host: two subscriptions with all their slots."""

Part = TypeVar("Part")


class Phase(Enum):
    """The phase of the server's life, in this order."""

    NEW = auto()
    STARTING = auto()
    RUNNING = auto()
    DRAINING = auto()
    CLOSED = auto()


class Server:
    """One node. `store` is opened from the settings unless given, in which case its owner closes it;
    `engines`: those of the settings, which may be starting already."""

    def __init__(
        self, settings: Settings, *, store: Store | None = None, engines: Engines | None = None
    ) -> None:
        self.settings = settings
        self.node = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.metrics = Metrics()
        self.phase = Phase.NEW
        self._data_dir = Path(settings.server.data_dir)
        self.endpoint = Endpoint(endpoint_settings(settings.sip, settings.rooms.max_calls * PEOPLE))
        self.sip_peers = SipPeers(self.endpoint, self._data_dir)
        self.load = Load(settings.overload, endpoint=self.endpoint, metrics=self.metrics)
        self.engines = engines or engines_of(settings)
        self.metrics.watch_engines(self.engines.running.health, self.engines.running.decoder_waits)
        voices, recognizers = speech_choices(settings.speech)
        self.speech = SpeechService(
            settings.speech, engines=self.engines, voices=voices, recognizers=recognizers, store=self._open
        )
        key = reveal(settings.server.recordings_key)
        self.sealed_files = SealedFiles(key) if key else None
        self.directory = Directory(settings)
        self._call_api: CallApi | None = None
        self._administration: Administration | None = None
        self._webhooks: Webhooks | None = None
        self._keys: KeyRing | None = None
        self._personal_data: PersonalData | None = None
        self._vault: Vault | None = None
        self._given_store = store
        self._store: Store | None = None
        self._pending = ["kernels", "sip", "database"]
        self._tasks: list[asyncio.Task[None]] = []
        self._open_things = AsyncExitStack()
        self._calls: LiveCalls | None = None
        self._dispatch: Dispatch | None = None
        self._disk = Disk(self._data_dir, show=self.metrics.disk_free.set)
        self._watching: Watching | None = None
        self._recollection: Recollection | None = None

    async def start(self) -> None:
        """Starts every part.

        Raises `StoreError`, OSError (an address that cannot be bound) or `LocalError`; the server must then
        be closed. A missing engine does not raise: `ready` reports it."""
        self.phase = Phase.STARTING
        recordings = await asyncio.to_thread(private.prepare, self._data_dir)
        self._open_things.push_async_callback(self.engines.close)
        self._open_things.push_async_callback(self.speech.close)
        await asyncio.gather(self._open_store(), self._warm(), self.engines.start(), self.speech.start())
        await self._open_phone()
        http = http_client(self.settings)
        self._open_things.push_async_callback(http.close)
        self._run_calls(recordings, http)
        self._run_retention(recordings)
        self._run_webhooks(http)
        self._keep(choose_again=self.engines.choose_again, free_memory=_up(self._calls).free_memory)
        if len(self.directory.agents) > len(self.settings.agents):
            await self._set_engines()
        self.phase = Phase.RUNNING
        self._open().queue_filled.set()
        log.info("server ready", extra={"node": self.node, "missing": self.ready()})

    def ready(self) -> list[str]:
        """Returns what is missing for taking calls, one line each; [] when nothing is."""
        missing = list(self._pending)
        missing += self.engines.missing({agent.id for agent in self.directory.file.agents})
        missing += self._dispatch.missing() if self._dispatch is not None else []
        missing += [f"disk: {self._disk.missing}"] if self._disk.missing else []
        missing += [OVERLOADED] if self.load.pause_s() else []
        if self.phase in (Phase.DRAINING, Phase.CLOSED):
            missing.append("draining")
        return missing

    async def reload(self, settings: Settings) -> None:
        """Applies what of `settings` can change while calls go on (`mediaserver.node.reload`). Raises
        `LocalError`, `StoreError` (nothing has changed), `Unavailable`."""
        self._check_accepting()
        tls = self.endpoint.settings.tls_server
        await Reloading(self.directory, self._open(), tls=tls, applied=self._apply).take(settings)
        self.settings = self.directory.file

    async def drain(self) -> bool:
        """Refuses new calls and waits up to `server.drain_s` for those in progress; True: all ended."""
        self.phase = Phase.DRAINING
        self.endpoint.drain()
        return self._calls is None or await self._calls.drain(self.settings.server.drain_s)

    async def close(self) -> None:
        """Ends every call, writes the outcomes, frees everything. May be called in any phase, and again."""
        if self.phase is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        await (self._calls.end() if self._calls is not None else self.endpoint.close())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._open_things.aclose()

    # Verbs --------------------------------------------------------------------------------------------------

    async def find_key(self, key: str) -> KeyRow | None:
        """Returns the API key `key`, the server's own admin key among them; None for an unknown one."""
        return await _up(self._keys).find(key)

    async def find_key_by_id(self, key_id: str) -> KeyRow | None:
        """Returns the API key of that id, None for an unknown one."""
        return await _up(self._keys).find_by_id(key_id)

    def livekit_secret(self, key_id: str) -> str:
        """Returns the LiveKit API secret of an API key. Raises `Unavailable` until the server is up."""
        return _up(self._vault).livekit_secret(key_id)

    @property
    def call_api(self) -> CallApi:
        """The call operations of the API. Raises `Unavailable` until the server is up."""
        return _up(self._call_api)

    @property
    def administration(self) -> Administration:
        """Changes of companies, trunks, agents, webhooks. Raises `Unavailable` until the server is up."""
        return _up(self._administration)

    @property
    def personal_data(self) -> PersonalData:
        """Erasures, exports and legal holds. Raises `Unavailable` until the server is up."""
        return _up(self._personal_data)

    @property
    def web_calls(self) -> WebCalls:
        """Creates rooms for browser sessions. Raises `Unavailable` until the store is open."""
        return WebCalls(self.directory, self._open(), room_registry=lambda: self.room_registry)

    @property
    def store(self) -> Store:
        """The database of calls and settings. Raises `Unavailable` until it is open."""
        return self._open()

    @property
    def room_registry(self) -> RoomRegistry:
        """The rooms of this node. Raises `NotConfigured` where there are none."""
        self._open()
        if self._calls is None or self._calls.rooms is None:
            raise NotConfigured("Service not configured")
        return self._calls.rooms

    def exposition(self) -> bytes:
        """The metrics, as `GET /metrics` gives them."""
        if self._watching is not None and self._calls is not None:
            self._watching.show(backlog=len(self._calls.journal))
        return self.metrics.exposition()

    # Parts --------------------------------------------------------------------------------------------------

    def _open(self) -> Store:
        return _up(self._store)

    def _check_accepting(self) -> None:
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
        self.directory.confirmed_at = asyncio.get_running_loop().time()
        self._administration = Administration(self.directory, store, vault, applied=self._apply)
        self._vault = vault
        store.db.secret = vault.secret
        admin_key = await asyncio.to_thread(kept_admin_key, self._data_dir, self.settings.server)
        self._keys = KeyRing(store, admin_key=admin_key)
        self._recollection = Recollection(store, DialLog(self._data_dir / "dialled"))
        self.node += f"@{await self._recollection.open()}"
        self._open_things.push_async_callback(self._recollection.close)
        self._store = store
        self._pending.remove("database")

    async def _warm(self) -> None:
        await asyncio.to_thread(kernels.warm)
        self._pending.remove("kernels")

    async def _open_phone(self) -> None:
        await self.endpoint.start()
        watch(self.metrics, self.endpoint)
        await self._open_things.enter_async_context(self.sip_peers)
        set_trunks(self.endpoint, self.directory)
        self._pending.remove("sip")

    def _run_calls(self, recordings: Path, http: HttpClient) -> None:
        store = self._open()
        journal = Journal(dropped=self.metrics.journal_dropped.inc)
        self._calls = calls = LiveCalls(
            self.directory,
            endpoint=self.endpoint,
            engines=self.engines,
            services=self._services(journal, recordings, http),
            node=self.node,
        )
        self._call_api = CallApi(self.directory, self.engines, store, live=calls, check=self._check_accepting)
        self._keep(journal=journal.run, inbound=calls.inbound.run, changes=self.administration.run)
        self._run_dispatch(store, calls)

    def _services(self, journal: Journal, recordings: Path, http: HttpClient) -> CallServices:
        store = self._open()
        (recorder := RecordingWriter()).start()
        self._open_things.push_async_callback(recorder.close)
        traces = CallTraces(store, journal, self.metrics.trunks)
        tracer = call_tracer(self.settings.tracing, self._open_things, node=self.node)
        signer = StirSigner(http, self.metrics.trunks)
        legs = OutboundLegs(
            self.directory, store, self.endpoint, journal, room=self._room, traces=traces, signer=signer
        )
        return CallServices(
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
            sealed_files=self.sealed_files,
            outbound_legs=legs,
            signer=signer,
            traces=traces,
            tracer=tracer,
            note_dial=_up(self._recollection).note,
        )

    def _run_dispatch(self, store: Store, calls: LiveCalls) -> None:
        recollection, keys = _up(self._recollection), _up(self._keys)
        self._watching = watching = Watching(self.metrics, store, keys, recollection, load=self.load)
        self._open_things.callback(watching.close)
        self._dispatch = Dispatch(
            store,
            self.node,
            calls=Calls(
                room=lambda: 0 if recollection.refused or self.load.pause_s() else self._room(),
                start=calls.phone.dial,
                holds=calls.holds,
                hang_up=calls.hang_up,
            ),
            lease_ms=LEASE_MS,
            wake=store.queue_filled,
            observe=watching.observe,
            compare=recollection.compare,
        )
        self._keep(claims=self._dispatch.run_claims, leases=self._dispatch.run_leases, disk=self._disk.run)

    def _run_retention(self, recordings: Path) -> None:
        server, store = self.settings.server, self._open()
        sweeper = Sweeper(
            self.directory,
            store,
            self.metrics,
            recordings=recordings,
            node=self.node,
            node_url=server.node_url or "",
            alone=not is_postgres(server.database),
            sealed_files=self.sealed_files,
        )
        self._personal_data = PersonalData(self.directory, store, _up(self._vault), erased=sweeper.due.set)
        self._keep(retention=sweeper.run)

    def _run_webhooks(self, http: HttpClient) -> None:
        self._webhooks = webhook_sender(self.settings, self._open(), http, self.directory, self.metrics)
        self._keep(webhooks=self._webhooks.run)

    async def _apply(self) -> None:
        """Applies the directory's trunks, engines and webhooks."""
        set_trunks(self.endpoint, self.directory)
        if self._webhooks is not None:
            self._webhooks.sign_with(self.directory.secrets())
        await self._set_engines()

    async def _set_engines(self) -> None:
        """Starts the agents' engines; those that take longer than `APPLY_S` go on starting meanwhile."""
        agents = [agent_choice(agent) for agent in self.directory.agents.values()]
        task = asyncio.create_task(self.engines.change(agents), name="engines")
        self._tasks = [each for each in self._tasks if not each.done()] + [task]
        await asyncio.wait([task], timeout=APPLY_S)

    def _room(self) -> int:
        if self._calls is None or self.phase is not Phase.RUNNING:
            return 0
        return self._calls.phone.room()

    def _keep(self, **loops: Callable[[], Awaitable[None]]) -> None:
        for name, run in loops.items():
            self._tasks.append(asyncio.create_task(forever(name, run), name=name))


def _up(part: Part | None) -> Part:
    if part is None:
        raise Unavailable("The server is starting", retry_after_s=1)
    return part


def webhook_sender(
    settings: Settings, store: Store, http: HttpClient, directory: Directory, metrics: Metrics
) -> Webhooks:
    """Returns the sender of the events in `store`, which signs as `directory` says."""
    return Webhooks(
        store,
        http,
        directory.secrets(),
        observe=metrics.webhook_attempted,
        traced=settings.tracing.endpoint is not None,
    )


def http_client(settings: Settings) -> GuardedHttpClient:
    """The client of webhooks and pre-call tools."""
    return GuardedHttpClient(
        egress_allowed(settings),
        answer_limit=HTTP_ANSWER_LIMIT,
        connections_per_host=HTTP_CONNECTIONS_PER_HOST,
    )
