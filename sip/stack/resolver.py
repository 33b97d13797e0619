"""The addresses of host names, kept for as long as their records hold."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sip.egress import canonical, is_address
from sip.stack.dns import Dns

UNKNOWN_LIFETIME_S = 5.0
LOOK_UP_S = 5.0
MAX_NAMES = 1024  # names come from peers' contacts, so their number is bounded
MAX_LOOK_UPS = 64


@dataclass(frozen=True, slots=True)
class _Entry:
    addresses: tuple[str, ...]  # in order of preference; empty: the name does not resolve
    until: float


class Names:
    """The addresses of peers' names. `family` returns that of the sending socket, None for any."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, family: Callable[[], int | None], dns: Dns | None = None
    ) -> None:
        self._loop = loop
        self._dns = dns or Dns(loop)
        self._family = family
        self._known: dict[str, _Entry] = {}
        self._led: dict[str, tuple[str, ...]] = {}
        self._look_ups: dict[str, asyncio.Task[None]] = {}

    async def resolve(self, host: str) -> str:
        """Returns the address to send to. Raises OSError (socket.gaierror)."""
        return self.known(host) or (await self._look_up(host))[0]

    async def all_of(self, host: str) -> tuple[str, ...]:
        """Returns every address of `host`, the preferred family first. Raises OSError (socket.gaierror)."""
        entry = self._known.get(host)
        return (
            entry.addresses if entry and self._fresh(entry) and entry.addresses else await self._look_up(host)
        )

    def lead(self, host: str, addresses: Iterable[str]) -> None:
        """Notes where SRV records of `host` lead: requests within calls come from there and go there."""
        if len(self._led) >= MAX_NAMES:
            self._led.clear()
        self._led[host] = tuple(canonical(each) for each in addresses)

    def known(self, host: str) -> str | None:
        """Returns the address to send to where no look-up is needed, else None."""
        if is_address(host):
            return host
        entry = self._known.get(host)
        return entry.addresses[0] if entry is not None and entry.addresses and self._fresh(entry) else None

    def addresses_of(self, host: str) -> tuple[str, ...] | None:
        """Returns all addresses of `host` by the last look-up, () where it does not resolve. None during the
        first look-up."""
        if is_address(host):
            return (canonical(host),)
        entry = self._known.get(host)
        if (entry is None or not self._fresh(entry)) and host not in self._look_ups:
            if len(self._look_ups) >= MAX_LOOK_UPS:
                return ()
            self._look_ups[host] = self._loop.create_task(self._refresh(host))
        led = self._led.get(host, ())
        return (led or None) if entry is None else (*(canonical(each) for each in entry.addresses), *led)

    async def close(self) -> None:
        """Cancels the look-ups under way."""
        tasks = list(self._look_ups.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _fresh(self, entry: _Entry) -> bool:
        return entry.until > self._loop.time()

    async def _refresh(self, host: str) -> None:
        try:
            async with asyncio.timeout(LOOK_UP_S):
                await self._look_up(host)
        except (OSError, UnicodeError):  # TimeoutError is an OSError
            before = self._known.get(host)
            self._remember(host, before.addresses if before is not None else (), UNKNOWN_LIFETIME_S)
        finally:
            self._look_ups.pop(host, None)

    async def _look_up(self, host: str) -> tuple[str, ...]:
        found, holds_s = await self._dns.addresses(host)
        family = self._family()
        six = family == socket.AF_INET6 if family is not None else None
        addresses = tuple(sorted(found, key=lambda each: (":" in each) != six))  # stable
        self._remember(host, addresses, holds_s)
        return addresses

    def _remember(self, host: str, addresses: tuple[str, ...], lifetime_s: float) -> None:
        self._known.pop(host, None)
        if len(self._known) >= MAX_NAMES:
            del self._known[next(iter(self._known))]
        self._known[host] = _Entry(addresses, self._loop.time() + lifetime_s)
