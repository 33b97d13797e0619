"""What tools need of HTTP: one exchange, bounded in time and bytes, to an address that may be reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

IsWhole: TypeAlias = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """An answer, whatever its status. `headers` have names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Web(Protocol):
    """An HTTP client. Redirects are answers like any other, proxies of the environment are not used."""

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float,
        is_whole: IsWhole | None = None,
    ) -> WebAnswer:
        """One exchange. `is_whole` is told of each piece of the answer as it comes; what follows once it is
        True is not waited for. Raises `EngineError`, also for an answer that is longer than `LIMIT`."""

    async def close(self) -> None:
        """Closes its connections."""


LIMIT = 256 * 1024
"""Bytes of an answer."""
