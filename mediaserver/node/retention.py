"""Sweeps away what has been kept for as long as its company wants, and what was erased.

Every node sweeps the database, each a part of it, and removes those recordings from its own disk that are to
go: at its start and every `SWEEP_S` seconds, so that a node that was away has none of them left a minute
after it is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mediaserver.admin.directory import Directory
from mediaserver.files.sealed import SealedFiles
from mediaserver.queue.personal_data.retention import AT_ONCE, Kept, Removal, Waiting
from mediaserver.store.store import Store
from mediaserver.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

SWEEP_S: Final = 60.0
GOING_S: Final = 2.0
"""Until the next sweep while calls to be erased go on."""

ENDINGS: Final = (".wav", ".wav.enc", ".wav.enc.part")
"""The endings of a recording's file: as it is written, sealed, and while it is being sealed."""


class Sweeper:
    """Sweeps `store` and the folder `recordings` of this node. `node_url`: where others reach this node, ""
    where they do not; `node`: the name of this run in the rows, which ends like that of every run on this
    data directory ("@" and an id); `alone`: there is no other node, so a file that is not here is nowhere."""

    def __init__(
        self,
        directory: Directory,
        store: Store,
        metrics: Metrics,
        *,
        recordings: Path,
        node: str,
        node_url: str = "",
        alone: bool = False,
        sealed_files: SealedFiles | None = None,
    ) -> None:
        self._directory = directory
        self._store = store
        self._metrics = metrics
        self._recordings = recordings
        self._node = node
        self._home = "@" + node.rpartition("@")[2]
        self._node_url = node_url
        self._alone = alone
        self._sealed_files = sealed_files
        # Before the first call: what was recorded without a key, or by a process that was killed.
        self._unsealed = sorted(recordings.glob("*.wav")) if sealed_files is not None else []
        self.due = asyncio.Event()
        """Set where something was erased: the next sweep is now."""

    async def run(self) -> None:
        """Sweeps until cancelled. Raises `StoreError`."""
        while True:
            await asyncio.to_thread(self._seal)
            self.due.clear()
            going = (await self.sweep()).calls
            try:
                async with asyncio.timeout(GOING_S if going else SWEEP_S):
                    await self.due.wait()
            except TimeoutError:
                pass

    async def sweep(self) -> Waiting:
        """Sweeps once: what is too old, what was erased, files. Returns what is still to be erased. Raises
        `StoreError`."""
        changed = await self._store.erase_ended() > 0
        for company in list(self._directory.companies.values()):
            for kind in Kept:
                days = getattr(company.retention, f"{kind.value}_days")
                changed |= days is not None and await self._take(company.id, kind, days) > 0
        changed |= await self._remove_files() > 0
        if changed:
            await self._store.db.scrub()
        waiting = await self._store.waiting()
        self._metrics.erasures_waiting.labels("calls").set(waiting.calls)
        self._metrics.erasures_waiting.labels("files").set(waiting.files)
        return waiting

    async def _take(self, company_id: str, kind: Kept, days: int) -> int:
        total = 0
        while True:
            count = await self._store.sweep(company_id, kind, days=days)
            total += count
            self._metrics.data_removed.labels(kind.value).inc(count)
            if count < AT_ONCE:
                break
        if total:
            log.info("data removed", extra={"company_id": company_id, "kind": kind.value, "count": total})
        return total

    async def _remove_files(self) -> int:
        due = await self._store.removals()
        gone = await asyncio.to_thread(self._unlink, due) if due else []
        if not gone:
            return 0
        count = await self._store.removed(gone, node=self._node)
        self._metrics.data_removed.labels("files").inc(count)
        log.info("recordings removed", extra={"count": count})
        return count

    def _seal(self) -> None:
        """Seals what was there at the start; what cannot be sealed now is tried with the next sweep."""
        left, self._unsealed = self._unsealed, []
        for path in left if self._sealed_files is not None else ():
            try:
                if path.exists() and self._sealed_files is not None:
                    self._sealed_files.seal(path)
            except OSError as error:
                log.error("recording not sealed", extra={"file": path.name, "reason": error.strerror or ""})
                self._unsealed.append(path)

    def _unlink(self, due: Iterable[Removal]) -> list[str]:
        """Removes the files that are here; returns the calls whose recording is gone for good."""
        gone = []
        for removal in due:
            try:
                found = [path for path in self._files(removal.call_id) if path.exists()]
                for path in found:
                    path.unlink(missing_ok=True)
            except OSError as error:
                reason = error.strerror or str(error)
                log.error("recording not removed", extra={"call_id": removal.call_id, "reason": reason})
                continue
            if found or self._mine(removal):
                gone.append(removal.call_id)
        return gone

    def _mine(self, removal: Removal) -> bool:
        """Whether no other node can have the recording."""
        at_my_address = bool(self._node_url) and removal.node_url == self._node_url
        return self._alone or at_my_address or removal.owner.endswith(self._home)

    def _files(self, call_id: str) -> list[Path]:
        return [self._recordings / f"{call_id}{ending}" for ending in ENDINGS]
