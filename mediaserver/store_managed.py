"""The verbs of `mediaserver.store.Store` about what is managed over the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from mediaserver import managed
from mediaserver.db import Db
from mediaserver.managed import KeyInfo, KeyPage, Kind, NewKey, Snapshot
from mediaserver.records import NewWebRoom


class Managed:
    """Part of `Store`."""

    _db: Db

    async def revision(self) -> int:
        """Goes up with every change of what is managed over the API, by whichever node."""
        return await self._db.read(managed.revision)

    async def managed(self) -> Snapshot:
        """Everything that is managed over the API."""
        return await self._db.read(managed.snapshot)

    async def put(self, kind: Kind, row: Mapping[str, Any], document: str, *, new: bool) -> None:
        """Writes one thing: `row` are its table's columns, `document` all of it, sealed. Raises `Conflict`
        where the file manages it, or `new` and there is one of that id."""
        await self._db.write(partial(managed.put, kind=kind, row=row, document=document, new=new))

    async def remove(self, kind: Kind, thing_id: str) -> bool:
        """Takes one thing away; False: there was none. Raises `Conflict` where the file manages it."""
        return await self._db.write(partial(managed.remove, kind=kind, thing_id=thing_id))

    async def keys(self, company_id: str, *, cursor: str = "", limit: int = 50) -> KeyPage:
        """The company's API keys, by id."""
        return await self._db.read(partial(managed.keys, company_id=company_id, cursor=cursor, limit=limit))

    async def key(self, company_id: str, key_id: str) -> KeyInfo | None:
        """A key of this company, None if there is none."""
        return await self._db.read(partial(managed.key, company_id=company_id, key_id=key_id))

    async def make_key(self, company_id: str, new: NewKey) -> tuple[KeyInfo, str]:
        """A new API key and what it says, which cannot be shown again. Raises `Conflict` where there are too
        many."""
        return await self._db.write(partial(managed.make_key, company_id=company_id, new=new))

    async def rotate_key(
        self, company_id: str, key_id: str, *, overlap_ms: int
    ) -> tuple[KeyInfo, str] | None:
        """A new key like `key_id`, which itself expires after `overlap_ms`. None: no such key. Raises
        `Conflict` where the file manages it."""
        return await self._db.write(
            partial(managed.rotate_key, company_id=company_id, key_id=key_id, overlap_ms=overlap_ms)
        )

    async def revoke_key(self, company_id: str, key_id: str) -> bool:
        """Ends a key now; False: there was none. Raises `Conflict` where the file manages it."""
        return await self._db.write(partial(managed.revoke_key, company_id=company_id, key_id=key_id))

    async def keys_used(self, key_ids: Iterable[str]) -> None:
        """Notes that these keys were used just now."""
        await self._db.write(partial(managed.keys_used, key_ids=tuple(key_ids)))

    async def open_room(self, room: NewWebRoom) -> None:
        """Writes down a browser session that somebody may join, and forgets those long over."""
        await self._db.write(partial(managed.open_room, room=room))
