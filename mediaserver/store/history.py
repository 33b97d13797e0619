"""The verbs of `mediaserver.store.store.Store` about what a database has forgotten."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from mediaserver.db.database import Db
from mediaserver.queue import history
from mediaserver.queue.history import Note, Present, Recalled, Standing, Witness

DOUBTED_AT_ONCE = 500


class History:
    """Part of `Store`."""

    _db: Db

    async def standing(self) -> Standing:
        """What the database says of itself."""
        return await self._db.read(history.standing)

    async def holds(self, witness: Witness) -> bool:
        """Whether something that was in the database is still there."""
        return await self._db.read(partial(history.holds, witness=witness))

    async def forgotten(self, notes: Sequence[Note]) -> list[Note]:
        """Those of which the database has no attempt."""
        return await self._db.read(partial(history.forgotten, notes=notes))

    async def recall(self, notes: Sequence[Note]) -> Recalled:
        """Writes down attempts that the database has forgotten. A call that is not over is UNKNOWN."""
        return await self._db.write(partial(history.recall, notes=notes))

    async def join(self, node_id: str, *, compared: Standing, lost: bool, others: Collection[str]) -> bool:
        """Lists a node that has compared its notes with the database as it was at `compared`. False: it is
        another by now. `lost`: something was missing, so that nodes that it may have lost, the `others` that
        this one knows among them, have to compare theirs."""
        return await self._db.write(
            partial(history.join, node_id=node_id, compared=compared, lost=lost, others=others)
        )

    async def look(self, node_id: str) -> Present:
        """Says that a node is there, and what it should remember of the database."""
        return await self._db.write(partial(history.look, node_id=node_id))

    async def leave(self, node_id: str) -> None:
        """Takes a node off the list that ends in order: all that it dialled is written."""
        await self._db.write(partial(history.leave, node_id=node_id))

    async def doubt(self) -> int:
        """Ends every call UNKNOWN that may have been dialled since a copy of the database was made, takes all
        nodes off the list, and returns how many calls there were."""
        total = 0
        while ended := await self._db.write(partial(history.doubt, limit=DOUBTED_AT_ONCE)):
            total += ended
        return total
