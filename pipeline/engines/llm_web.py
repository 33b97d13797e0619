"""What tools need of HTTP: one exchange, bounded in time and bytes, to an address that may be reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """An answer, whatever its status. `headers` have names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Web(Protocol):
    """An HTTP client. Redirects are answers like any other, proxies of the environment are not used."""

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> WebAnswer:
        """One exchange. Raises `EngineError`, also for an answer that is longer than `LIMIT`."""

    async def close(self) -> None:
        """Closes its connections."""


LIMIT = 256 * 1024
"""Bytes of an answer."""
