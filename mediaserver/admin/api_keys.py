"""Looks up API keys, and records when they were last used."""

from __future__ import annotations

import hmac

from mediaserver.queue.records import KeyRow
from mediaserver.store.store import Store

SERVER_KEY = KeyRow("server", "", "", frozenset({"admin"}))
"""The key `server.admin_key`: the administration of every company, and no company's calls."""


class KeyRing:
    """Looks up API keys in `store`. `admin_key`: the server's own, "" for none."""

    def __init__(self, store: Store, *, admin_key: str) -> None:
        self._store = store
        self._admin_key = admin_key.encode()
        self._used: set[str] = set()  # bounded by the number of keys

    async def find(self, key: str) -> KeyRow | None:
        """Returns the key `key`, None for an unknown one."""
        if self._admin_key and hmac.compare_digest(self._admin_key, key.encode()):
            return SERVER_KEY
        row = await self._store.find_key(key)
        if row is not None:
            self._used.add(row.id)
        return row

    async def find_by_id(self, key_id: str) -> KeyRow | None:
        """Returns the key of that id, None for an unknown one. The server's own key has none."""
        row = await self._store.find_key_by_id(key_id)
        if row is not None:
            self._used.add(row.id)
        return row

    async def note_use(self) -> None:
        """Records which keys were used since the last call. Raises `StoreError`."""
        used, self._used = self._used, set()
        if used:
            await self._store.keys_used(used)
