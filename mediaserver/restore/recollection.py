"""Compares this node's notes of what it dialled with the database: at the start, and whenever the database
may have lost something (`mediaserver.queue.history`).

Notes are compared from the last one backwards, until the database has the older ones as well. What the
database lacks is written to it; then the node joins the generation, and calls are dialled once every node has
joined."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from mediaserver.errors import StoreError
from mediaserver.queue.history import Note
from mediaserver.queue.records import Claim
from mediaserver.restore.dial_log import DialLog
from mediaserver.store.store import Store

log = logging.getLogger(__name__)

LEAVE_S = 2.0
"""How long `close` waits for the database."""


class Recollection:
    """Compares a node's notes of what it dialled with `store`, and writes what the database lacks."""

    def __init__(self, store: Store, notes: DialLog) -> None:
        self.refused = False
        """Whether the last note could not be written: nothing is dialled until a note can be."""
        self._store = store
        self._notes = notes

    async def open(self) -> str:
        """Opens the file of notes; returns the id that this node keeps there. Raises OSError."""
        await self._notes.open()
        return self._notes.remembered.node_id

    async def close(self) -> None:
        """Takes this node off the database's list of nodes. Where the database does not answer within
        `LEAVE_S` seconds the node stays listed, and a database that was restored waits for it."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._store.leave(self._notes.remembered.node_id)
        await self._notes.close()

    async def note(self, claim: Claim) -> None:
        """Notes that this node is about to dial. Raises OSError: then the node must not dial."""
        note = Note(claim.call_id, claim.epoch, claim.node, int(time.time() * 1000))
        try:
            await self._notes.note(note)
        except OSError:
            self.refused = True
            raise

    async def compare(self) -> None:
        """Writes to the database what it has lost, and joins its generation. Raises `StoreError`."""
        known = self._notes.remembered
        while True:
            standing = await self._store.standing()
            missed = await self._recall()
            witness = known.witness
            lost = missed > 0 or (witness is not None and not await self._store.holds(witness))
            if await self._store.join(known.node_id, compared=standing, lost=lost, others=known.others):
                break
        if lost or standing.identity != standing.found:
            log.warning("database restored or promoted", extra={"forgotten": missed, "lost": lost})
        await self._remember()

    async def look(self) -> None:
        """Renews this node's place on the database's list and keeps what the database shows. Raises
        `StoreError`."""
        if self.refused:
            with contextlib.suppress(OSError):
                await self._notes.note_gone(())
                self.refused = False
        if not await self._remember():  # the node was silent for so long that it was taken off the list
            await self.compare()

    async def _remember(self) -> bool:
        """False: the database does not list this node."""
        known = self._notes.remembered
        seen = await self._store.look(known.node_id)
        others = [node_id for node_id in seen.nodes if node_id != known.node_id]
        with contextlib.suppress(OSError):  # an older witness serves as well
            await self._notes.remember(seen.witness, others)
        return seen.listed

    async def _recall(self) -> int:
        """How many attempts the database had forgotten."""
        missed = 0
        async with contextlib.aclosing(self._notes.chunks()) as chunks:
            async for notes, gone in chunks:
                forgotten = await self._store.forgotten(notes)
                if not forgotten:
                    break
                told = await self._store.recall(forgotten)
                new = [call_id for call_id in told.gone if call_id not in gone]
                if new:
                    await self._notes.note_gone(new)
                missed += len(told.marked) + len(new)
                if not told.marked and not new and len(forgotten) < len(notes):
                    break
        return missed
