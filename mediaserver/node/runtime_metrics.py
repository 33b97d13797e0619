"""Measures a running server besides its calls: its event loop, garbage collections and queues."""

from __future__ import annotations

from mediaserver.admin.api_keys import KeyRing
from mediaserver.admission.load import Load
from mediaserver.restore.recollection import Recollection
from mediaserver.store.store import Store
from mediaserver.telemetry.metrics import GcPauses, LoopLag, Metrics


class Watching:
    """Measures the process from construction until `close`."""

    def __init__(
        self, metrics: Metrics, store: Store, keys: KeyRing, recollection: Recollection, *, load: Load
    ) -> None:
        self._metrics = metrics
        self._store = store
        self._keys = keys
        self._recollection = recollection
        self._pauses = GcPauses(metrics.gc_pause.observe)
        self._lag = LoopLag(load.observe)

    def close(self) -> None:
        """Stops timing garbage collections and sampling the event loop."""
        self._pauses.close()
        self._lag.close()

    async def observe(self) -> None:
        """Updates the metrics that come from the database; called whenever leases are renewed. Raises
        `StoreError`."""
        await self._recollection.look()
        await self._keys.note_use()
        counts = await self._store.counts()
        self._metrics.show_ledger(counts.stages)
        self._metrics.show_deliveries(counts.deliveries)

    def show(self, *, backlog: int) -> None:
        """Updates the metrics that come from this process; called for every scrape."""
        self._pauses.flush()
        self._metrics.journal_backlog.set(backlog)
