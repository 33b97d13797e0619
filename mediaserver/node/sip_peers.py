"""The bans of SIP strangers, for the operator; and the addresses from which somebody has authenticated, kept
over a restart, so that who forges their datagrams does not silence them afterwards."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from mediaserver.errors import NotFound
from mediaserver.files import private
from mediaserver.node.background import forever
from sip.endpoint import Endpoint
from sip.strangers import KNOWN_LIMIT, Ban

log = logging.getLogger(__name__)

FILE: Final = "sip-known.json"
WRITE_S: Final = 30.0
"""Seconds between two looks at what is known: so much a crash forgets."""

RENEW_S: Final = 3600.0
"""Seconds after which the file is written again though nobody new has come."""


class SipPeers:
    """Who may speak SIP to the endpoint of this node. `folder`: the data directory."""

    def __init__(self, endpoint: Endpoint, folder: Path) -> None:
        self._endpoint = endpoint
        self._path = folder / FILE
        self._written: frozenset[str] = frozenset()
        self._written_at = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Recalls whom the endpoint knew before the restart, and keeps the file true from now on."""
        await self._recall()
        self._task = asyncio.create_task(forever("known SIP addresses", self._run))
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Writes the file a last time."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._keep()

    async def _recall(self) -> None:
        try:
            text = await asyncio.to_thread(self._path.read_text)
            known = _read(text, time.time())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.warning("known SIP addresses cannot be read", extra={"reason": str(error)})
            return
        self._endpoint.gate.strangers.recall(known, self._now())
        self._written = frozenset(known)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(WRITE_S)
            await self._keep()

    def bans(self) -> list[Ban]:
        """Returns the bans of this node, the first to end first."""
        return self._endpoint.gate.strangers.listed(self._now())

    def lift(self, address: str, *, by: str) -> None:
        """Ends the bans of an address (IPv6: of its /64); `by`: the id of the key, for the log. Raises
        `NotFound`."""
        if not self._endpoint.gate.strangers.lift(address.partition("/")[0], self._now()):
            raise NotFound("That address is not banned on this node")
        log.info("SIP ban lifted", extra={"address": address, "key_id": by})

    async def _keep(self) -> None:
        known = self._endpoint.gate.strangers.known_now(self._now())
        changed = self._written != known.keys()
        if not changed and (not known or time.monotonic() - self._written_at < RENEW_S):
            return
        wall = time.time()
        text = json.dumps({client: round(wall + left_s) for client, left_s in known.items()})
        try:
            await asyncio.to_thread(_write, self._path, text)
        except OSError as error:
            log.warning("known SIP addresses cannot be written", extra={"reason": str(error)})
            return
        self._written, self._written_at = frozenset(known), time.monotonic()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _read(text: str, wall: float) -> Mapping[str, float]:
    """Returns the addresses of a file, with the seconds for which they are known. Raises ValueError."""
    try:
        said = json.loads(text)
        if not isinstance(said, dict) or len(said) > KNOWN_LIMIT:
            raise ValueError("not a file of this server")
        return {client: float(until) - wall for client, until in said.items() if float(until) > wall}
    except (TypeError, OverflowError, RecursionError) as error:
        raise ValueError("not a file of this server") from error


def _write(path: Path, text: str) -> None:
    partial = path.with_suffix(".part")
    number = os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, private.FILE_MODE)
    with open(number, "w") as file:
        file.write(text)
    partial.replace(path)
