"""Reads the configuration again while the server runs: what changes at once, and what needs a restart.

Companies, trunks and agents are replaced whole; calls in progress keep their old settings. Certificates are
loaded again from the files that the configuration names. Of the other tables only `LIVE_KEYS` change; every
other key that differs is logged and takes effect at the next start."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mediaserver.admin.directory import Directory
from mediaserver.errors import LocalError
from mediaserver.settings import Settings, TrunkSettings
from mediaserver.store.store import Store
from mediaserver.telemetry import logging as logs
from mediaserver.wiring import certificate_problem, trunk_settings
from pipeline.engines.tables import Table
from sip.client_tls import ClientTls
from sip.errors import SipError

log = logging.getLogger(__name__)

LIVE_KEYS: Final = frozenset(
    {"server.log_level", "server.drain_s", "sip.tls_certificate", "sip.tls_key", "sip.user"},
)
"""Keys besides companies, trunks and agents that take effect at once."""

_TABLES: Final = ("server", "sip", "rooms", "speech")


@dataclass(frozen=True, slots=True)
class Difference:
    """What a new configuration changes, as keys: `changed` takes effect at once, `restart` at the next start.
    Holds no values, which may be secrets."""

    changed: tuple[str, ...]
    restart: tuple[str, ...]


def difference(before: Settings, after: Settings) -> Difference:
    """Returns the keys, companies, trunks and agents in which `after` differs from `before`."""
    differing = list(_tables(before, after))
    things = [
        *_things("company", before.companies, after.companies),
        *_things("trunk", before.trunks, after.trunks),
        *_things("agent", before.agents, after.agents),
    ]
    now = [key for key in differing if key in LIVE_KEYS]
    return Difference(tuple(now + things), tuple(key for key in differing if key not in LIVE_KEYS))


def merged(before: Settings, after: Settings) -> Settings:
    """Returns `before` with everything of `after` that takes effect at once."""
    tables: dict[str, Any] = {
        "companies": after.companies,
        "trunks": after.trunks,
        "agents": after.agents,
    }
    for table in _TABLES:
        old, new = getattr(before, table), getattr(after, table)
        live = {key.partition(".")[2] for key in LIVE_KEYS if key.startswith(f"{table}.")}
        names = {field.alias or name: name for name, field in type(old).model_fields.items()}
        tables[table] = old.model_copy(update={names[key]: getattr(new, names[key]) for key in live})
    return before.model_copy(update=tables)


class Reloading:
    """Applies a new configuration to a running server. `tls`: the context that holds the certificate of SIP
    over TLS; `applied` is awaited after the directory has the change."""

    def __init__(
        self,
        directory: Directory,
        store: Store,
        *,
        tls: ssl.SSLContext | None,
        applied: Callable[[], Awaitable[None]],
    ) -> None:
        self._directory = directory
        self._store = store
        self._tls = tls
        self._applied = applied

    async def take(self, settings: Settings) -> None:
        """Applies what of `settings` can change at once, and logs the difference. Raises `LocalError` and
        `StoreError`, with nothing changed."""
        before = self._directory.file
        told = difference(before, settings)
        shows = self._tls is not None and settings.sip.tls is not None
        problem = certificate_problem(settings.sip) if shows else ""
        if problem:
            raise LocalError(problem)
        for trunk in settings.trunks:
            _check_trunk(trunk)
        after = merged(before, settings)
        await self._store.sync_file(after)
        if self._tls is not None and shows:
            self._tls.load_cert_chain(settings.sip.tls_certificate, settings.sip.tls_key)
        logs.set_level(after.server.log_level)
        self._directory.reread(after)
        await self._applied()
        log.warning("configuration reloaded", extra={"changed": told.changed, "needs_restart": told.restart})


def _check_trunk(trunk: TrunkSettings) -> None:
    try:
        settings = trunk_settings(trunk)
        if settings.tls is not None:
            ClientTls.of(settings.tls)
    except SipError as error:
        raise LocalError(str(error)) from error


def _tables(before: Settings, after: Settings) -> Iterator[str]:
    for table in _TABLES:
        yield from _keys(table, getattr(before, table), getattr(after, table))


def _keys(prefix: str, before: Table, after: Table) -> Iterator[str]:
    for name, field in type(before).model_fields.items():
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield f"{prefix}.{field.alias or name}"


def _things(kind: str, before: Iterable[Any], after: Iterable[Any]) -> Iterator[str]:
    old: Mapping[str, Any] = {each.id: each for each in before}
    new: Mapping[str, Any] = {each.id: each for each in after}
    for name in sorted({*old, *new}):
        if name not in new:
            yield f"{kind} {name} removed"
        elif name not in old:
            yield f"{kind} {name} added"
        elif old[name] != new[name]:
            yield f"{kind} {name} changed"
